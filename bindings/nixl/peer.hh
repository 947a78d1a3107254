/*
 * A connection to another agent's context, or to this agent's own, and the agents that are known by name. A peer stays
 * as long as memory of it or a transfer with it needs it, also after NIXL has forgotten the name. Its connection is
 * made while the agent's program goes on: notifications wait for it here, transfers in transfer.hh.
 */
#ifndef KVCL_NIXL_PEER_HH
#define KVCL_NIXL_PEER_HH

#include "context.hh"

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace kvcl_nixl {

class Peer {
public:
    Peer(std::shared_ptr<const Context> context, std::string name, std::string address);
    /** Disconnects. Notifications that have not arrived are waited for, half a second at most. */
    ~Peer();
    Peer(const Peer &)            = delete;
    Peer &operator=(const Peer &) = delete;

    /** Begin to connect, once. Does not block. */
    kvcl_status_t start();
    /** KVCL_INPROGRESS; KVCL_OK: connected; else why not, and why() has the sentence. Never blocks. */
    kvcl_status_t state() const { return state_; }
    /** Until it is connected, or not: for options.connect_ns at most. @return as state(). */
    kvcl_status_t wait();
    std::string   why() const;

    const Context     &context() const { return *context_; }
    const std::string &name() const { return name_; }
    const std::string &address() const { return address_; }
    kvcl_comm_h        comm() const { return comm_; }
    bool               failed() const;

    /** Send a notification, in parts, once the peer is connected. Those that fail later are reported by collect(). Does
     * not block. */
    nixl_status_t tell(const std::vector<std::string> &parts);
    /** Report notifications that have failed since. */
    void collect();

private:
    static void   on_end(void *peer, kvcl_status_t status);
    kvcl_status_t send(const std::string &part);
    void          end(kvcl_status_t status);

    const std::shared_ptr<const Context> context_;
    const std::string                    name_;
    const std::string                    address_;
    kvcl_comm_h                          comm_    = nullptr;
    kvcl_req_h                           connect_ = nullptr;
    std::atomic<kvcl_status_t>           state_   = KVCL_INPROGRESS;
    std::mutex                           mutex_;
    std::condition_variable              changed_;
    std::vector<std::string>             waiting_; /* parts of notifications, for the connection */
    std::vector<kvcl_req_h>              told_;    /* notifications on their way */
    std::atomic<bool>                    any_told_ = false; /* either list has some */
};

/* Any thread. The lock is never held while a call waits for a peer. */
class Peers {
public:
    explicit Peers(std::shared_ptr<const Context> context) : context_(std::move(context)) {}

    /** Begin to connect to the context of that address, and know it by that name; in place of another one of that
     * name. Does not wait for the peer. */
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
