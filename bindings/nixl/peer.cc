/*
 * Connections to agents (peer.hh).
 *
 * Invariant: a notification is sent at once where the peer is connected, and in the callback of the connection where it
 * was given before, so they go out in the order of the calls. Locks: Peers' for its map; a peer's for its state and its
 * lists of notifications; the callback takes that lock alone.
 */
#include "peer.hh"

#include "report.hh"

#include <chrono>

namespace kvcl_nixl {

namespace {

constexpr uint64_t patience_ns = 250000000; /* NIXL's Python package holds the interpreter's lock here */

} // namespace

Peer::Peer(std::shared_ptr<const Context> context, std::string name, std::string address)
    : context_(std::move(context)), name_(std::move(name)), address_(std::move(address))
{
}

Peer::~Peer()
{
    if (connect_ != nullptr) {
        if (any_told_ && (state_ == KVCL_INPROGRESS)) {
            std::unique_lock<std::mutex> lock(mutex_);
            changed_.wait_for(lock, std::chrono::nanoseconds(patience_ns),
                              [this] { return state_ != KVCL_INPROGRESS; });
        }
        kvcl_req_cancel(connect_);
        collect();
        (void)!kvcl_req_wait(connect_, KVCL_WAIT_FOREVER); /* canceled: it ends at once, with its callback */
        const std::lock_guard<std::mutex> guard(mutex_);

        if (!waiting_.empty()) {
            report(context_->agent(), "notifications to agent " + quoted(name_) + " were lost (" +
                   std::to_string(waiting_.size()) + " parts): the connection was canceled");
        }
    }
    const kvcl_status_t status = kvcl_req_wait_all(told_.data(), told_.size(), patience_ns);

    if (status != KVCL_ERR_WAIT_TIMEOUT) {
        end(status);
    }
    for (kvcl_req_h req : told_) {
        if (req != nullptr) {
            kvcl_req_cancel(req);
            end(kvcl_req_wait(req, patience_ns));
        }
    }
    kvcl_comm_free(comm_);
}

kvcl_status_t Peer::start()
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;

    params.timeout_ns = context_->options().connect_ns;
    params.cb         = on_end;
    params.cb_arg     = this;
    return kvcl_context_connect_post(context_->handle(), address_.c_str(), &params, &comm_, &connect_);
}

/* In the progress thread, or in a thread that waits for its own requests. */
void Peer::on_end(void *arg, kvcl_status_t status)
{
    Peer                             *peer = static_cast<Peer *>(arg);
    const std::lock_guard<std::mutex> guard(peer->mutex_);

    peer->state_ = status;
    if (status == KVCL_OK) {
        for (const std::string &part : peer->waiting_) {
            const kvcl_status_t sent = peer->send(part);

            if (sent != KVCL_OK) {
                peer->end(sent);
            }
        }
        peer->waiting_.clear();
    }
    peer->changed_.notify_all();
}

kvcl_status_t Peer::wait()
{
    std::unique_lock<std::mutex> lock(mutex_);

    changed_.wait(lock, [this] { return state_ != KVCL_INPROGRESS; }); /* the connect has a deadline */
    return state_;
}

std::string Peer::why() const
{
    return kvcl_req_error(connect_);
}

bool Peer::failed() const
{
    kvcl_rank_state_t state = KVCL_RANK_UNKNOWN;

    if (state_ != KVCL_OK) {
        return state_ != KVCL_INPROGRESS;
    }
    return (kvcl_rank_state(comm_, 0, &state) == KVCL_OK) && (state == KVCL_RANK_FAILED);
}

void Peer::end(kvcl_status_t status)
{
    if (status < 0) {
        (void)report_failure(context_->agent(), "a notification to agent " + quoted(name_) + " was lost", status);
    }
}

/* mutex_ held. */
kvcl_status_t Peer::send(const std::string &part)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_req_h         req    = nullptr;

    params.timeout_ns          = context_->options().timeout_ns;
    const kvcl_status_t status = kvcl_notify(comm_, 0, part.data(), part.size(), &params, &req);

    if (status == KVCL_OK) {
        told_.push_back(req);
    }
    return status;
}

nixl_status_t Peer::tell(const std::vector<std::string> &parts)
{
    collect();
    const std::lock_guard<std::mutex> guard(mutex_);

    if (state_ == KVCL_INPROGRESS) {
        waiting_.insert(waiting_.end(), parts.begin(), parts.end());
        any_told_ = true;
        return NIXL_SUCCESS;
    }
    if (state_ != KVCL_OK) {
        report(context_->agent(), "no notification to agent " + quoted(name_) + ": " + why());
        return to_nixl(state_);
    }
    for (const std::string &part : parts) {
        const kvcl_status_t status = send(part);

        if (status != KVCL_OK) {
            return report_failure(context_->agent(), "no notification to agent " + quoted(name_), status);
        }
        any_told_ = true;
    }
    return NIXL_SUCCESS;
}

void Peer::collect()
{
    if (!any_told_) {
        return;
    }
    const std::lock_guard<std::mutex> guard(mutex_);

    if (!waiting_.empty() && (state_ < 0)) {
        report(context_->agent(), "notifications to agent " + quoted(name_) + " were lost: " + why());
        waiting_.clear();
    }
    std::erase_if(told_, [this](kvcl_req_h req) {
        const kvcl_status_t status = kvcl_req_test(req);

        end(status);
        return status != KVCL_INPROGRESS;
    });
    any_told_ = !told_.empty() || !waiting_.empty();
}

/* The text of kvcl_context_address(): metadata must not make this process look up and visit a host by name. */
static bool is_address(const std::string &text)
{
    return text.starts_with("kvcl") && (text.find(':') == 5) && (text.find('\0') == std::string::npos);
}

nixl_status_t Peers::load(const std::string &name, const std::string &address)
{
    const std::shared_ptr<Peer> known = find(name);

    if ((known != nullptr) && (known->address() == address) && !known->failed()) {
        return NIXL_SUCCESS;
    }
    if (!is_address(address)) {
        report(context_->agent(), "the connection information of agent " + quoted(name) +
               " is no address of a context");
        return NIXL_ERR_MISMATCH;
    }
    std::shared_ptr<Peer> peer   = std::make_shared<Peer>(context_, name, address);
    const kvcl_status_t   status = peer->start();

    if (status != KVCL_OK) {
        return report_failure(context_->agent(), "no connection to agent " + quoted(name), status);
    }
    {
        const std::lock_guard<std::mutex> guard(mutex_);

        peers_[name].swap(peer);
    }
    return NIXL_SUCCESS; /* the one before, if any, ends here without the lock */
}

std::shared_ptr<Peer> Peers::find(const std::string &name) const
{
    const std::lock_guard<std::mutex> guard(mutex_);
    const auto                        found = peers_.find(name);

    return (found == peers_.end()) ? nullptr : found->second;
}

bool Peers::forget(const std::string &name)
{
    std::shared_ptr<Peer>             peer; /* ends after the lock */
    const std::lock_guard<std::mutex> guard(mutex_);
    const auto                        found = peers_.find(name);

    if (found == peers_.end()) {
        return false;
    }
    peer = std::move(found->second);
    peers_.erase(found);
    return true;
}

void Peers::collect()
{
    const std::lock_guard<std::mutex> guard(mutex_);

    for (auto &[name, peer] : peers_) {
        peer->collect();
    }
}

} // namespace kvcl_nixl
