/*
 * An agent's context of KVCL: alone in its job, with a door to which other agents connect (kvcl_context_listen). It has
 * a progress thread, whatever the agent says: peers are served while the agent's program computes.
 */
#ifndef KVCL_NIXL_CONTEXT_HH
#define KVCL_NIXL_CONTEXT_HH

#include "options.hh"

#include <kvcl/kvcl_comm.h>
#include <kvcl/kvcl_xfer.h>

#include <string>

namespace kvcl_nixl {

class Context {
public:
    /** @throw std::runtime_error: what() says what failed, and why. */
    Context(const std::string &agent, const Options &options);
    /** Blocks, two seconds at most (kvcl_finalize). */
    ~Context();
    Context(const Context &)            = delete;
    Context &operator=(const Context &) = delete;

    kvcl_context_h handle() const { return ctx_; }
    /** Where the notifications of all other agents arrive. */
    kvcl_comm_h door() const { return door_; }
    /** What other agents connect to. */
    const std::string &address() const { return address_; }
    const std::string &agent() const { return agent_; }
    const Options     &options() const { return options_; }

private:
    const std::string agent_;
    const Options     options_;
    kvcl_context_h    ctx_  = nullptr;
    kvcl_comm_h       door_ = nullptr;
    std::string       address_;
};

} // namespace kvcl_nixl

#endif
