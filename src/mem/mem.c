/*
 * The public calls on plain memory: register, allocate, map a file, export, import, signals.
 */
#include "config.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fence.h"
#include "base/log.h"
#include "base/structs.h"
#include "core/comm.h"
#include "handle/handle.h"
#include "req/timeout.h"
#include "mem/rmem.h"
#include "weave/pieces.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MEM_FLAGS = KVCL_MEM_HUGE | KVCL_MEM_NUMA | KVCL_MEM_READ_ONLY, COPY_BATCH = 64 };

static kvcl_status_t check_params(kvcl_context_h ctx, const kvcl_mem_params_t *params, kvcl_mem_h *mem_p,
                                  kvcl_mem_params_t *out)
{
    kvcl_status_t status = KVCL_OK;

    memset(out, 0, sizeof(*out));
    out->size = sizeof(*out);

    status = kvcl_handle_check(ctx, KVCL_KIND_CONTEXT, "kvcl_mem");
    if (status != KVCL_OK) {
        return status;
    }
    if (mem_p == NULL) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_mem: mem_p is NULL");
    }
    if (params != NULL) {
        status = kvcl_struct_in(out, params, KVCL_UP_TO(kvcl_mem_params_t, flags), sizeof(*out), "kvcl_mem_params_t");
        if ((status == KVCL_OK) && ((out->flags & ~(uint64_t)MEM_FLAGS) != 0)) {
            status = kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_mem: unknown flags 0x%llx",
                               (unsigned long long)out->flags);
        }
    }
    return status;
}

static kvcl_status_t make(kvcl_context_h ctx, void *addr, size_t len, kvcl_mem_kind_t kind,
                          const kvcl_mem_params_t *params, kvcl_mem_h *mem_p)
{
    kvcl_mem_h    mem = kvcl_object_alloc(KVCL_KIND_MEM, sizeof(*mem));
    kvcl_status_t status;

    if (mem == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a memory handle");
    }
    mem->ctx = ctx;
    status   = (addr == NULL) ? kvcl_region_create(ctx, NULL, len, params, &mem->region)
                             : kvcl_region_create_kind(ctx, addr, len, kind, params, &mem->region);
    if (status != KVCL_OK) {
        kvcl_object_free(mem);
        return status;
    }
    kvcl_lock(ctx);
    kvcl_list_add_tail(kvcl_context_mems(ctx), &mem->link);
    kvcl_unlock(ctx);
    *mem_p = mem;
    return KVCL_OK;
}

kvcl_status_t kvcl_mem_register(kvcl_context_h ctx, void *addr, size_t len, kvcl_mem_kind_t kind,
                                const kvcl_mem_params_t *params, kvcl_mem_h *mem_p)
{
    kvcl_mem_params_t own;
    kvcl_status_t     status = check_params(ctx, params, mem_p, &own);

    if (status != KVCL_OK) {
        return status;
    }
    if (addr == NULL) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_mem_register: addr is NULL (kvcl_mem_alloc allocates)");
    }
    return make(ctx, addr, len, kind, &own, mem_p);
}

kvcl_status_t kvcl_mem_alloc(kvcl_context_h ctx, size_t len, const kvcl_mem_params_t *params, kvcl_mem_h *mem_p)
{
    kvcl_mem_params_t own;
    kvcl_status_t     status = check_params(ctx, params, mem_p, &own);

    return (status == KVCL_OK) ? make(ctx, NULL, len, KVCL_MEM_HOST, &own, mem_p) : status;
}

static kvcl_status_t map_file(int fd, const char *path, uint64_t offset, size_t *len, void **addr_p)
{
    struct stat st;

    if (fstat(fd, &st) != 0) {
        return kvcl_fail_errno(KVCL_ERR_IO, errno, "kvcl_mem_file: %s", path);
    }
    if (!S_ISREG(st.st_mode)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_mem_file: %s is not a regular file", path);
    }
    if ((uint64_t)st.st_size <= offset) {
        return kvcl_fail(KVCL_ERR_OUT_OF_RANGE, "kvcl_mem_file: %s has %lld bytes, offset is %llu", path,
                         (long long)st.st_size, (unsigned long long)offset);
    }
    if (*len == 0) {
        *len = (size_t)((uint64_t)st.st_size - offset);
    }
    if (*len > (uint64_t)st.st_size - offset) {
        return kvcl_fail(KVCL_ERR_OUT_OF_RANGE, "kvcl_mem_file: %s ends before byte %llu + %zu", path,
                         (unsigned long long)offset, *len);
    }
    *addr_p = mmap(NULL, *len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)offset);
    return (*addr_p != MAP_FAILED) ? KVCL_OK
                                   : kvcl_fail_errno(KVCL_ERR_IO, errno, "kvcl_mem_file: cannot map %s", path);
}

kvcl_status_t kvcl_mem_file(kvcl_context_h ctx, const char *path, uint64_t offset, size_t len, kvcl_mem_h *mem_p)
{
    kvcl_mem_params_t own;
    kvcl_status_t     status = check_params(ctx, NULL, mem_p, &own);
    void              *addr = NULL;
    int               fd;

    if (status != KVCL_OK) {
        return status;
    }
    if ((path == NULL) || ((offset % (uint64_t)sysconf(_SC_PAGESIZE)) != 0)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_mem_file: the path is NULL or the offset not page aligned");
    }
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        return kvcl_fail_errno(KVCL_ERR_IO, errno, "kvcl_mem_file: cannot open %s", path);
    }
    status = map_file(fd, path, offset, &len, &addr);
    close(fd);
    if (status != KVCL_OK) {
        return status;
    }
    status = make(ctx, addr, len, KVCL_MEM_HOST, NULL, mem_p);
    if (status != KVCL_OK) {
        munmap(addr, len);
        return status;
    }
    (*mem_p)->mapped     = addr;
    (*mem_p)->mapped_len = len;
    return KVCL_OK;
}

void *kvcl_mem_addr(kvcl_mem_h mem)
{
    return (kvcl_handle_check(mem, KVCL_KIND_MEM, "kvcl_mem_addr") == KVCL_OK) ? mem->region->addr : NULL;
}

size_t kvcl_mem_len(kvcl_mem_h mem)
{
    return (kvcl_handle_check(mem, KVCL_KIND_MEM, "kvcl_mem_len") == KVCL_OK) ? mem->region->len : 0;
}

kvcl_mem_kind_t kvcl_mem_kind_of(kvcl_mem_h mem)
{
    kvcl_status_t status = kvcl_handle_check(mem, KVCL_KIND_MEM, "kvcl_mem_kind_of");

    return (status == KVCL_OK) ? kvcl_copier_kind(mem->region->copier) : KVCL_MEM_AUTO;
}

void kvcl_mem_free(kvcl_mem_h mem)
{
    if (!kvcl_handle_may_free(mem, KVCL_KIND_MEM, "kvcl_mem_free")) {
        return;
    }
    kvcl_lock(mem->ctx);
    kvcl_list_del(&mem->link);
    kvcl_unlock(mem->ctx);
    if (kvcl_region_destroy(mem->region) && (mem->mapped != NULL)) {
        munmap(mem->mapped, mem->mapped_len);
    }
    kvcl_object_free(mem);
}

kvcl_status_t kvcl_mem_export(kvcl_mem_h mem, unsigned rights, void *buf, size_t *len_p)
{
    unsigned char packed[KVCL_REGION_DESC_MAX];
    kvcl_status_t status;
    size_t        len;

    status = kvcl_handle_check(mem, KVCL_KIND_MEM, "kvcl_mem_export");
    if (status != KVCL_OK) {
        return status;
    }
    if ((len_p == NULL) || (buf == NULL) || (rights == 0) || ((rights & ~3u) != 0)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_mem_export: NULL argument, or rights other than KVCL_READ, "
                         "KVCL_WRITE or both");
    }
    if ((rights & KVCL_WRITE) && mem->region->read_only) {
        return kvcl_fail(KVCL_ERR_ACCESS, "kvcl_mem_export: the memory was made with KVCL_MEM_READ_ONLY: export it "
                         "with KVCL_READ");
    }
    kvcl_lock(mem->ctx);
    if (mem->region->revoked) {
        status = kvcl_region_restore(mem->region);
    }
    len = kvcl_region_pack(mem->region, rights, packed, sizeof(packed));
    kvcl_unlock(mem->ctx);
    if (status != KVCL_OK) {
        return status;
    }
    if (len == 0) {
        return kvcl_fail(KVCL_ERR_INTERNAL, "kvcl_mem_export: the description does not fit");
    }
    if (len > *len_p) {
        status = kvcl_fail(KVCL_ERR_TRUNCATED, "kvcl_mem_export: it needs %zu bytes, there is room for %zu", len,
                           *len_p);
        *len_p = len;
        return status;
    }
    kvcl_copy_bytes(buf, packed, len);
    *len_p = len;
    return KVCL_OK;
}

kvcl_status_t kvcl_mem_revoke(kvcl_mem_h mem)
{
    kvcl_status_t status = kvcl_handle_check(mem, KVCL_KIND_MEM, "kvcl_mem_revoke");
    char          why[KVCL_ERROR_MAX / 2];

    if (status != KVCL_OK) {
        return status;
    }
    kvcl_lock(mem->ctx);
    status = kvcl_region_revoke(mem->region);
    kvcl_unlock(mem->ctx);
    if (status != KVCL_OK) {
        snprintf(why, sizeof(why), "%s", kvcl_last_error());
        return kvcl_fail(status, "kvcl_mem_revoke: %s; then call kvcl_mem_revoke again", why);
    }
    return KVCL_OK;
}

kvcl_status_t kvcl_rmem_import(kvcl_comm_h comm, int rank, const void *buf, size_t len, kvcl_rmem_h *rmem_p)
{
    kvcl_status_t status = kvcl_comm_check(comm, rank, "kvcl_rmem_import");
    kvcl_rmem_h   rmem;
    size_t        used;

    if (status != KVCL_OK) {
        return status;
    }
    if ((buf == NULL) || (rmem_p == NULL)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_rmem_import: NULL argument");
    }
    rmem = kvcl_object_alloc(KVCL_KIND_RMEM, sizeof(*rmem));
    if (rmem == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for an imported region");
    }
    rmem->ctx  = comm->ctx;
    rmem->self = kvcl_comm_self(comm, rank);
    status    = kvcl_region_parse(buf, len, &rmem->rregion, &used);
    if ((status == KVCL_OK) && (used != len)) {
        status = kvcl_fail(KVCL_ERR_PROTOCOL, "%zu bytes too many", len - used);
    }
    if (status == KVCL_OK) {
        status = kvcl_comm_peer(comm, rank, &rmem->peer);
    }
    if (status == KVCL_OK) {
        status = kvcl_region_authentic(rmem->peer, buf, len);
    }
    if ((status == KVCL_OK) && ((rmem->rregion.packed = malloc(len)) == NULL)) {
        status = kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for an imported region");
    }
    if (status != KVCL_OK) {
        char why[KVCL_ERROR_MAX / 2];
        snprintf(why, sizeof(why), "%s", kvcl_last_error());
        kvcl_object_free(rmem);
        return kvcl_fail(status, "kvcl_rmem_import of memory of rank %d: %s", rank, why);
    }
    kvcl_copy_bytes(rmem->rregion.packed, buf, len);
    rmem->rregion.packed_len = len;
    kvcl_lock(rmem->ctx);
    kvcl_list_add_tail(kvcl_context_rmems(rmem->ctx), &rmem->link);
    kvcl_unlock(rmem->ctx);
    *rmem_p = rmem;
    return KVCL_OK;
}

size_t kvcl_rmem_len(kvcl_rmem_h rmem)
{
    return (kvcl_handle_check(rmem, KVCL_KIND_RMEM, "kvcl_rmem_len") == KVCL_OK) ? (size_t)rmem->rregion.len : 0;
}

void kvcl_rmem_free(kvcl_rmem_h rmem)
{
    if (kvcl_handle_may_free(rmem, KVCL_KIND_RMEM, "kvcl_rmem_free")) {
        kvcl_lock(rmem->ctx);
        kvcl_list_del(&rmem->link);
        kvcl_rregion_close(&rmem->rregion);
        kvcl_unlock(rmem->ctx);
        kvcl_object_free(rmem);
    }
}

void kvcl_mems_fini(kvcl_context_h ctx)
{
    kvcl_list_t *link;
    unsigned    n;

    for (n = 0; (link = kvcl_list_first(kvcl_context_rmems(ctx))) != NULL; ++n) {
        kvcl_rmem_free(kvcl_container_of(link, struct kvcl_rmem, link));
    }
    if (n > 0) {
        kvcl_log_warn("%u imported memories were not freed before kvcl_finalize", n);
    }
    while ((link = kvcl_list_first(kvcl_context_mems(ctx))) != NULL) {
        kvcl_mem_h mem = kvcl_container_of(link, struct kvcl_mem, link);
        kvcl_log_warn("memory of %zu bytes was not freed before kvcl_finalize", mem->region->len);
        kvcl_mem_free(mem);
    }
}

kvcl_status_t kvcl_rmem_check(kvcl_rmem_h rmem, uint64_t offset, const void *buf, uint64_t len, unsigned right,
                              const char *call)
{
    kvcl_status_t status = kvcl_handle_check(rmem, KVCL_KIND_RMEM, call);

    if (status != KVCL_OK) {
        return status;
    }
    if ((buf == NULL) && (len != 0)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: the buffer is NULL", call);
    }
    if ((rmem->rregion.rights & right) == 0) {
        return kvcl_fail(KVCL_ERR_ACCESS, "%s: the memory was not exported with the right to %s", call,
                         (right == KVCL_READ) ? "read" : "write");
    }
    if ((offset > rmem->rregion.len) || (len > rmem->rregion.len - offset)) {
        return kvcl_fail(KVCL_ERR_OUT_OF_RANGE, "%s: bytes %llu + %llu of a region of %llu", call,
                         (unsigned long long)offset, (unsigned long long)len, (unsigned long long)rmem->rregion.len);
    }
    return KVCL_OK;
}

void kvcl_rmem_peer_lost(kvcl_rmem_h rmem)
{
    kvcl_assert_locked(rmem->ctx);
    atomic_store_explicit(&rmem->direct, NULL, memory_order_release);
}

static char *find_direct(kvcl_rmem_h rmem)
{
    const kvcl_rregion_t *region = &rmem->rregion;
    char                 *direct = NULL;

    kvcl_lock(rmem->ctx);
    if ((rmem->peer->state == KVCL_PEER_READY) && region->opened && (region->copier == NULL)) {
        direct = region->attr.map;
    }
    atomic_store_explicit(&rmem->direct, direct, memory_order_release);
    kvcl_unlock_quietly(rmem->ctx);
    return direct;
}

static void copy_pieces(char *there, const kvcl_vec_t *pieces, size_t n, bool push)
{
    kvcl_weave_piece_t batch[COPY_BATCH];
    size_t             i, k;

    for (i = 0; i < n; i += k) {
        for (k = 0; (k < COPY_BATCH) && (i + k < n); ++k) {
            void *theirs = there + pieces[i + k].offset, *mine = pieces[i + k].addr;
            batch[k]     = (kvcl_weave_piece_t){push ? theirs : mine, push ? mine : theirs, pieces[i + k].len};
        }
        kvcl_copy_pieces(batch, k, KVCL_AHEAD_NONE);
    }
}

/* With no bytes, a piece's address may be NULL. */
static void copy_all(char *there, const kvcl_vec_t *pieces, size_t n, uint64_t bytes, bool push)
{
    if ((n == 1) && (bytes > 0)) {
        void *theirs = there + pieces->offset;
        kvcl_copy_bytes(push ? theirs : pieces->addr, push ? pieces->addr : theirs, bytes);
    } else if (bytes > 0) {
        copy_pieces(there, pieces, n, push);
    }
}

bool kvcl_rmem_copy(kvcl_rmem_h rmem, const kvcl_vec_t *pieces, size_t n, uint64_t bytes, bool push, const char *call,
                    kvcl_status_t *status_p)
{
    kvcl_timing_t  timing  = kvcl_timing_sample(&rmem->ctx->latency, push ? KVCL_LATENCY_PUT : KVCL_LATENCY_GET);
    kvcl_rregion_t *region = &rmem->rregion;
    char           *there  = atomic_load_explicit(&rmem->direct, memory_order_acquire);

    if ((there == NULL) && ((there = find_direct(rmem)) == NULL)) {
        return false;
    }
    *status_p = KVCL_ERR_ACCESS;
    if (kvcl_rregion_live(region)) {
        copy_all(there, pieces, n, bytes, push);
        kvcl_fence(memory_order_seq_cst);
        *status_p = kvcl_rregion_live(region) ? KVCL_OK : KVCL_ERR_ACCESS;
        atomic_fetch_add_explicit(push ? &rmem->ctx->bytes_out : &rmem->ctx->bytes_in, bytes, memory_order_relaxed);
    }
    if (*status_p == KVCL_OK) {
        kvcl_timing_path(&timing, kvcl_mem_path_mapped(rmem->peer));
        kvcl_timing_end(&rmem->ctx->latency, &timing);
    } else {
        char who[48];
        kvcl_lock(rmem->ctx);
        kvcl_comm_peer_name(rmem->peer, who, sizeof(who));
        kvcl_unlock(rmem->ctx);
        (void)kvcl_fail(*status_p, "%s of %llu bytes at %llu of memory of %s: it revoked or freed the memory: import a "
                        "new export", call, (unsigned long long)bytes,
                        (unsigned long long)((n > 0) ? pieces->offset : 0), who);
    }
    return true;
}

typedef struct signal_wait {
    _Atomic uint64_t *word;
    uint64_t         value;
} signal_wait_t;

static bool signalled(void *arg)
{
    signal_wait_t *wait = arg;

    return atomic_load_explicit(wait->word, memory_order_acquire) >= wait->value;
}

kvcl_status_t kvcl_signal_wait(kvcl_mem_h mem, uint64_t offset, uint64_t value, uint64_t timeout_ns)
{
    kvcl_status_t status = kvcl_handle_check(mem, KVCL_KIND_MEM, "kvcl_signal_wait");
    signal_wait_t wait;
    char          what[96];

    if (status != KVCL_OK) {
        return status;
    }
    if (timeout_ns == KVCL_WAIT_FOREVER) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_signal_wait: KVCL_WAIT_FOREVER: a counter has no deadline that "
                         "would end the wait; give a time, or KVCL_WAIT_DEFAULT");
    }
    if (mem->region->copier != NULL) {
        return kvcl_fail(KVCL_ERR_UNSUPPORTED, "kvcl_signal_wait: signals are counted in host memory, not a device's");
    }
    if (((offset % 8) != 0) || (mem->region->len < 8) || (offset > mem->region->len - 8)) {
        return kvcl_fail(KVCL_ERR_OUT_OF_RANGE, "kvcl_signal_wait: offset %llu of a region of %zu bytes",
                         (unsigned long long)offset, mem->region->len);
    }
    wait.word  = (_Atomic uint64_t *)((char *)mem->region->addr + offset);
    wait.value = value;
    if (signalled(&wait) || kvcl_wait_for(mem->ctx, signalled, &wait, timeout_ns)) {
        return KVCL_OK;
    }
    snprintf(what, sizeof(what), "the counter at offset %llu, which is %llu, to reach %llu",
             (unsigned long long)offset, (unsigned long long)atomic_load(wait.word), (unsigned long long)value);
    return kvcl_wait_ended(mem->ctx, timeout_ns, "kvcl_signal_wait", what);
}
