/*
 * The context and its door (context.hh).
 */
#include "context.hh"

#include <cstdlib>
#include <stdexcept>

namespace kvcl_nixl {

namespace {

[[noreturn]] void give_up(const char *what)
{
    throw std::runtime_error(std::string(what) + ": " + kvcl_last_error());
}

kvcl_context_h open(const Options &options)
{
    kvcl_init_params_t params = KVCL_INIT_PARAMS_INIT;
    kvcl_context_h     ctx    = nullptr;

    params.boot        = "self"; /* also in a process that a launcher has started: agents share no job */
    params.rank        = 0;
    params.nranks      = 1;
    params.flags       = KVCL_INIT_USER_SECRET;
    params.secret_file = options.secret_file.empty() ? nullptr : options.secret_file.c_str();
    params.path        = options.path.empty() ? nullptr : options.path.c_str();
    if (kvcl_init(&params, &ctx) != KVCL_OK) {
        give_up("no context");
    }
    return ctx;
}

std::string listen(kvcl_context_h ctx, kvcl_comm_h *door_p)
{
    std::string   text(4096, '\0');
    size_t        len    = 0;
    kvcl_status_t status = kvcl_context_listen(ctx, nullptr, text.data(), text.size(), &len, door_p);

    if (status == KVCL_ERR_TRUNCATED) {
        text.resize(len);
        status = kvcl_context_listen(ctx, nullptr, text.data(), text.size(), &len, door_p);
    }
    if (status != KVCL_OK) {
        give_up("the context cannot be connected to");
    }
    text.resize(len - 1); /* without the closing zero */
    return text;
}

} // namespace

Context::Context(const std::string &agent, const Options &options)
    : agent_(agent), options_(options), ctx_(open(options))
{
    try {
        address_ = listen(ctx_, &door_);
    } catch (...) {
        kvcl_finalize(ctx_);
        throw;
    }
}

Context::~Context()
{
    kvcl_comm_free(door_);
    kvcl_finalize(ctx_);
}

} // namespace kvcl_nixl
