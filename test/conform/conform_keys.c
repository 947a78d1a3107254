/*
 * Memory that its owner revokes, frees or makes again while peers read and write it: once the call has returned, no
 * byte is read or written any more, and no rank fails. Where the network has the memory's key, the key is revoked.
 *
 * The rounds follow TEST_RING: CF_ROUNDS=N sets another number.
 */
#include "conform.h"
#include "ucx_glue/glue.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static bool all_are(const char *buf, char c, size_t len)
{
    return (buf[0] == c) && (memcmp(buf, buf + 1, len - 1) == 0);
}

static unsigned rounds(unsigned gate, unsigned night)
{
    const char *env  = getenv("CF_ROUNDS");
    const char *ring = getenv("TEST_RING");
    bool       late  = (ring != NULL) && (strcmp(ring, "night") == 0);

    return (env != NULL) ? (unsigned)strtoul(env, NULL, 0) : late ? night : gate;
}

/* Revoked or freed before the access, or meanwhile. */
static bool is_gone(kvcl_status_t status)
{
    return (status == KVCL_ERR_ACCESS) || (status == KVCL_ERR_NOT_REGISTERED) || (status == KVCL_ERR_STALE);
}

static void add_native(void *arg, const kvcl_latency_info_t *info)
{
    *(uint64_t *)arg += ((strcmp(info->op, "get") == 0) && (strcmp(info->path, "native") == 0)) ? info->count : 0;
}

static uint64_t native_gets(cf_t *cf)
{
    uint64_t n = 0;

    CF_OK(cf, kvcl_query_latency(cf->ctx, add_native, &n));
    return n;
}

static kvcl_req_h post_get(cf_t *cf, int rank, const char *name, kvcl_cache_h to, const uint32_t *ids, size_t n)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_sel_t         sel    = cf_sel(ids, n);
    kvcl_req_h         req;

    params.remote_cache = name;
    CF_OK(cf, kvcl_get(cf->world, rank, to, &sel, &sel, &params, &req));
    return req;
}

/* Only where the memory is not mapped: a rank that has it mapped checks the control word after its copy. Two ranks of
 * one machine map each other's (conform.h: hosts). */
static bool is_fenced(const cf_t *cf, bool ours)
{
    bool mapped = ours && (cf->hosts > 1) && (cf->size > cf->hosts);

    return (cf->native && !mapped) || cf->overtakes || (strcmp(cf->path, "tcp") == 0) ||
           (!ours && (strcmp(cf->path, "shm") == 0));
}

/* ---------------------------------------------------------------- a cache that is made again and again */

enum { CHURN_BLOCKS = 4, CHURN_BYTES = 20000, CHURN_ROUNDS = 100 };

/* The block's bytes tell in which round its cache was made. */
static void fill_round(char *memory, uint64_t seed, unsigned round)
{
    uint32_t b;

    for (b = 0; b < CHURN_BLOCKS; ++b) {
        memcpy(memory + (size_t)b * CHURN_BYTES, &round, sizeof(round));
        cf_bytes(seed + round, b, memory + (size_t)b * CHURN_BYTES + sizeof(round), CHURN_BYTES - sizeof(round));
    }
}

/* @return the round whose bytes they are. */
static unsigned round_of(cf_t *cf, const char *memory, uint64_t seed)
{
    unsigned round, other;
    uint32_t b;

    memcpy(&round, memory, sizeof(round));
    for (b = 0; b < CHURN_BLOCKS; ++b) {
        const char *block = memory + (size_t)b * CHURN_BYTES;
        memcpy(&other, block, sizeof(other));
        CF_CHECK(cf, other == round);
        CF_CHECK(cf, cf_bytes_are(seed + round, b, block + sizeof(round), CHURN_BYTES - sizeof(round)));
    }
    return round;
}

static void churn_owner(cf_t *cf, const kvcl_layout_t *layout, char *memory, _Atomic uint64_t *made)
{
    void         *base = memory;
    kvcl_cache_h cache;
    unsigned     round, n = rounds(CHURN_ROUNDS, CHURN_ROUNDS);

    for (round = 1; round <= n; ++round) {
        fill_round(memory, cf_same(cf), round);
        CF_OK(cf, cf_over(cf, "churn", layout, &base, KVCL_MEM_HOST, &cache));
        atomic_store(made, round);
        while ((atomic_load(cf_word(cf, 1)) < round) && (round % 4 == 0)) { /* a get between machines has found this */
            cf_sleep_us(cf, 20);
        }
        cf_sleep_us(cf, (unsigned)kvcl_rand_below(&cf->rnd, 500));
        kvcl_cache_destroy(cache);
        memset(memory, 0xee, (size_t)CHURN_BLOCKS * CHURN_BYTES); /* the caller's again */
        cf_alive(cf);
    }
    atomic_store(cf_word(cf, 2), 1);
}

static void churn_reader(cf_t *cf, cf_cache_t *here, _Atomic uint64_t *made)
{
    static const uint32_t ids[CHURN_BLOCKS] = {0, 1, 2, 3};
    const bool            near = (cf->hosts > 1) && (cf->rank % cf->hosts == 0); /* on the owner's machine */
    uint64_t              before, found, hits = 0, gone = 0;
    kvcl_status_t         status;

    while (atomic_load(cf_word(cf, 2)) == 0) {
        before = atomic_load(made);
        status = cf_end(cf, post_get(cf, 0, "churn", here->h, ids, CHURN_BLOCKS));
        CF_CHECK(cf, (status == KVCL_OK) || is_gone(status));
        if (status != KVCL_OK) {
            ++gone;
            continue;
        }
        found = round_of(cf, cf_see(here->h, 0), cf_same(cf));
        CF_CHECK(cf, (found >= before) && (found <= atomic_load(made) + 1)); /* made is set after the cache is there */
        while (!near && ((before = atomic_load(cf_word(cf, 1))) < found)) {
            (void)atomic_compare_exchange_strong(cf_word(cf, 1), &before, found);
        }
        ++hits;
    }
    printf("     churn over %s: rank %d: %" PRIu64 " gets found a cache, %" PRIu64 " none\n", cf->path, cf->rank, hits,
           gone);
    fflush(stdout);
}

/* A cache comes and goes under one name while all others get it: each get has the bytes of one life of the cache, or
 * finds none. No rank fails, and at the end gets are native where they can be. */
static void churn(cf_t *cf)
{
    static const uint32_t ids[CHURN_BLOCKS] = {0, 1, 2, 3};
    kvcl_layout_t layout = KVCL_LAYOUT_BYTES(CHURN_BLOCKS, CHURN_BYTES);
    char          *memory = malloc((size_t)CHURN_BLOCKS * CHURN_BYTES);
    void          *base   = memory;
    cf_cache_t    here    = cf_cache(cf, "here", &layout, true);
    kvcl_cache_h  last    = NULL;
    unsigned      last_round = rounds(CHURN_ROUNDS, CHURN_ROUNDS) + 1, i;
    uint64_t      native, since;

    for (i = 0; i < 3; ++i) {
        atomic_store(cf_word(cf, i), 0);
    }
    cf_fence(cf);
    if (cf->rank == 0) {
        churn_owner(cf, &layout, memory, cf_word(cf, 0));
        fill_round(memory, cf_same(cf), last_round);
        CF_OK(cf, cf_over(cf, "churn", &layout, &base, KVCL_MEM_HOST, &last));
    } else {
        churn_reader(cf, &here, cf_word(cf, 0));
    }
    cf_fence(cf);
    native = native_gets(cf);
    since  = kvcl_now_ns();
    do { /* a connection that has failed often is opened again after a while */
        if (cf->rank != 0) {
            CF_OK(cf, cf_end(cf, post_get(cf, 0, "churn", here.h, ids, CHURN_BLOCKS)));
            CF_CHECK(cf, round_of(cf, cf_see(here.h, 0), cf_same(cf)) == last_round);
        }
    } while (cf->native && (cf->rank != 0) && (native_gets(cf) == native));
    if (cf->native && (cf->rank != 0)) {
        printf("     churn over %s: rank %d: native again within %.3f s\n", cf->path, cf->rank,
               (double)(kvcl_now_ns() - since) * 1e-9);
        fflush(stdout);
    }
    cf_fence(cf);
    kvcl_cache_destroy(last);
    cf_cache_end(&here);
    free(memory);
}

/* ---------------------------------------------------------------- the owner takes memory back from writers */

enum { PUT_BYTES = 1 << 20, PUTS = 4 };

typedef struct target {
    kvcl_mem_h  mem;   /* of the owner */
    char        *addr;
    void        *malloced;
    kvcl_rmem_h rmem;  /* of all others */
} target_t;

/* The owner exports, the others import. */
static void share(cf_t *cf, int owner, target_t *t)
{
    char       desc[1024];
    const void *blob;
    size_t     len = sizeof(desc);

    if (cf->rank == owner) {
        CF_OK(cf, kvcl_mem_export(t->mem, KVCL_READ_WRITE, desc, &len));
        cf_give(cf, desc, len);
    }
    cf_fence(cf);
    if (cf->rank != owner) {
        blob = cf_blob(cf, owner, &len);
        CF_OK(cf, kvcl_rmem_import(cf->world, owner, blob, len, &t->rmem));
    }
    cf_fence(cf);
}

static target_t open_target(cf_t *cf, int owner, bool ours)
{
    target_t t = {0};

    if (cf->rank == owner) {
        if (ours) {
            CF_OK(cf, kvcl_mem_alloc(cf->ctx, PUT_BYTES, NULL, &t.mem));
        } else {
            t.malloced = malloc(PUT_BYTES);
            CF_OK(cf, kvcl_mem_register(cf->ctx, t.malloced, PUT_BYTES, KVCL_MEM_HOST, NULL, &t.mem));
        }
        t.addr = kvcl_mem_addr(t.mem);
        memset(t.addr, 1, PUT_BYTES);
    }
    share(cf, owner, &t);
    return t;
}

/* Puts, several at a time, until the owner's revoke or free refuses them. */
static void write_on(cf_t *cf, const target_t *t, const char *buf, _Atomic uint64_t *gone)
{
    kvcl_req_h    reqs[PUTS] = {NULL};
    uint64_t      late[PUTS] = {0};
    bool          refused    = false;
    kvcl_status_t status;
    unsigned      at, left = PUTS;

    for (at = 0; left > 0; at = (at + 1) % PUTS) {
        if (reqs[at] != NULL) {
            status   = cf_end(cf, reqs[at]);
            reqs[at] = NULL;
            CF_CHECK(cf, (status == KVCL_OK) || is_gone(status));
            CF_CHECK(cf, (late[at] == 0) || (status != KVCL_OK)); /* it began when the memory was gone */
            refused = refused || (status != KVCL_OK);
        }
        if (refused) {
            --left;
            continue;
        }
        late[at] = atomic_load(gone);
        CF_OK(cf, kvcl_put_bytes(t->rmem, 0, buf, PUT_BYTES, NULL, &reqs[at]));
    }
}

static void await_bytes(cf_t *cf, const char *addr)
{
    const volatile char *last = addr + PUT_BYTES - 1;

    while (*last != 2) {
        cf_sleep_us(cf, 20);
    }
    cf_sleep_us(cf, (unsigned)kvcl_rand_below(&cf->rnd, 2000));
}

static size_t late_bytes(const char *addr)
{
    size_t i, n = 0;

    for (i = 0; i < PUT_BYTES; ++i) {
        n += (addr[i] != 3);
    }
    return n;
}

/* After a revoke the memory may be exported again, and written. */
static void again(cf_t *cf, int owner, target_t *t, const char *buf)
{
    kvcl_req_h req;

    kvcl_rmem_free(t->rmem);
    t->rmem = NULL;
    share(cf, owner, t);
    if (cf->rank == (owner + 1) % cf->size) {
        CF_OK(cf, kvcl_put_bytes(t->rmem, 0, buf, PUT_BYTES, NULL, &req));
        CF_OK(cf, cf_end(cf, req));
    }
    cf_fence(cf);
    CF_CHECK(cf, (cf->rank != owner) || all_are(t->addr, 2, PUT_BYTES));
}

/* @return the bytes that arrived late. */
static uint64_t revoke_round(cf_t *cf, int owner, bool ours, bool frees)
{
    _Atomic uint64_t *gone = cf_word(cf, 0);
    char             *buf  = malloc(PUT_BYTES);
    target_t         t     = open_target(cf, owner, ours);
    uint64_t         late  = 0;

    memset(buf, 2, PUT_BYTES);
    atomic_store(gone, 0);
    cf_fence(cf);
    if (cf->rank == owner) {
        await_bytes(cf, t.addr);
        if (frees) {
            kvcl_mem_free(t.mem);
            t.mem = NULL;
        } else {
            CF_OK(cf, kvcl_mem_revoke(t.mem));
        }
        memset(t.addr, 3, PUT_BYTES);
        atomic_store(gone, 1);
    } else {
        write_on(cf, &t, buf, gone);
    }
    cf_fence(cf); /* the puts have ended */
    if (cf->rank == owner) {
        late = is_fenced(cf, ours) ? late_bytes(t.addr) : 0;
    }
    cf_fence(cf);
    if (!frees) {
        again(cf, owner, &t, buf);
    }
    cf_fence(cf);
    kvcl_rmem_free(t.rmem);
    kvcl_mem_free(t.mem);
    free(t.malloced);
    free(buf);
    return late;
}

/* Every rank in turn revokes or frees memory that all others are writing, and overwrites it: no byte arrives later. */
static void revoke_puts(cf_t *cf)
{
    unsigned i, n = rounds(30, 1000);
    uint64_t late, bad = 0;

    for (i = 0; i < n; ++i) {
        late = revoke_round(cf, (int)(i % (unsigned)cf->size), i % 3 == 2, i % 3 == 1);
        bad += (late > 0);
        if (late > 0) {
            fprintf(stderr, "rank %d: round %u, %s: %" PRIu64 " bytes arrived late\n", cf->rank, i,
                    (i % 3 == 1) ? "free" : "revoke", late);
        }
        cf_alive(cf);
    }
    CF_CHECK(cf, bad == 0);
}

/* ---------------------------------------------------------------- memory that is freed under gets */

/* A get that ends well has the bytes of before; its owner writes others as soon as the memory is its own again. */
static void read_on(cf_t *cf, const target_t *t, _Atomic uint64_t *gone)
{
    char          *buf = malloc((size_t)PUTS * PUT_BYTES);
    kvcl_req_h    reqs[PUTS];
    kvcl_status_t status = KVCL_OK, one;
    uint64_t      late;
    unsigned      i;

    while (status == KVCL_OK) {
        late = atomic_load(gone);
        for (i = 0; i < PUTS; ++i) {
            CF_OK(cf, kvcl_get_bytes(t->rmem, 0, buf + (size_t)i * PUT_BYTES, PUT_BYTES, NULL, &reqs[i]));
        }
        for (i = 0; i < PUTS; ++i) {
            one = cf_end(cf, reqs[i]);
            CF_CHECK(cf, (one == KVCL_OK) || is_gone(one));
            CF_CHECK(cf, (one != KVCL_OK) || ((late == 0) && all_are(buf + (size_t)i * PUT_BYTES, 1, PUT_BYTES)));
            status = (status == KVCL_OK) ? one : status;
        }
        (void)atomic_fetch_add(cf_word(cf, 1), 1);
    }
    free(buf);
}

static void free_gets(cf_t *cf)
{
    unsigned i, n = rounds(20, 200);

    for (i = 0; i < n; ++i) {
        int      owner = (int)(i % (unsigned)cf->size);
        target_t t     = open_target(cf, owner, false);
        atomic_store(cf_word(cf, 0), 0);
        atomic_store(cf_word(cf, 1), 0);
        cf_fence(cf);
        if (cf->rank == owner) {
            while (atomic_load(cf_word(cf, 1)) < 2) {
                cf_sleep_us(cf, 20);
            }
            cf_sleep_us(cf, (unsigned)kvcl_rand_below(&cf->rnd, 1000));
            kvcl_mem_free(t.mem);
            memset(t.addr, 3, PUT_BYTES);
            atomic_store(cf_word(cf, 0), 1);
        } else {
            read_on(cf, &t, cf_word(cf, 0));
        }
        cf_fence(cf);
        kvcl_rmem_free(t.rmem);
        free(t.malloced);
        cf_alive(cf);
    }
}

/* ---------------------------------------------------------------- two caches of one owner */

/* One of two caches is destroyed while peers have descriptions of both, twice: gets of the other end well. */
static void stale_twice(cf_t *cf)
{
    enum { GETS = 8, BLOCKS = 8, BYTES = 50000 };
    static const uint32_t ids[BLOCKS] = {0, 1, 2, 3, 4, 5, 6, 7};
    kvcl_layout_t layout = KVCL_LAYOUT_BYTES(BLOCKS, BYTES);
    int           from = (cf->rank + 1) % cf->size;
    uint64_t      seed = cf_same(cf);
    cf_cache_t    here = cf_cache(cf, "here", &layout, true), kept = cf_cache(cf, "kept", &layout, false), gone;
    kvcl_req_h    reqs[GETS];
    unsigned      round, i;

    cf_fill(cf, kept.h, seed + (uint64_t)cf->rank);
    for (round = 0; round < rounds(10, 50); ++round) {
        gone = cf_cache(cf, "gone", &layout, (round & 1) != 0);
        cf_fence(cf);
        CF_OK(cf, cf_end(cf, post_get(cf, from, "gone", here.h, ids, BLOCKS)));
        CF_OK(cf, cf_end(cf, post_get(cf, from, "kept", here.h, ids, BLOCKS)));
        cf_fence(cf);
        cf_cache_end(&gone);
        cf_fence(cf);
        for (i = 0; i < GETS; ++i) {
            reqs[i] = post_get(cf, from, (i & 1) ? "gone" : "kept", here.h, ids, BLOCKS);
        }
        for (i = 0; i < GETS; ++i) {
            CF_IS(cf, cf_end(cf, reqs[i]), (i & 1) ? KVCL_ERR_NOT_REGISTERED : KVCL_OK);
        }
        CF_OK(cf, cf_end(cf, post_get(cf, from, "kept", here.h, ids, BLOCKS)));
        cf_block_is(cf, here.h, BLOCKS - 1, seed + (uint64_t)from, BLOCKS - 1);
        cf_fence(cf); /* the next one is not made before */
        cf_alive(cf);
    }
    cf_cache_end(&here);
    cf_cache_end(&kept);
}

/* ---------------------------------------------------------------- locked memory is limited */

/* What is kept free for UCX, for each port (ucx_glue/glue_locked.c), and room for a target and the control page, which
 * each of two ports registers. */
enum { PORT_KIB = 160 << 10, ROOM_KIB = 3 << 10 };

/* One or two: KVCL_NET names each with its number: "rxe0:1,rxe1:1". */
static size_t n_ports(void)
{
    const char *net = getenv("KVCL_NET");

    return ((net != NULL) && (strchr(net, ':') != strrchr(net, ':'))) ? 2 : 1;
}

/* No more may be locked than that. SIZE_MAX: any amount. */
static void limit_locks(cf_t *cf, size_t kib)
{
    struct rlimit limit;

    CF_CHECK(cf, getrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    limit.rlim_cur = (kib == SIZE_MAX) ? limit.rlim_max : kib * 1024;
    CF_CHECK(cf, setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
}

/* Memory that fits is registered, and it is not any more once it is freed. */
static void lock_and_free(cf_t *cf)
{
    char       *buf   = malloc(PUT_BYTES);
    uint64_t   before = kvcl_glue_pinned_bytes();
    kvcl_mem_h mem;

    CF_OK(cf, kvcl_mem_register(cf->ctx, buf, PUT_BYTES, KVCL_MEM_HOST, NULL, &mem));
    CF_CHECK(cf, kvcl_glue_pinned_bytes() >= before + PUT_BYTES);
    limit_locks(cf, kvcl_glue_pinned_bytes() / 1024); /* its key is taken although no page more can be registered */
    kvcl_mem_free(mem);
    CF_CHECK(cf, kvcl_glue_pinned_bytes() < before + PUT_BYTES);
    free(buf);
}

/* A second context, alone, that demands RDMA. */
static void demand_rdma(cf_t *cf, void *big, size_t len)
{
    kvcl_init_params_t params = KVCL_INIT_PARAMS_INIT;
    kvcl_context_h     ctx;
    kvcl_mem_h         mem;

    params.path = "rdma";
    CF_OK(cf, kvcl_init(&params, &ctx));
    limit_locks(cf, 2 * n_ports() * PORT_KIB + ROOM_KIB);
    CF_IS(cf, kvcl_mem_register(ctx, big, len, KVCL_MEM_HOST, NULL, &mem), KVCL_ERR_NO_MEMORY);
    CF_CHECK(cf, strstr(kvcl_last_error(), "ulimit -l") != NULL);
    limit_locks(cf, SIZE_MAX);
    kvcl_finalize(ctx);
}

static void names_the_limit(void *arg, const kvcl_memory_info_t *info)
{
    *(unsigned *)arg += (strcmp(info->what, "memory") == 0) && (strcmp(info->get_path, "served") == 0) &&
                        (strstr(info->why, "ulimit -l") != NULL);
}

/* What cannot be registered is served, and its bytes are right. What fits is registered and revoked as elsewhere. */
static void locked(cf_t *cf)
{
    enum { BIG = 8 << 20, BIGS = 2 };
    int         owner = 1, i;
    char        *big[BIGS], *buf = malloc(BIG), desc[1024];
    kvcl_mem_h  mems[BIGS] = {NULL};
    kvcl_rmem_h rmem;
    kvcl_req_h  req;
    const void  *blob;
    size_t      len;
    uint64_t    native;
    unsigned    n = 0;

    for (i = 0; i < BIGS; ++i) {
        big[i] = malloc(BIG);
        memset(big[i], 4 + i, BIG);
    }
    CF_CHECK(cf, revoke_round(cf, owner, false, true) == 0); /* UCX has locked all that it needs */
    if (cf->rank == owner) {
        demand_rdma(cf, big[0], BIG);
        limit_locks(cf, n_ports() * PORT_KIB + ROOM_KIB);
        lock_and_free(cf);
        limit_locks(cf, n_ports() * PORT_KIB + ROOM_KIB);
    }
    for (i = 0; i < BIGS; ++i) {
        if (cf->rank == owner) {
            len = sizeof(desc);
            CF_OK(cf, kvcl_mem_register(cf->ctx, big[i], BIG, KVCL_MEM_HOST, NULL, &mems[i]));
            CF_OK(cf, kvcl_mem_export(mems[i], KVCL_READ, desc, &len));
            cf_give(cf, desc, len);
        }
        cf_fence(cf);
        if (cf->rank != owner) {
            blob   = cf_blob(cf, owner, &len);
            native = native_gets(cf);
            CF_OK(cf, kvcl_rmem_import(cf->world, owner, blob, len, &rmem));
            CF_OK(cf, kvcl_get_bytes(rmem, 0, buf, BIG, NULL, &req));
            CF_OK(cf, cf_end(cf, req));
            CF_CHECK(cf, all_are(buf, (char)(4 + i), BIG) && (native_gets(cf) == native));
            CF_OK(cf, kvcl_query_memory(cf->world, owner, names_the_limit, &n));
            CF_CHECK(cf, n == (unsigned)i + 1);
            kvcl_rmem_free(rmem);
        }
        cf_fence(cf);
    }
    for (i = 0; i < 6; ++i) {
        CF_CHECK(cf, revoke_round(cf, owner, false, (i & 1) != 0) == 0);
    }
    if (cf->rank == owner) {
        limit_locks(cf, SIZE_MAX);
    }
    for (i = 0; i < BIGS; ++i) {
        kvcl_mem_free(mems[i]);
        free(big[i]);
    }
    free(buf);
}

static const cf_case_t cases[] = {
    {"churn", churn, CF_RACY},
    {"revoke_puts", revoke_puts, CF_RACY | CF_MIXES},
    {"free_gets", free_gets, CF_RACY},
    {"stale_twice", stale_twice, CF_RACY | CF_MIXES}, /* several gets into the same blocks at once */
    {"locked", locked, CF_RACY | CF_RDMA},
    {NULL, NULL, 0},
};

static const cf_config_t configs[] = {
    {"loop", false, 3, 0}, {"loop", false, 3, CF_NATIVE}, {"loop", false, 2, CF_OVERTAKE}, {"shm", true, 3, 0},
    {"tcp", true, 3, 0},   {"tcp", true, 2, CF_LANE},     {NULL, false, 0, 0},
};

int main(int argc, char **argv)
{
    setenv("KVCL_INLINE_COPY", "16K", 0); /* a copy inside the post cannot be interrupted */
    return cf_main(argc, argv, configs, cases);
}
