/*
 * Registration and import of memory (memory.hh). No state.
 */
#include "memory.hh"

#include "report.hh"

#include <cstdio>

namespace kvcl_nixl {

namespace {

std::string range(uintptr_t addr, size_t len)
{
    char text[64];

    std::snprintf(text, sizeof(text), "%zu bytes at 0x%zx", len, static_cast<size_t>(addr));
    return text;
}

} // namespace

nixl_status_t register_memory(const std::shared_ptr<const Context> &context, const nixlBlobDesc &mem, nixl_mem_t kind,
                              nixlBackendMD *&out)
{
    kvcl_mem_h handle = nullptr;

    if ((kind != DRAM_SEG) && (kind != VRAM_SEG)) {
        report(context->agent(), "files, blocks and objects cannot be registered: only DRAM and VRAM");
        return NIXL_ERR_NOT_SUPPORTED;
    }
    const kvcl_status_t status =
        kvcl_mem_register(context->handle(), reinterpret_cast<void *>(mem.addr), mem.len,
                          (kind == VRAM_SEG) ? KVCL_MEM_CUDA : KVCL_MEM_HOST, nullptr, &handle);

    if (status != KVCL_OK) {
        return report_failure(context->agent(), range(mem.addr, mem.len) + " cannot be registered", status);
    }
    out = new LocalMemory(std::make_shared<Region>(context, handle));
    return NIXL_SUCCESS;
}

nixl_status_t describe_memory(const Context &context, const LocalMemory &memory, std::string &text)
{
    size_t len = 1024; /* kvcl_mem_export needs no more */

    text.resize(len);
    const kvcl_status_t status = kvcl_mem_export(memory.region->mem(), KVCL_READ_WRITE, text.data(), &len);

    if (status != KVCL_OK) {
        text.clear();
        return report_failure(context.agent(), "memory cannot be described", status);
    }
    text.resize(len);
    return NIXL_SUCCESS;
}

kvcl_status_t Window::open(std::string &why)
{
    const std::lock_guard<std::mutex> guard(mutex_);
    kvcl_rmem_h                       rmem = nullptr;

    if (rmem_ != nullptr) {
        return KVCL_OK;
    }
    const kvcl_status_t status = kvcl_rmem_import(peer_->comm(), 0, text_.data(), text_.size(), &rmem);

    why = "memory of agent " + quoted(peer_->name()) + ", " + range(base_, len_) + ": ";
    if (status != KVCL_OK) {
        why += kvcl_last_error();
        return status;
    }
    if (kvcl_rmem_len(rmem) != len_) {
        why += "its description is of " + std::to_string(kvcl_rmem_len(rmem)) +
               " bytes: the metadata are those of other memory, or were changed";
        kvcl_rmem_free(rmem);
        return KVCL_ERR_PROTOCOL;
    }
    rmem_ = rmem;
    return KVCL_OK;
}

nixl_status_t import_memory(const std::shared_ptr<Peer> &peer, const std::string &text, uintptr_t base, size_t len,
                            nixlBackendMD *&out)
{
    auto          window = std::make_shared<Window>(peer, base, len, text);
    kvcl_status_t status = peer->state();
    std::string   why    = (status < 0) ? peer->why() : std::string();

    if (status == KVCL_OK) {
        status = window->open(why);
    }
    if (status < 0) {
        report(peer->context().agent(), why);
        return to_nixl(status);
    }
    out = new RemoteMemory(std::move(window));
    return NIXL_SUCCESS;
}

nixl_status_t release_memory(const Context &context, LocalMemory *memory)
{
    const kvcl_status_t status = kvcl_mem_revoke(memory->region->mem());
    const nixl_status_t result =
        (status == KVCL_OK) ? NIXL_SUCCESS : report_failure(context.agent(), "memory is not revoked", status);

    delete memory;
    return result;
}

} // namespace kvcl_nixl
