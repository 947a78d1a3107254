/*
 * One suite over every path. Cases are written once, as the actions of each rank (SPMD), and run with the ranks as
 * threads or as processes, over loop, shared memory and tcp, with a progress thread and without.
 *
 * The ranks of a run share one mapping: a store for boot (kvcl_oob_t), a fence, blobs to exchange. A failed check
 * prints rank, place and kvcl_last_error(), and ends the rank's process; the parent then ends the others. A run without
 * progress for CF_STUCK_S is killed and its case named. The seed is printed; TEST_SEED repeats it.
 */
#ifndef KVCL_TEST_CONFORM_H
#define KVCL_TEST_CONFORM_H

#include "base/clock.h"
#include "base/rand.h"
#include <kvcl/kvcl.h>

#include <stdbool.h>
#include <sys/types.h>

enum { CF_RANKS_MAX = 8, CF_BLOB_MAX = 2048, CF_STUCK_S = 100 };

typedef struct cf_shared cf_shared_t;

/* One rank, as seen by its case. */
typedef struct cf {
    int            rank;
    int            size;
    const char     *path;      /* "loop", "shm", "tcp" */
    bool           procs;
    bool           no_thread;
    bool           native;     /* CF_NATIVE */
    bool           overtakes;  /* CF_OVERTAKE */
    int            hosts;      /* machines: rank r is on machine r % hosts */
    kvcl_context_h ctx;
    kvcl_comm_h    world;
    kvcl_rand_t    rnd;        /* different on every rank; cf_same() is the same on all */
    cf_shared_t    *sh;
} cf_t;

/* The ranks next to this one, in a ring. */
static inline int cf_after(const cf_t *cf)
{
    return (cf->rank + 1) % cf->size;
}

static inline int cf_before(const cf_t *cf)
{
    return (cf->rank + cf->size - 1) % cf->size;
}

enum {
    CF_PROCS  = 1, /* only where ranks are processes */
    CF_MAPPED = 2, /* only over loop and shm */
    CF_SERVED = 4, /* only over tcp */
    CF_RACY   = 16, /* races for bytes on purpose: reuses memory while others copy it, or checks no bytes */
    CF_BY_GET = 256, /* only where bytes are got and put natively, over loop or RDMA */
    CF_FAULTS = 512, /* only over loop, by its faults */
    CF_RDMA   = 1024, /* only with --rdma */
    CF_MIXES  = 128, /* one rank's own requests race for the same memory, on two threads */
    CF_THREAD = 32, /* only with a progress thread */
    CF_THREE  = 64, /* only where ranks are processes, three or more */
    CF_DIES   = 8  /* a rank may end in it: the case has a world of its own */
};

typedef struct cf_case {
    const char *name;
    void       (*fn)(cf_t *cf);
    unsigned   flags;
} cf_case_t;

typedef struct cf_config {
    const char *path;
    bool       procs;
    int        size;
    uint64_t   init_flags; /* and CF_NATIVE, CF_LANE, CF_OVERTAKE, CF_APART */
} cf_config_t;

/* With loop: nothing is mapped. Blocks are transferred by get and put, which complete later; one to memory that was
 * unregistered ends all between the two ranks. */
#define CF_NATIVE (1ull << 63)
#define CF_LANE   (1ull << 62) /* tcp: all bytes use lanes from the first on (KVCL_LANE_MIN) */
/* With loop: nothing is mapped or native; bytes are served in small frames, which overtake each other. */
#define CF_OVERTAKE (1ull << 61)
#define CF_APART    (1ull << 60) /* auto: each process is as on a host of its own */

/* Runs every case in every configuration that it fits; argv: parts of names, "tcp/procs/...", to run only those. An
 * option before them replaces the configurations by processes over KVCL_PATH=auto and the user's KVCL_NET
 * (test/guest): --rdma[=RANKS][,nothread] as between hosts, which needs root, --auto[=RANKS][,nothread] within one.
 * --rdma[=RANKS][,nothread],machine=M/N:FILE: ranks M, M + N, ... of ranks on N machines that all share this file.
 * Ends with "N passed, N failed, N skipped". */
int cf_main(int argc, char **argv, const cf_config_t *configs, const cf_case_t *cases);

#define CF_CHECK(_cf, _cond)                                  \
    do {                                                      \
        if (!(_cond)) {                                       \
            cf_fail((_cf), __FILE__, __LINE__, #_cond, NULL); \
        }                                                     \
    } while (0)
#define CF_IS(_cf, _call, _status) cf_status((_cf), __FILE__, __LINE__, #_call, (_call), (_status))
#define CF_OK(_cf, _call)          CF_IS((_cf), (_call), KVCL_OK)

void cf_fail(cf_t *cf, const char *file, int line, const char *what, const char *more) __attribute__((noreturn));
void cf_status(cf_t *cf, const char *file, int line, const char *what, kvcl_status_t got, kvcl_status_t want);

/* A fence of all ranks, not made by KVCL; a context without a thread progresses meanwhile. */
void cf_fence(cf_t *cf);
/* CF_NATIVE, between two fences, one rank: gets and puts no longer complete, or do so again. */
void cf_stall(cf_t *cf, bool on);
/* Sends a signal to a rank, whose machine it may be that sends it. The rank is a process. */
void cf_kill(cf_t *cf, int rank, int sig);
/* Restart the CF_STUCK_S timer. A case that takes longer calls this now and then. */
void cf_alive(cf_t *cf);
/* Whether the build has this sanitizer ("": any). Sanitized builds are slow. */
bool cf_sanitizer(const char *which);
/* Makes the calling process one as on a host of its own, without shared memory; false: not allowed. */
bool cf_host_move(void);
/* Sleep while a context without a thread progresses. */
void cf_sleep_us(cf_t *cf, unsigned us);
/* Share this rank's bytes with the others: a fence follows, then cf_blob(). */
void        cf_give(cf_t *cf, const void *buf, size_t len);
const void *cf_blob(cf_t *cf, int rank, size_t *len_p);
pid_t       cf_pid(cf_t *cf, int rank); /* 0: on another machine */
bool        cf_may_read(cf_t *cf, int rank); /* does the kernel let this process read that one's memory? */
/* The same number on all ranks, and another one in each case. */
uint64_t cf_same(cf_t *cf);
/* The next word shared by all ranks, for cases that count together. */
_Atomic uint64_t *cf_word(cf_t *cf, unsigned i);

/* ---- bytes ---- */

/* Deterministic bytes of (seed, block). */
void cf_bytes(uint64_t seed, uint32_t block, void *buf, size_t len);
bool cf_bytes_are(uint64_t seed, uint32_t block, const void *buf, size_t len);

/* A cache with its memory: the library's (peers on this host map it) or malloc'ed (peers request bytes from the owner).
 * With CF_DEVICE set, device memory replaces malloc'ed memory (test/unit/fake_cuda.h): 1 on even ranks, 2 on odd ones,
 * 3 on all. */
typedef struct cf_cache {
    kvcl_cache_h h;
    void         **bases; /* malloc'ed or a device's, or NULL */
    size_t       n_bases;
    bool         device;
} cf_cache_t;

/* A cache over bases of exactly the length that the layout needs; NULL: the library's memory. */
kvcl_status_t cf_over(cf_t *cf, const char *name, const kvcl_layout_t *layout, void *const *bases, kvcl_mem_kind_t kind,
                      kvcl_cache_h *cache_p) KVCL_MUST_CHECK;
cf_cache_t cf_cache(cf_t *cf, const char *name, const kvcl_layout_t *layout, bool ours);
void       cf_cache_end(cf_cache_t *cache);
/* The address at which the case may access the bytes of a base. */
void       *cf_see(kvcl_cache_h cache, uint32_t base);
void       cf_fill(cf_t *cf, kvcl_cache_h cache, uint64_t seed);
void       cf_block_is(cf_t *cf, kvcl_cache_h cache, uint32_t block, uint64_t seed, uint32_t as_block);

/* Exported memory of every rank, this rank's included. */
typedef struct cf_mem {
    kvcl_mem_h  mine;
    char        *addr;  /* address for the case: a device's bytes are behind its addresses */
    void        *malloced;
    bool        device;
    kvcl_rmem_h of[CF_RANKS_MAX];
} cf_mem_t;

cf_mem_t cf_mem(cf_t *cf, size_t len, bool ours, unsigned rights);
void     cf_mem_end(cf_t *cf, cf_mem_t *mem);

static inline kvcl_sel_t cf_sel(const uint32_t *ids, size_t n)
{
    return (kvcl_sel_t){.blocks = ids, .n_blocks = n};
}

/* Wait for the end; a request that does not end in 20 s is a failure. */
kvcl_status_t cf_end(cf_t *cf, kvcl_req_h req);

#endif
