/*
 * kvcl_get_vec and kvcl_put_vec: random lists against a model of the bytes, over every path, to and from memory of each
 * kind; what is refused; what a revoke leaves.
 */
#include "conform.h"

#include <stdlib.h>
#include <string.h>

enum { SLOT = 4096, SLOTS_MAX = 2048, FEW = 7, FAR_BYTES = SLOT * SLOTS_MAX };

/* One list: slots of both sides in random order, each piece in its pair of slots, of any length that a slot holds; some
 * fill a slot, and some continue in the next pair, so that neighbours touch. */
typedef struct list {
    size_t     n;
    uint64_t   at[SLOTS_MAX]; /* local offsets */
    kvcl_vec_t v[SLOTS_MAX];  /* addr: not set */
} list_t;

static void shuffle(kvcl_rand_t *rnd, uint32_t *ids, uint32_t n)
{
    uint32_t i, j, id;

    for (i = 0; i < n; ++i) {
        ids[i] = i;
    }
    for (i = n; i > 1; --i) {
        j          = (uint32_t)(kvcl_rand_next(rnd) % i);
        id         = ids[i - 1];
        ids[i - 1] = ids[j];
        ids[j]     = id;
    }
}

static void make_list(uint64_t seed, size_t n, bool equal, list_t *list)
{
    static _Thread_local uint32_t here[SLOTS_MAX], there[SLOTS_MAX];
    kvcl_rand_t rnd;
    uint64_t    r;
    size_t      i;

    kvcl_rand_seed(&rnd, seed);
    shuffle(&rnd, here, SLOTS_MAX);
    shuffle(&rnd, there, SLOTS_MAX);
    list->n = n;
    for (i = 0; i < n; ++i) {
        r = kvcl_rand_next(&rnd);
        if ((i > 0) && (r % 4 == 0) && (list->v[i - 1].len == SLOT) && (here[i - 1] + 1 < SLOTS_MAX) &&
            (there[i - 1] + 1 < SLOTS_MAX)) { /* behind the last one, on both sides, if these slots are free */
            size_t h, t;
            for (h = i; (h < SLOTS_MAX) && (here[h] != here[i - 1] + 1); ++h) {
            }
            for (t = i; (t < SLOTS_MAX) && (there[t] != there[i - 1] + 1); ++t) {
            }
            if ((h < SLOTS_MAX) && (t < SLOTS_MAX)) {
                here[h]  = here[i];
                here[i]  = here[i - 1] + 1;
                there[t] = there[i];
                there[i] = there[i - 1] + 1;
            }
        }
        list->v[i].len    = (equal || (r & 16)) ? SLOT : 1 + ((r >> 8) % SLOT);
        list->at[i]       = (uint64_t)here[i] * SLOT + ((r >> 32) % (SLOT - list->v[i].len + 1));
        list->v[i].offset = (uint64_t)there[i] * SLOT + ((r >> 48) % (SLOT - list->v[i].len + 1));
    }
}

/* The model: to[at] = from[offset], or the opposite. */
static void apply(const list_t *list, char *here, char *there, bool push)
{
    size_t i;

    for (i = 0; i < list->n; ++i) {
        memcpy(push ? there + list->v[i].offset : here + list->at[i],
               push ? here + list->at[i] : there + list->v[i].offset, list->v[i].len);
    }
}

static void point(list_t *list, char *base)
{
    size_t i;

    for (i = 0; i < list->n; ++i) {
        list->v[i].addr = base + list->at[i];
    }
}

typedef struct scene {
    cf_mem_t far;   /* of each rank */
    cf_mem_t local; /* registered; the pieces are in it, or in plain */
    char     *plain, *want, *theirs;
} scene_t;

/* The bytes that the case sees, and the address that pieces name. */
static char *see(scene_t *s, bool registered)
{
    return registered ? s->local.addr : s->plain;
}

static void one_get(cf_t *cf, scene_t *s, uint64_t seed, size_t n, bool equal, bool registered)
{
    static _Thread_local list_t list;
    char                        *here = see(s, registered);
    kvcl_req_h                  req;

    make_list(seed + (uint64_t)cf->rank, n, equal, &list);
    point(&list, registered ? kvcl_mem_addr(s->local.mine) : s->plain);
    memset(here, 0x5a, FAR_BYTES);
    memset(s->want, 0x5a, FAR_BYTES);
    cf_bytes(seed + 100 + (uint64_t)cf_after(cf), 0, s->theirs, FAR_BYTES);
    cf_bytes(seed + 100 + (uint64_t)cf->rank, 0, s->far.addr, FAR_BYTES);
    apply(&list, s->want, s->theirs, false);
    cf_fence(cf);
    CF_OK(cf, kvcl_get_vec(s->far.of[cf_after(cf)], list.v, n, registered ? s->local.mine : NULL, NULL, &req));
    memset(list.v, 0, sizeof(list.v)); /* the caller's again */
    CF_OK(cf, cf_end(cf, req));
    CF_CHECK(cf, memcmp(here, s->want, FAR_BYTES) == 0);
    cf_fence(cf);
}

static void one_put(cf_t *cf, scene_t *s, uint64_t seed, size_t n, bool equal, bool registered)
{
    static _Thread_local list_t list;
    char                        *here = see(s, registered);
    kvcl_req_h                  req;

    memset(s->far.addr, 0xa5, FAR_BYTES);
    make_list(seed + (uint64_t)cf->rank, n, equal, &list);
    point(&list, registered ? kvcl_mem_addr(s->local.mine) : s->plain);
    cf_bytes(seed + 200 + (uint64_t)cf->rank, 0, here, FAR_BYTES);
    cf_fence(cf);
    CF_OK(cf, kvcl_put_vec(s->far.of[cf_after(cf)], list.v, n, registered ? s->local.mine : NULL, NULL, &req));
    CF_OK(cf, cf_end(cf, req));
    cf_fence(cf);
    memset(s->want, 0xa5, FAR_BYTES);
    make_list(seed + (uint64_t)cf_before(cf), n, equal, &list);
    cf_bytes(seed + 200 + (uint64_t)cf_before(cf), 0, s->theirs, FAR_BYTES);
    apply(&list, s->theirs, s->want, true);
    CF_CHECK(cf, memcmp(s->far.addr, s->want, FAR_BYTES) == 0);
    cf_fence(cf);
}

static void random_lists(cf_t *cf)
{
    static const size_t counts[] = {1, 2, FEW, 300, SLOTS_MAX};
    uint64_t            seed = cf_same(cf);
    scene_t             s = {.plain = malloc(FAR_BYTES), .want = malloc(FAR_BYTES), .theirs = malloc(FAR_BYTES)};
    unsigned            kind, i;

    for (kind = 0; kind < 4; ++kind) {
        s.far   = cf_mem(cf, FAR_BYTES, (kind & 1) != 0, KVCL_READ_WRITE);
        s.local = cf_mem(cf, FAR_BYTES, false, KVCL_READ_WRITE);
        for (i = 0; i < sizeof(counts) / sizeof(counts[0]); ++i) {
            if ((getenv("CF_DEVICE") != NULL) && (counts[i] == SLOTS_MAX)) {
                continue; /* on no rank: the driver without a device is slow */
            }
            one_get(cf, &s, ++seed, counts[i], (i & 1) != 0, (kind & 2) != 0);
            one_put(cf, &s, ++seed, counts[i], (i & 1) == 0, (kind & 2) != 0);
        }
        cf_mem_end(cf, &s.far);
        cf_mem_end(cf, &s.local);
        cf_alive(cf);
    }
    free(s.plain);
    free(s.want);
    free(s.theirs);
}

/* More pieces than bytes in most messages, all of one byte, every second byte, backwards. */
static void pieces_of_one_byte(cf_t *cf)
{
    enum { N = 20000 };
    uint64_t   seed = cf_same(cf);
    cf_mem_t   mem  = cf_mem(cf, 2 * N, false, KVCL_READ_WRITE);
    kvcl_vec_t *v   = malloc(N * sizeof(*v));
    char       *here = malloc(N), *theirs = malloc(2 * N);
    kvcl_req_h req;
    size_t     i;

    cf_bytes(seed + (uint64_t)cf->rank, 0, mem.addr, 2 * N);
    cf_bytes(seed + (uint64_t)cf_after(cf), 0, theirs, 2 * N);
    for (i = 0; i < N; ++i) {
        v[i] = (kvcl_vec_t){2 * i, here + (N - 1 - i), 1};
    }
    cf_fence(cf);
    CF_OK(cf, kvcl_get_vec(mem.of[cf_after(cf)], v, N, NULL, NULL, &req));
    CF_OK(cf, cf_end(cf, req));
    for (i = 0; i < N; ++i) {
        CF_CHECK(cf, here[N - 1 - i] == theirs[2 * i]);
    }
    cf_fence(cf);
    for (i = 0; i < N; ++i) {
        here[N - 1 - i] = (char)(theirs[2 * i] + 1);
    }
    CF_OK(cf, kvcl_put_vec(mem.of[cf_after(cf)], v, N, NULL, NULL, &req));
    CF_OK(cf, cf_end(cf, req));
    cf_fence(cf);
    cf_bytes(seed + (uint64_t)cf->rank, 0, theirs, 2 * N);
    for (i = 0; i < 2 * N; ++i) {
        CF_CHECK(cf, mem.addr[i] == (char)(theirs[i] + ((i & 1) ? 0 : 1)));
    }
    cf_mem_end(cf, &mem);
    free(v);
    free(here);
    free(theirs);
}

/* No pieces, a signal after the last byte, and pieces that lie one behind the other: one run. */
static void edges(cf_t *cf)
{
    enum { N = 64, LEN = 1000, WORD = 64 * 1024 };
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    char               buf[N * LEN];
    kvcl_vec_t         v[N];
    kvcl_req_h         req;
    unsigned           kind;
    size_t             i;

    for (kind = 0; kind < 2; ++kind) {
        uint64_t seed     = cf_same(cf) + kind;
        cf_mem_t mem      = cf_mem(cf, WORD, kind == 0, KVCL_READ_WRITE);
        cf_mem_t counters = cf_mem(cf, 8, kind == 0, KVCL_READ_WRITE);
        CF_OK(cf, kvcl_get_vec(mem.of[cf_after(cf)], NULL, 0, NULL, NULL, &req));
        CF_OK(cf, cf_end(cf, req));
        CF_OK(cf, kvcl_put_vec(mem.of[cf_after(cf)], v, 0, NULL, NULL, &req));
        CF_OK(cf, cf_end(cf, req));
        cf_bytes(seed + (uint64_t)cf->rank, 0, buf, sizeof(buf));
        for (i = 0; i < N; ++i) {
            v[i] = (kvcl_vec_t){(i * LEN) + 8, buf + (i * LEN), LEN};
        }
        params.signal_mem = counters.of[cf_after(cf)];
        params.signal_add = 3;
        CF_OK(cf, kvcl_put_vec(mem.of[cf_after(cf)], v, N, NULL, &params, &req));
        CF_OK(cf, kvcl_signal_wait(counters.mine, 0, 3, UINT64_C(20000000000)));
        CF_CHECK(cf, cf_bytes_are(seed + (uint64_t)cf_before(cf), 0, mem.addr + 8, sizeof(buf)));
        CF_OK(cf, cf_end(cf, req));
        cf_mem_end(cf, &mem);
        cf_mem_end(cf, &counters);
    }
}

/* After a revoke no piece is read or written. */
static void revoked(cf_t *cf)
{
    enum { LEN = 1 << 20 };
    char       *big = calloc(1, LEN);
    kvcl_vec_t v[2] = {{0, big, LEN / 4}, {LEN / 2, big + LEN / 2, LEN / 4}};
    kvcl_req_h req;
    unsigned   kind;
    size_t     i;

    for (kind = 0; kind < 4; ++kind) {
        cf_mem_t mem = cf_mem(cf, LEN, (kind & 1) != 0, KVCL_READ_WRITE);
        v[0].len = v[1].len = (kind & 2) ? LEN / 4 : 100;
        if (kind & 2) {
            CF_OK(cf, kvcl_get_vec(mem.of[cf_after(cf)], v, 2, NULL, NULL, &req));
            CF_OK(cf, cf_end(cf, req));
        }
        cf_fence(cf);
        CF_OK(cf, kvcl_mem_revoke(mem.mine));
        memset(mem.addr, 0x11, LEN);
        cf_fence(cf);
        CF_OK(cf, kvcl_get_vec(mem.of[cf_after(cf)], v, 2, NULL, NULL, &req));
        CF_IS(cf, cf_end(cf, req), KVCL_ERR_ACCESS);
        CF_CHECK(cf, strstr(kvcl_last_error(), "kvcl_get_vec") != NULL);
        CF_OK(cf, kvcl_put_vec(mem.of[cf_after(cf)], v, 2, NULL, NULL, &req));
        CF_IS(cf, cf_end(cf, req), KVCL_ERR_ACCESS);
        CF_CHECK(cf, strstr(kvcl_last_error(), "kvcl_put_vec") != NULL);
        cf_fence(cf);
        for (i = 0; i < LEN; ++i) {
            CF_CHECK(cf, mem.addr[i] == 0x11);
        }
        cf_mem_end(cf, &mem);
    }
    free(big);
}

static const cf_case_t cases[] = {
    {"random_lists", random_lists, 0},
    {"pieces_of_one_byte", pieces_of_one_byte, 0},
    {"edges", edges, 0},
    {"revoked", revoked, 0},
    {NULL, NULL, 0},
};

static const cf_config_t configs[] = {
    {"loop", false, 2, 0}, {"loop", false, 2, CF_NATIVE}, {"loop", false, 2, CF_OVERTAKE}, {"shm", false, 2, 0},
    {"shm", true, 2, 0},   {"tcp", false, 2, 0}, {"tcp", true, 3, 0},   {"tcp", true, 2, CF_LANE},
    {"tcp", true, 2, KVCL_INIT_NO_THREAD},     {NULL, false, 0, 0},
};

int main(int argc, char **argv)
{
    return cf_main(argc, argv, configs, cases);
}
