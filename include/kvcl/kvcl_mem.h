/*
 * Plain memory: registered or allocated once, exported to peers with rights, revoked at will. Caches (kvcl_cache.h)
 * register their own memory; this is for bytes that are no cache.
 */
#ifndef KVCL_MEM_H
#define KVCL_MEM_H

#include <kvcl/kvcl_comm.h>

KVCL_BEGIN_DECLS

typedef struct kvcl_mem  *kvcl_mem_h;  /* local */
typedef struct kvcl_rmem *kvcl_rmem_h; /* a peer's, imported */

/* The kind of memory: device memory is copied by its driver, never touched by the CPU. */
typedef enum kvcl_mem_kind {
    KVCL_MEM_HOST = 0,
    KVCL_MEM_CUDA = 1, /* memory of one CUDA device (cudaMalloc, a pool's, a framework's tensor) */
    KVCL_MEM_AUTO = 2  /* detected by the CUDA driver, if this process has loaded it; otherwise host memory */
} kvcl_mem_kind_t;

typedef enum kvcl_rights {
    KVCL_READ       = 1u << 0,
    KVCL_WRITE      = 1u << 1,
    KVCL_READ_WRITE = (1u << 0) | (1u << 1)
} kvcl_rights_t;

enum {
    KVCL_MEM_HUGE = 1u << 0, /* request huge pages, as always from 4 MiB on; a hint */
    KVCL_MEM_NUMA = 1u << 1, /* on numa_node while it has room; overrides KVCL_NUMA; a hint */
    KVCL_MEM_READ_ONLY = 1u << 2 /* peers only read it: kvcl_mem_export refuses KVCL_WRITE, and where the library
                                    allocated it, the kernel refuses every writable mapping by another process */
};

typedef struct kvcl_mem_params {
    size_t   size;      /* sizeof(kvcl_mem_params_t) */
    uint64_t flags;     /* KVCL_MEM_HUGE, KVCL_MEM_NUMA, KVCL_MEM_READ_ONLY */
    int      numa_node; /* with KVCL_MEM_NUMA: the operating system's node number */
} kvcl_mem_params_t;
#define KVCL_MEM_PARAMS_INIT {sizeof(kvcl_mem_params_t), 0, 0}

/**
 * Register memory the caller owns (malloc'ed, mmap'ed, a mapped file, device memory); it must outlive the handle. Peers
 * on this host reach it through this rank's CPU; they map memory of kvcl_mem_alloc(). Device memory holds no
 * signals (kvcl_signal_wait). Memory that an RDMA port cannot register (a limit of locked memory, ulimit -l) is served:
 * the log reports it once, with the number of bytes and the port. That holds for all memory, including a cache's.
 * @return KVCL_OK, KVCL_ERR_INVALID_PARAM (NULL, length 0, wraps around, not memory of that kind), KVCL_ERR_NO_MEMORY
 *         (also: an RDMA port cannot register it, and KVCL_PATH=rdma demands that), KVCL_ERR_UNSUPPORTED
 *         (KVCL_MEM_CUDA: not built in, or no driver or device here), KVCL_ERR_IO (the driver).
 */
KVCL_API kvcl_status_t kvcl_mem_register(kvcl_context_h ctx, void *addr, size_t len, kvcl_mem_kind_t kind,
                                         const kvcl_mem_params_t *params, kvcl_mem_h *mem_p) KVCL_MUST_CHECK;

/** Memory from the library, zeroed, mapped by peers on this host, registered with the network. Page aligned. From 4 MiB
 * on KVCL_NUMA determines its NUMA nodes. */
KVCL_API kvcl_status_t kvcl_mem_alloc(kvcl_context_h ctx, size_t len, const kvcl_mem_params_t *params,
                                      kvcl_mem_h *mem_p) KVCL_MUST_CHECK;

/** Map len bytes of a file from offset (page aligned), shared, and register them. len 0: to the file's end. */
KVCL_API kvcl_status_t kvcl_mem_file(kvcl_context_h ctx, const char *path, uint64_t offset, size_t len,
                                     kvcl_mem_h *mem_p) KVCL_MUST_CHECK;

KVCL_API void  *kvcl_mem_addr(kvcl_mem_h mem);
KVCL_API size_t kvcl_mem_len(kvcl_mem_h mem);
/** The kind, as detected; never KVCL_MEM_AUTO. */
KVCL_API kvcl_mem_kind_t kvcl_mem_kind_of(kvcl_mem_h mem);

/**
 * Revokes as kvcl_mem_revoke() does, and releases memory of kvcl_mem_alloc and kvcl_mem_file. Memory that the caller
 * registered is the caller's again, unless the revocation fails, or this rank still sends its bytes to a peer 5 s
 * later. Then the memory must not be freed, and memory of the library is not released; the log and kvcl_last_error()
 * say so, and why. A caller that must know calls kvcl_mem_revoke() first. NULL is allowed. Blocks.
 */
KVCL_API void kvcl_mem_free(kvcl_mem_h mem);

/**
 * A description of the memory that a peer imports, to be sent to it by any means. A process that holds it and has
 * proven the job's secret has the rights in it. They bind the library, on every path. The kernel enforces them on this
 * host only for memory of KVCL_MEM_READ_ONLY: other memory of kvcl_mem_alloc can be mapped for writing by any process
 * of the same user that looks for it in /proc, whether it was exported or not.
 * The description ends with a MAC under a key made from the job's secret and this context's identity. A process that
 * does not know the secret can neither change nor forge a description, and kvcl_rmem_import() refuses the description
 * of one rank as that of another. The MAC does not stop a rank of the job that lies on purpose: over RDMA it can make a
 * peer's UCX read a forged key.
 * @param [in,out] len_p  in: room at buf; out: bytes written, or needed with KVCL_ERR_TRUNCATED. At most 1 KiB.
 */
KVCL_API kvcl_status_t kvcl_mem_export(kvcl_mem_h mem, unsigned rights, void *buf, size_t *len_p) KVCL_MUST_CHECK;

/**
 * Take all exports back: operations that begin later fail with KVCL_ERR_ACCESS, and one in flight completes with it
 * or has finished before. The promise about bytes after the call has returned depends on the path:
 *   RDMA    No peer reads or writes the memory: no port has it registered any more, and the NIC refuses the old key.
 *           Two exceptions: memory that overlaps other registered memory may share its key, which stays valid until
 *           both are revoked or freed; and while a get or put of this rank uses the memory as its own buffer, the key
 *           stays valid until that has ended.
 *   served  (TCP; other paths where a peer has no better one) No byte is read or written: this rank moves the bytes.
 *   mapped  (shared memory, copies between processes of this host) The peer checks before and after its copy. A copy
 *           under way may still move bytes, and its operation fails. A process that bypasses this library and holds a
 *           mapping is not stopped.
 * The memory may be exported again, and is then registered again. Takes as long as the system needs to unregister it:
 * milliseconds for many GiB.
 * @return KVCL_OK; KVCL_ERR_NO_MEMORY: the exports are taken back, but the promise does not hold over RDMA, because a
 *         port could not be made to refuse the old key (a limit of locked memory, ulimit -l): peers that have it may
 *         still read and write the memory, which must not be freed. Call it again.
 */
KVCL_API kvcl_status_t kvcl_mem_revoke(kvcl_mem_h mem) KVCL_MUST_CHECK;

/** @return KVCL_OK, KVCL_ERR_PROTOCOL (not an export of that rank in this job, or changed), KVCL_ERR_UNKNOWN_RANK,
 *          KVCL_ERR_STALE. */
KVCL_API kvcl_status_t kvcl_rmem_import(kvcl_comm_h comm, int rank, const void *buf, size_t len, kvcl_rmem_h *rmem_p)
    KVCL_MUST_CHECK;
KVCL_API size_t kvcl_rmem_len(kvcl_rmem_h rmem);
KVCL_API void   kvcl_rmem_free(kvcl_rmem_h rmem);

/**
 * Wait until the 8-byte counter at offset in local memory is at least value. The signal of a put (kvcl_xfer.h) adds to
 * counters; the put's data is visible once its signal is. Blocks.
 * @return KVCL_OK, KVCL_ERR_WAIT_TIMEOUT after timeout_ns, KVCL_ERR_OUT_OF_RANGE (offset not 8-aligned or outside),
 *         KVCL_ERR_UNSUPPORTED (device memory), KVCL_ERR_INVALID_PARAM (KVCL_WAIT_FOREVER: nothing would end it).
 */
KVCL_API kvcl_status_t kvcl_signal_wait(kvcl_mem_h mem, uint64_t offset, uint64_t value, uint64_t timeout_ns)
    KVCL_MUST_CHECK;

KVCL_END_DECLS

#endif
