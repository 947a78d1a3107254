/*
 * The backend's virtual functions (engine.hh).
 */
#include "engine.hh"

#include "report.hh"

#include <stdexcept>

namespace kvcl_nixl {

namespace {

std::shared_ptr<const Context> open(const nixlBackendInitParams &params)
{
    if (params.localAgent.empty() || (params.localAgent.size() > NOTICE_NAME_MAX)) {
        throw std::invalid_argument("the agent's name has " + std::to_string(params.localAgent.size()) +
                                    " bytes: 1 to " + std::to_string(NOTICE_NAME_MAX) + " may be");
    }
    return std::make_shared<const Context>(params.localAgent, parse_options(*params.customParams));
}

} // namespace

Engine::Engine(const nixlBackendInitParams *params)
    : nixlBackendEngine(params), context_(open(*params)), peers_(context_)
{
}

/* Reports that there is none. */
std::shared_ptr<Peer> Engine::peer(const std::string &name) const
{
    std::shared_ptr<Peer> found = peers_.find(name);

    if (found == nullptr) {
        report(localAgent, "agent " + quoted(name) + " is not connected: its metadata are not loaded, or were dropped");
    }
    return found;
}

/* ---- memory ---- */

nixl_status_t Engine::registerMem(const nixlBlobDesc &mem, const nixl_mem_t &kind, nixlBackendMD *&out)
{
    return register_memory(context_, mem, kind, out);
}

nixl_status_t Engine::deregisterMem(nixlBackendMD *meta)
{
    return release_memory(*context_, static_cast<LocalMemory *>(meta));
}

nixl_status_t Engine::getPublicData(const nixlBackendMD *meta, std::string &text) const
{
    return describe_memory(*context_, *static_cast<const LocalMemory *>(meta), text);
}

/* Memory of this agent as a peer sees it, over the connection to itself. */
nixl_status_t Engine::loadLocalMD(nixlBackendMD *input, nixlBackendMD *&output)
{
    const auto                 *memory = static_cast<const LocalMemory *>(input);
    const kvcl_mem_h            mem    = memory->region->mem();
    const std::shared_ptr<Peer> self   = peer(localAgent);
    std::string                 text;
    const nixl_status_t         status = describe_memory(*context_, *memory, text);

    if (self == nullptr) {
        return NIXL_ERR_NOT_FOUND;
    }
    return (status == NIXL_SUCCESS) ? import_memory(self, text, reinterpret_cast<uintptr_t>(kvcl_mem_addr(mem)),
                                                    kvcl_mem_len(mem), output)
                                    : status;
}

nixl_status_t Engine::loadRemoteMD(const nixlBlobDesc &input, const nixl_mem_t &, const std::string &remote_agent,
                                   nixlBackendMD *&output)
{
    const std::shared_ptr<Peer> from = peer(remote_agent);

    return (from == nullptr) ? NIXL_ERR_NOT_FOUND
                             : import_memory(from, input.metaInfo, input.addr, input.len, output);
}

nixl_status_t Engine::unloadMD(nixlBackendMD *input)
{
    delete input;
    return NIXL_SUCCESS;
}

/* ---- connections ---- */

nixl_status_t Engine::getConnInfo(std::string &text) const
{
    text = context_->address();
    return NIXL_SUCCESS;
}

nixl_status_t Engine::loadRemoteConnInfo(const std::string &remote_agent, const std::string &text)
{
    return peers_.load(remote_agent, text);
}

/* Loading has begun to connect, and this call waits for the connection. An agent connects to itself here. */
nixl_status_t Engine::connect(const std::string &remote_agent)
{
    if (remote_agent == localAgent) {
        return peers_.load(localAgent, context_->address());
    }
    const std::shared_ptr<Peer> other = peer(remote_agent);

    if (other == nullptr) {
        return NIXL_ERR_NOT_FOUND;
    }
    const kvcl_status_t status = other->wait();

    if (status != KVCL_OK) {
        report(localAgent, other->why());
    }
    return to_nixl(status);
}

nixl_status_t Engine::disconnect(const std::string &remote_agent)
{
    return peers_.forget(remote_agent) ? NIXL_SUCCESS : NIXL_ERR_NOT_FOUND;
}

/* ---- transfers ---- */

nixl_status_t Engine::prepXfer(const nixl_xfer_op_t &op, const nixl_meta_dlist_t &local,
                               const nixl_meta_dlist_t &remote, const std::string &remote_agent,
                               nixlBackendReqH *&handle, const nixl_opt_b_args_t *) const
{
    const std::shared_ptr<Peer> with = peer(remote_agent);

    if (with == nullptr) {
        return NIXL_ERR_NOT_FOUND;
    }
    if (local.descCount() != remote.descCount()) {
        report(localAgent, std::to_string(local.descCount()) + " descriptors here, " +
                               std::to_string(remote.descCount()) + " at agent " + quoted(remote_agent));
        return NIXL_ERR_INVALID_PARAM;
    }
    auto                transfer = std::make_unique<Transfer>(with, op);
    const nixl_status_t status   = transfer->prepare(local, remote);

    if (status == NIXL_SUCCESS) {
        handle = transfer.release();
    }
    return status;
}

nixl_status_t Engine::postXfer(const nixl_xfer_op_t &, const nixl_meta_dlist_t &, const nixl_meta_dlist_t &,
                               const std::string &, nixlBackendReqH *&handle, const nixl_opt_b_args_t *args) const
{
    std::vector<std::string> parts;

    if ((args != nullptr) && args->hasNotif && !split(args->notifMsg, parts)) {
        return NIXL_ERR_INVALID_PARAM;
    }
    return static_cast<Transfer *>(handle)->post(std::move(parts));
}

nixl_status_t Engine::checkXfer(nixlBackendReqH *handle) const
{
    return static_cast<Transfer *>(handle)->check();
}

nixl_status_t Engine::releaseReqH(nixlBackendReqH *handle) const
{
    auto *transfer = static_cast<Transfer *>(handle);

    if (!transfer->stop()) {
        report(localAgent, "a transfer does not end yet: its memory must stay as it is; release it again");
        return NIXL_ERR_BACKEND;
    }
    delete transfer;
    return NIXL_SUCCESS;
}

/* ---- notifications ---- */

bool Engine::split(const std::string &text, std::vector<std::string> &parts) const
{
    if (text.size() > NOTICE_MAX) {
        report(localAgent, "a notification of " + std::to_string(text.size()) + " bytes: at most " +
                               std::to_string(NOTICE_MAX) + " may be");
        return false;
    }
    parts = split_notice(localAgent, text, texts_++);
    return true;
}

nixl_status_t Engine::genNotif(const std::string &remote_agent, const std::string &text) const
{
    const std::shared_ptr<Peer> to = peer(remote_agent);
    std::vector<std::string>    parts;

    if (to == nullptr) {
        return NIXL_ERR_NOT_FOUND;
    }
    return split(text, parts) ? to->tell(parts) : NIXL_ERR_INVALID_PARAM;
}

/* Reported for the first and at each doubling, since a peer can cause as many as it likes. */
void Engine::note_refusal(const std::string &what)
{
    ++refused_;
    if ((refused_ & (refused_ - 1)) == 0) {
        report(localAgent, what + " (" + std::to_string(refused_) + " so far)");
    }
}

nixl_status_t Engine::getNotifs(notif_list_t &list)
{
    constexpr int                     most = 4096; /* of a call: more wait for the next one */
    const std::lock_guard<std::mutex> guard(joiner_mutex_);
    std::string                       bytes(KVCL_NOTIFY_MAX, '\0');
    kvcl_status_t                     status = KVCL_OK;

    peers_.collect();
    for (int i = 0; (i < most) && (status == KVCL_OK); ++i) {
        kvcl_recv_info_t info    = KVCL_RECV_INFO_INIT;
        const uint64_t   dropped = joiner_.dropped();
        Notice           notice;

        status = kvcl_notify_recv(context_->door(), bytes.data(), bytes.size(), &info, 0);
        if (status != KVCL_OK) {
            break;
        }
        switch (joiner_.take(info.source, std::string_view(bytes.data(), info.bytes), notice)) {
        case NoticeJoiner::Result::whole:
            list.emplace_back(std::move(notice.name), std::move(notice.text));
            break;
        case NoticeJoiner::Result::part:
            break;
        case NoticeJoiner::Result::malformed:
            note_refusal("a peer's notification is not of NIXL: it is dropped");
            break;
        }
        if (joiner_.dropped() != dropped) {
            note_refusal("a peer's long notification has not come whole: it is dropped");
        }
    }
    if ((status == KVCL_OK) || (status == KVCL_ERR_WAIT_TIMEOUT) || (status == KVCL_INPROGRESS)) {
        return NIXL_SUCCESS;
    }
    return report_failure(localAgent, "notifications cannot be taken", status);
}

} // namespace kvcl_nixl
