/*
 * Transfers (transfer.hh).
 *
 * Invariants: a failure cancels the requests that are left, and is returned when all have ended; parts_ is empty once
 * the notification has been posted.
 */
#include "transfer.hh"

#include "report.hh"

#include <algorithm>
#include <chrono>

namespace kvcl_nixl {

/* Neighbours of a list are mostly in the same two memories. */
Transfer::Group &Transfer::group_of(const LocalMemory &local, const RemoteMemory &remote)
{
    const auto is_it = [&](const Group &group) {
        return (group.local == local.region) && (group.remote == remote.window);
    };
    auto found = std::find_if(groups_.rbegin(), groups_.rend(), is_it);

    if (found != groups_.rend()) {
        return *found;
    }
    groups_.push_back({local.region, remote.window, {}});
    return groups_.back();
}

nixl_status_t Transfer::prepare(const nixl_meta_dlist_t &local, const nixl_meta_dlist_t &remote)
{
    const int n = local.descCount();

    for (int i = 0; i < n; ++i) {
        const nixlMetaDesc &here  = local[i];
        const nixlMetaDesc &there = remote[i];
        const auto         *mine  = static_cast<const LocalMemory *>(here.metadataP);
        const auto         *other = static_cast<const RemoteMemory *>(there.metadataP);

        if ((mine == nullptr) || (other == nullptr) || (here.len != there.len) ||
            (there.addr < other->window->base())) {
            report(peer_->context().agent(), "descriptor " + std::to_string(i) + " of a transfer with agent " +
                   quoted(peer_->name()) + ": " + std::to_string(here.len) + " bytes here, " +
                   std::to_string(there.len) + " there, or not in registered memory");
            return NIXL_ERR_INVALID_PARAM;
        }
        if (here.len > 0) {
            group_of(*mine, *other).pieces.push_back(
                {there.addr - other->window->base(), reinterpret_cast<void *>(here.addr), here.len});
        }
    }
    return NIXL_SUCCESS;
}

/* The first failure counts. */
void Transfer::fail(kvcl_status_t status, std::string why)
{
    if (status_ == KVCL_OK) {
        status_ = status;
        why_    = std::move(why);
        cancel();
    }
}

void Transfer::cancel()
{
    for (kvcl_req_h req : running_) {
        kvcl_req_cancel(req);
    }
}

bool Transfer::post_group(const Group &group, const kvcl_xfer_params_t &params)
{
    const auto call = (op_ == NIXL_READ) ? kvcl_get_vec : kvcl_put_vec;

    for (size_t at = 0; at < group.pieces.size(); at += KVCL_VEC_MAX) {
        const size_t        n      = std::min<size_t>(group.pieces.size() - at, KVCL_VEC_MAX);
        kvcl_req_h          req    = nullptr;
        const kvcl_status_t status =
            call(group.remote->rmem(), &group.pieces[at], n, group.local->mem(), &params, &req);

        if (status != KVCL_OK) {
            fail(status, kvcl_last_error());
            return false;
        }
        running_.push_back(req);
    }
    return true;
}

bool Transfer::post_parts()
{
    kvcl_xfer_params_t             params = KVCL_XFER_PARAMS_INIT;
    const std::vector<std::string> parts  = std::move(parts_);

    parts_.clear();
    params.timeout_ns = peer_->context().options().timeout_ns;
    for (const std::string &part : parts) {
        kvcl_req_h          req    = nullptr;
        const kvcl_status_t status = kvcl_notify(peer_->comm(), 0, part.data(), part.size(), &params, &req);

        if (status != KVCL_OK) {
            fail(status, kvcl_last_error());
            return false;
        }
        running_.push_back(req);
    }
    return true;
}

bool Transfer::open(const Group &group)
{
    std::string         why;
    const kvcl_status_t status = group.remote->open(why);

    if (status != KVCL_OK) {
        fail(status, std::move(why));
    }
    return status == KVCL_OK;
}

/* Post the data, with its notification if that fits. */
bool Transfer::move()
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    const bool         along  = (groups_.size() == 1) && (groups_[0].pieces.size() <= KVCL_VEC_MAX) &&
                                (parts_.size() == 1);
    const std::string  part   = along ? std::move(parts_[0]) : std::string();

    params.timeout_ns = peer_->context().options().timeout_ns;
    if (along) {
        parts_.clear();
        params.notify       = part.data();
        params.notify_bytes = part.size();
    }
    return std::all_of(groups_.begin(), groups_.end(),
                       [&](const Group &group) { return open(group) && post_group(group, params); });
}

/* Post it if the peer is connected, or fail if it will not be. */
void Transfer::begin()
{
    const kvcl_status_t peer = peer_->state();

    begun_ = (peer != KVCL_INPROGRESS);
    if (peer == KVCL_OK) {
        (void)move(); /* check() returns the failure */
    } else if (begun_) {
        fail(peer, peer_->why());
    }
}

nixl_status_t Transfer::post(std::vector<std::string> parts)
{
    parts_  = std::move(parts);
    status_ = KVCL_OK;
    begun_  = false;
    return check();
}

/* Drop the requests that have ended. */
void Transfer::collect()
{
    for (size_t i = 0; i < running_.size();) {
        const kvcl_status_t status = kvcl_req_test(running_[i]);

        if (status == KVCL_INPROGRESS) {
            ++i;
            continue;
        }
        running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
        if (status < 0) {
            fail(status, kvcl_last_error());
        }
    }
}

nixl_status_t Transfer::check()
{
    if (!begun_) {
        begin();
    }
    collect();
    if (!begun_) {
        return NIXL_IN_PROG;
    }
    if (running_.empty() && (status_ == KVCL_OK) && !parts_.empty()) {
        (void)post_parts();
        collect();
    }
    if (!running_.empty()) {
        return NIXL_IN_PROG;
    }
    if (status_ != KVCL_OK) {
        parts_.clear();
        report(peer_->context().agent(), std::string((op_ == NIXL_READ) ? "reading from" : "writing to") + " agent " +
                                             quoted(peer_->name()) + " failed: " + why_);
    }
    return to_nixl(status_);
}

bool Transfer::stop()
{
    using clock = std::chrono::steady_clock;
    const auto until = clock::now() + std::chrono::seconds(1);

    begun_ = true;
    cancel();
    while (!running_.empty()) {
        const auto          left   = std::chrono::duration_cast<std::chrono::nanoseconds>(until - clock::now()).count();
        const kvcl_status_t status = kvcl_req_wait(running_.back(), (left > 0) ? static_cast<uint64_t>(left) : 0);

        if ((status == KVCL_ERR_WAIT_TIMEOUT) || (status == KVCL_INPROGRESS)) {
            return false;
        }
        running_.pop_back();
    }
    parts_.clear();
    return true;
}

} // namespace kvcl_nixl
