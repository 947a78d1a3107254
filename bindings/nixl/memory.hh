/*
 * Registered memory of this agent, and the memory of other agents that their metadata describe. NIXL holds the handles
 * (nixlBackendMD); a transfer in flight holds what they stand for, so memory that NIXL forgets meanwhile stays valid
 * until the transfer has ended.
 */
#ifndef KVCL_NIXL_MEMORY_HH
#define KVCL_NIXL_MEMORY_HH

#include "peer.hh"

#include "backend/backend_engine.h"

#include <kvcl/kvcl_mem.h>

namespace kvcl_nixl {

/* Registered with KVCL; freed with its last holder. */
class Region {
public:
    Region(std::shared_ptr<const Context> context, kvcl_mem_h mem) : context_(std::move(context)), mem_(mem) {}
    ~Region() { kvcl_mem_free(mem_); }
    Region(const Region &)            = delete;
    Region &operator=(const Region &) = delete;

    kvcl_mem_h mem() const { return mem_; }

private:
    const std::shared_ptr<const Context> context_;
    const kvcl_mem_h                     mem_;
};

/* Memory of a peer: its description, imported once the peer is connected; freed with its last holder. */
class Window {
public:
    Window(std::shared_ptr<Peer> peer, uintptr_t base, size_t len, std::string text)
        : peer_(std::move(peer)), base_(base), len_(len), text_(std::move(text)) {}
    ~Window() { kvcl_rmem_free(rmem_); }
    Window(const Window &)            = delete;
    Window &operator=(const Window &) = delete;

    /** Import it, unless that is done. The peer is connected. Any thread. why: the sentence of a failure. */
    kvcl_status_t open(std::string &why);
    /** After open(). */
    kvcl_rmem_h rmem() const { return rmem_; }
    /** Its first byte, as its owner counts. */
    uintptr_t base() const { return base_; }

private:
    const std::shared_ptr<Peer> peer_; /* outlives rmem */
    const uintptr_t             base_;
    const size_t                len_;
    const std::string           text_; /* hostile until imported */
    std::mutex                  mutex_;
    std::atomic<kvcl_rmem_h>    rmem_ = nullptr;
};

struct LocalMemory : public nixlBackendMD {
    explicit LocalMemory(std::shared_ptr<Region> held) : nixlBackendMD(true), region(std::move(held)) {}
    const std::shared_ptr<Region> region;
};

struct RemoteMemory : public nixlBackendMD {
    explicit RemoteMemory(std::shared_ptr<Window> held) : nixlBackendMD(false), window(std::move(held)) {}
    const std::shared_ptr<Window> window;
};

nixl_status_t register_memory(const std::shared_ptr<const Context> &context, const nixlBlobDesc &mem, nixl_mem_t kind,
                              nixlBackendMD *&out);

/** What peers import. */
nixl_status_t describe_memory(const Context &context, const LocalMemory &memory, std::string &text);

/** text: of the owner's describe_memory(), hostile until imported; base, len: its place there, as its metadata say.
 * Where the peer is not connected yet, the first transfer imports it, and fails where the text is wrong. */
nixl_status_t import_memory(const std::shared_ptr<Peer> &peer, const std::string &text, uintptr_t base, size_t len,
                            nixlBackendMD *&out);

/** No peer reads or writes the memory once it has returned (kvcl_mem_revoke). Frees the handle. */
nixl_status_t release_memory(const Context &context, LocalMemory *memory);

} // namespace kvcl_nixl

#endif
