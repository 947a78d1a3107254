/*
 * Local memory. With a data side, mem_alloc gets a posix shared-memory segment from UCX: mode 0600, unlinked at once,
 * opened by peers through /proc/PID/fd, released when the process ends. UCX writes zeros to all of it before it maps
 * it (about 0.4 s per GiB), so every page is present, and a full /dev/shm is an error here and no SIGBUS later.
 * Without a data side it is anonymous memory, reached by messages only.
 *
 * Invariant: memh != NULL exactly if peers have a native path to it.
 */
#include "config.h"
#include "ucx_glue/glue.h"

#include "base/checksum.h"
#include "base/error.h"
#include "base/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum {
    SHM_RESERVE = 4 << 20, /* kept free in /dev/shm for the queues of peers that connect later */
    FD_SEARCH   = 4096
};

static size_t page_up(size_t len)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    return (len + page - 1) & ~(page - 1);
}

/* Check the free space before UCX fills it and logs an error. */
static kvcl_status_t check_room(size_t len)
{
    struct statvfs fs;
    uint64_t       room;

    if (statvfs("/dev/shm", &fs) != 0) {
        return kvcl_fail_errno(KVCL_ERR_NO_MEMORY, errno, "ucx: /dev/shm");
    }
    room = (uint64_t)fs.f_bavail * fs.f_frsize;
    if ((fs.f_blocks > 0) && ((room < SHM_RESERVE) || (len > room - SHM_RESERVE))) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "ucx: %zu bytes of shared memory requested, /dev/shm has %llu free", len,
                         (unsigned long long)room);
    }
    return KVCL_OK;
}

/* Find the descriptor of the segment at addr. Peers check it before UCX opens it, see glue_rma.c. */
static void find_fd(glue_mem_t *mem)
{
    FILE          *maps = fopen("/proc/self/maps", "re");
    unsigned long from, to, inode = 0;
    char          line[512];
    struct stat   st;
    int           fd;

    mem->fd = -1;
    while ((maps != NULL) && (fgets(line, sizeof(line), maps) != NULL)) {
        if ((sscanf(line, "%lx-%lx %*s %*s %*s %lu", &from, &to, &inode) == 3) && ((uintptr_t)mem->addr >= from) &&
            ((uintptr_t)mem->addr < to)) {
            break;
        }
        inode = 0;
    }
    if (maps != NULL) {
        (void)fclose(maps);
    }
    for (fd = 0; (inode != 0) && (fd < FD_SEARCH) && (mem->fd < 0); ++fd) {
        snprintf(line, sizeof(line), "/proc/self/fd/%d", fd);
        if ((stat(line, &st) == 0) && S_ISREG(st.st_mode) && (st.st_ino == inode)) {
            mem->fd    = fd;
            mem->inode = inode;
        }
    }
}

static kvcl_status_t alloc_shared(glue_t *g, glue_mem_t *mem, size_t len)
{
    ucp_mem_map_params_t params = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS,
                                   .length     = len,
                                   .flags      = UCP_MEM_MAP_ALLOCATE};
    ucp_mem_attr_t       attr   = {.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS | UCP_MEM_ATTR_FIELD_LENGTH};
    kvcl_status_t        status = check_room(len);
    ucs_status_t         ucs;

    if (status != KVCL_OK) {
        return status;
    }
    ucs = ucp_mem_map(g->data.ctx, &params, &mem->memh);
    if (ucs != UCS_OK) {
        mem->memh = NULL;
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "ucx: %zu bytes of shared memory: %s", len, ucs_status_string(ucs));
    }
    ucs = ucp_mem_query(mem->memh, &attr);
    if ((ucs != UCS_OK) || (attr.length < len)) {
        (void)ucp_mem_unmap(g->data.ctx, mem->memh);
        return kvcl_fail(KVCL_ERR_INTERNAL, "ucx: ucp_mem_query: %s", ucs_status_string(ucs));
    }
    mem->addr   = attr.address;
    mem->shared = true;
    find_fd(mem);
    return KVCL_OK;
}

static kvcl_status_t alloc_private(glue_mem_t *mem, size_t len)
{
    void *addr = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (addr == MAP_FAILED) {
        return kvcl_fail_errno(KVCL_ERR_NO_MEMORY, errno, "ucx: no memory for a region of %zu bytes", len);
    }
    mem->addr   = addr;
    mem->mapped = len;
    return KVCL_OK;
}

/* Can a peer use a registration of the caller's memory? On shared memory only cma of 1.16 and later reads it. */
static bool registers(const glue_t *g)
{
    return (g->data.ctx != NULL) &&
           (kvcl_glue_list_has(g->plan.data_tls, "rc") || kvcl_glue_list_has(g->plan.data_tls, "cuda_ipc") ||
            (kvcl_glue_list_has(g->plan.data_tls, "cma") && (kvcl_glue_version() >= UCP_VERSION(1, 16))));
}

static kvcl_status_t register_range(glue_t *g, glue_mem_t *mem)
{
    ucp_mem_map_params_t params = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
                                   .address    = mem->addr,
                                   .length     = mem->len};
    ucs_status_t         ucs    = ucp_mem_map(g->data.ctx, &params, &mem->memh);

    if (ucs != UCS_OK) {
        mem->memh = NULL;
        return kvcl_fail(kvcl_glue_status(ucs), "ucx: cannot register %zu bytes at %p: %s", mem->len, mem->addr,
                         ucs_status_string(ucs));
    }
    return KVCL_OK;
}

kvcl_status_t kvcl_glue_mem_alloc(kvcl_xport_t *xport, size_t len, bool huge, void **addr_p, kvcl_xport_mem_t **mem_p)
{
    glue_t        *g     = glue_of(xport);
    size_t        mapped = page_up(len);
    kvcl_status_t status;
    glue_mem_t    *mem;

    if ((len == 0) || (mapped < len)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "ucx: cannot allocate %zu bytes", len);
    }
    mem = calloc(1, sizeof(*mem));
    if (mem == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "ucx: no memory for a region");
    }
    mem->super.xport = xport;
    mem->len         = len;
    status = kvcl_glue_list_has(g->plan.data_tls, "posix") ? alloc_shared(g, mem, mapped) : alloc_private(mem, mapped);
    if (status != KVCL_OK) {
        free(mem);
        return status;
    }
    if (!mem->shared && registers(g)) {
        status = register_range(g, mem);
        if (status != KVCL_OK) {
            munmap(mem->addr, mem->mapped);
            free(mem);
            return status;
        }
    }
    if (huge) {
        (void)madvise(mem->addr, mapped, MADV_HUGEPAGE);
    }
    *addr_p = mem->addr;
    *mem_p  = &mem->super;
    return KVCL_OK;
}

kvcl_status_t kvcl_glue_mem_register(kvcl_xport_t *xport, void *addr, size_t len, kvcl_xport_mem_t **mem_p)
{
    glue_t        *g   = glue_of(xport);
    glue_mem_t    *mem = calloc(1, sizeof(*mem));
    kvcl_status_t status;

    if (mem == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "ucx: no memory for a region");
    }
    mem->super.xport = xport;
    mem->addr        = addr;
    mem->len         = len;
    status           = registers(g) ? register_range(g, mem) : KVCL_OK;
    if (status != KVCL_OK) {
        free(mem);
        return status;
    }
    *mem_p = &mem->super;
    return KVCL_OK;
}

/* Of this library's transports only cuda_ipc reaches device memory; memory that it refuses is reached by messages. */
kvcl_status_t kvcl_glue_mem_register_device(kvcl_xport_t *xport, void *addr, size_t len, kvcl_xport_mem_t **mem_p)
{
    glue_t               *g     = glue_of(xport);
    ucp_mem_map_params_t params = {.field_mask  = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                                                  UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE,
                                   .address     = addr,
                                   .length      = len,
                                   .memory_type = UCS_MEMORY_TYPE_CUDA};
    glue_mem_t           *mem;
    ucs_status_t         ucs;

    if ((g->data.ctx == NULL) || !kvcl_glue_list_has(g->plan.data_tls, "cuda_ipc")) {
        return KVCL_ERR_UNSUPPORTED;
    }
    mem = calloc(1, sizeof(*mem));
    if (mem == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "ucx: no memory for a region");
    }
    mem->super.xport = xport;
    mem->addr        = addr;
    mem->len         = len;
    ucs              = ucp_mem_map(g->data.ctx, &params, &mem->memh);
    if (ucs != UCS_OK) {
        kvcl_log_info("ucx: device memory of %zu bytes at %p is reached by messages: %s", len, addr,
                      ucs_status_string(ucs));
        free(mem);
        return KVCL_ERR_UNSUPPORTED;
    }
    *mem_p = &mem->super;
    return KVCL_OK;
}

void kvcl_glue_mem_free(kvcl_xport_mem_t *super)
{
    glue_mem_t   *mem = kvcl_container_of(super, glue_mem_t, super);
    ucs_status_t ucs;

    if (mem->memh != NULL) {
        ucs = ucp_mem_unmap(glue_of(super->xport)->data.ctx, mem->memh);
        if (ucs != UCS_OK) {
            kvcl_log_warn("ucx: ucp_mem_unmap: %s", ucs_status_string(ucs));
        }
    }
    if (mem->mapped > 0) {
        munmap(mem->addr, mem->mapped);
    }
    free(mem);
}

kvcl_status_t kvcl_glue_mem_pack(kvcl_xport_mem_t *super, void *buf, size_t *len_p)
{
    glue_mem_t    *mem   = kvcl_container_of(super, glue_mem_t, super);
    glue_packed_t packed = {.magic = GLUE_PACKED_MAGIC, .addr = (uintptr_t)mem->addr, .len = mem->len};
    size_t        room   = *len_p;
    size_t        rkey_len;
    void          *rkey;
    ucs_status_t  ucs;

    *len_p = 0;
    if (mem->memh == NULL) {
        return KVCL_OK;
    }
    ucs = ucp_rkey_pack(glue_of(super->xport)->data.ctx, mem->memh, &rkey, &rkey_len);
    if (ucs != UCS_OK) {
        return kvcl_fail(kvcl_glue_status(ucs), "ucx: ucp_rkey_pack: %s", ucs_status_string(ucs));
    }
    if (sizeof(packed) + rkey_len > room) {
        ucp_rkey_buffer_release(rkey);
        return kvcl_fail(KVCL_ERR_NO_SPACE, "ucx: %zu bytes for a packed region, not %zu", room,
                         sizeof(packed) + rkey_len);
    }
    packed.flags    = mem->shared ? GLUE_PACKED_SHARED : 0;
    packed.inode    = mem->shared ? mem->inode : 0;
    packed.pid      = (int32_t)getpid();
    packed.fd       = mem->fd;
    packed.rkey_len = (uint32_t)rkey_len;
    memcpy(buf, &packed, sizeof(packed));
    memcpy((char *)buf + sizeof(packed), rkey, rkey_len);
    ucp_rkey_buffer_release(rkey);
    *len_p       = sizeof(packed) + rkey_len;
    packed.check = kvcl_check32((char *)buf + offsetof(glue_packed_t, addr), *len_p - offsetof(glue_packed_t, addr));
    memcpy(buf, &packed, sizeof(packed));
    return KVCL_OK;
}
