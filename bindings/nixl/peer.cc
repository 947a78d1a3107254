/*
 * Connections to agents (peer.hh).
 *
 * Locks: Peers' for its map; a peer's for its list of notifications.
 */
#include "peer.hh"

#include "report.hh"

namespace kvcl_nixl {

Peer::Peer(std::shared_ptr<const Context> context, std::string name, std::string address, kvcl_comm_h comm)
    : context_(std::move(context)), name_(std::move(name)), address_(std::move(address)), comm_(comm)
{
}

Peer::~Peer()
{
    constexpr uint64_t patience_ns = 250000000; /* NIXL's Python package holds the interpreter's lock here */

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

bool Peer::failed() const
{
    kvcl_rank_state_t state = KVCL_RANK_UNKNOWN;

    return (kvcl_rank_state(comm_, 0, &state) == KVCL_OK) && (state == KVCL_RANK_FAILED);
}

void Peer::end(kvcl_status_t status)
{
    if (status < 0) {
        (void)report_failure(context_->agent(), "a notification to agent " + quoted(name_) + " was lost", status);
    }
}

nixl_status_t Peer::tell(const std::vector<std::string> &parts)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;

    collect();
    params.timeout_ns = context_->options().timeout_ns;
    for (const std::string &part : parts) {
        kvcl_req_h          req    = nullptr;
        const kvcl_status_t status = kvcl_notify(comm_, 0, part.data(), part.size(), &params, &req);

        if (status != KVCL_OK) {
            return report_failure(context_->agent(), "no notification to agent " + quoted(name_), status);
        }
        const std::lock_guard<std::mutex> guard(mutex_);

        told_.push_back(req);
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

    std::erase_if(told_, [this](kvcl_req_h req) {
        const kvcl_status_t status = kvcl_req_test(req);

        end(status);
        return status != KVCL_INPROGRESS;
    });
    any_told_ = !told_.empty();
}

/* The text of kvcl_context_address(): metadata must not make this process look up and visit a host by name. */
static bool is_address(const std::string &text)
{
    return text.starts_with("kvcl") && (text.find(':') == 5) && (text.find('\0') == std::string::npos);
}

nixl_status_t Peers::load(const std::string &name, const std::string &address)
{
    const std::shared_ptr<Peer> known = find(name);
    kvcl_comm_h                 comm  = nullptr;

    if ((known != nullptr) && (known->address() == address) && !known->failed()) {
        return NIXL_SUCCESS;
    }
    if (!is_address(address)) {
        report(context_->agent(), "the connection information of agent " + quoted(name) + " is no address of a context");
        return NIXL_ERR_MISMATCH;
    }
    const kvcl_status_t status = kvcl_context_connect(context_->handle(), address.c_str(),
                                                      context_->options().connect_ns, &comm);

    if (status != KVCL_OK) {
        return report_failure(context_->agent(), "no connection to agent " + quoted(name), status);
    }
    std::shared_ptr<Peer> peer = std::make_shared<Peer>(context_, name, address, comm);
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
