/*
 * A connection to another agent's context, or to this agent's own, and the agents that are known by name. A peer stays
 * as long as memory of it or a transfer with it needs it, also after NIXL has forgotten the name.
 */
#ifndef KVCL_NIXL_PEER_HH
#define KVCL_NIXL_PEER_HH

#include "context.hh"

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace kvcl_nixl {

class Peer {
public:
    /** comm is of kvcl_context_connect(), and the peer's from here on. */
    Peer(std::shared_ptr<const Context> context, std::string name, std::string address, kvcl_comm_h comm);
    /** Disconnects. Notifications that have not arrived are waited for, a quarter of a second at most. */
    ~Peer();
    Peer(const Peer &)            = delete;
    Peer &operator=(const Peer &) = delete;

    const Context     &context() const { return *context_; }
    const std::string &name() const { return name_; }
    const std::string &address() const { return address_; }
    kvcl_comm_h        comm() const { return comm_; }
    bool               failed() const;

    /** Send a notification, in parts. Those that fail later are reported by collect(). Does not block. */
    nixl_status_t tell(const std::vector<std::string> &parts);
    /** Report notifications that have failed since. */
    void collect();

private:
    void end(kvcl_status_t status);

    const std::shared_ptr<const Context> context_;
    const std::string                    name_;
    const std::string                    address_;
    const kvcl_comm_h                    comm_;
    std::mutex                           mutex_;
    std::vector<kvcl_req_h>              told_; /* notifications on their way */
    std::atomic<bool>                    any_told_ = false;
};

/* Any thread. The lock is never held while a call waits for a peer. */
class Peers {
public:
    explicit Peers(std::shared_ptr<const Context> context) : context_(std::move(context)) {}

    /** Connect to the context of that address, and know it by that name; in place of another one of that name. Blocks,
     * for options.connect_ns at most. */
    nixl_status_t load(const std::string &name, const std::string &address);
    /** nullptr: nobody has that name. */
    std::shared_ptr<Peer> find(const std::string &name) const;
    /** @return false: nobody has that name. */
    bool forget(const std::string &name);
    void collect();

private:
    const std::shared_ptr<const Context>                   context_;
    mutable std::mutex                                     mutex_;
    std::unordered_map<std::string, std::shared_ptr<Peer>> peers_;
};

} // namespace kvcl_nixl

#endif
