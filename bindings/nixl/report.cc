/*
 * Statuses and lines (report.hh). No state.
 */
#include "report.hh"

#include <cstdio>

namespace kvcl_nixl {

nixl_status_t to_nixl(kvcl_status_t status) noexcept
{
    switch (status) {
    case KVCL_OK:
        return NIXL_SUCCESS;
    case KVCL_INPROGRESS:
        return NIXL_IN_PROG;
    case KVCL_ERR_INVALID_PARAM:
    case KVCL_ERR_OUT_OF_RANGE:
    case KVCL_ERR_UNKNOWN_RANK:
        return NIXL_ERR_INVALID_PARAM;
    case KVCL_ERR_NOT_FOUND:
    case KVCL_ERR_NOT_REGISTERED:
        return NIXL_ERR_NOT_FOUND;
    case KVCL_ERR_ACCESS:
    case KVCL_ERR_AUTH:
        return NIXL_ERR_NOT_ALLOWED;
    case KVCL_ERR_PROTOCOL:
    case KVCL_ERR_VERSION:
    case KVCL_ERR_STALE:
        return NIXL_ERR_MISMATCH;
    case KVCL_ERR_CANCELED:
        return NIXL_ERR_CANCELED;
    case KVCL_ERR_RANK_FAILED:
    case KVCL_ERR_UNREACHABLE:
        return NIXL_ERR_REMOTE_DISCONNECT;
    case KVCL_ERR_UNSUPPORTED:
        return NIXL_ERR_NOT_SUPPORTED;
    default:
        return NIXL_ERR_BACKEND;
    }
}

std::string quoted(const std::string &name)
{
    constexpr size_t most = 64;
    std::string      text = "\"";

    for (size_t i = 0; (i < name.size()) && (i < most); ++i) {
        const unsigned char c = static_cast<unsigned char>(name[i]);
        text += ((c >= 0x20) && (c < 0x7f)) ? static_cast<char>(c) : '?';
    }
    return text + ((name.size() > most) ? "...\"" : "\"");
}

void report(const std::string &agent, const std::string &text)
{
    const std::string line = "kvcl: NIXL agent " + quoted(agent) + ": " + text + "\n";

    std::fputs(line.c_str(), stderr); /* one call: lines of several threads do not mix */
}

nixl_status_t report_failure(const std::string &agent, const std::string &what, kvcl_status_t status)
{
    report(agent, what + ": " + kvcl_last_error());
    return to_nixl(status);
}

} // namespace kvcl_nixl
