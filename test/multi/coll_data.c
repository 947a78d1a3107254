/*
 * Reductions and exchanges over the public header, on any number of ranks: results of every type and operation, at
 * lengths that take each algorithm, in place where that is allowed; the same bits on all ranks; and calls that differ
 * between ranks. Rank 0 prints "ok NAME" for a case that was right on all ranks. Exit 1 if any was not.
 *   coll_data [PART]   all cases, or those with PART in their names
 */
#include "world.h"

enum { MOST = 70001, LONG = 1 << 20, OPS = KVCL_REDUCE_XOR + 1, DTYPES = KVCL_DTYPE_F64 + 1 };

static const size_t widths[DTYPES] = {1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8};

/* ---- elements ---- */

static bool is_float(unsigned dtype)
{
    return dtype >= KVCL_DTYPE_F16;
}

/* Small numbers, exact in every type; powers of two where floats are multiplied. */
static int64_t number(int rank, size_t i, unsigned dtype, unsigned op)
{
    const uint64_t x = ((uint64_t)rank * 7) + (i * 3) + (i >> 7);

    return (is_float(dtype) && (op == KVCL_REDUCE_PROD)) ? (int64_t)(1 + (x & 1)) : (int64_t)(x % 6);
}

static uint32_t float_bits(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

/* A number that is no negative one, as the bytes of an element. */
static void put_number(void *to, size_t i, unsigned dtype, int64_t x)
{
    const float    f    = (float)x;
    const double   d    = (double)x;
    const uint32_t bits = float_bits(f);
    uint16_t       half = (x == 0) ? 0 : (uint16_t)((bits >> 13) - ((127 - 15) << 10));

    switch (dtype) {
    case KVCL_DTYPE_F64:
        ((double *)to)[i] = d;
        break;
    case KVCL_DTYPE_F32:
        ((float *)to)[i] = f;
        break;
    case KVCL_DTYPE_BF16:
        half = (uint16_t)(bits >> 16); /* fall through */
    case KVCL_DTYPE_F16:
        ((uint16_t *)to)[i] = half;
        break;
    default:
        memcpy((char *)to + (i * widths[dtype]), &x, widths[dtype]);
    }
}

static int64_t reduce_two(unsigned op, int64_t a, int64_t b)
{
    const int64_t results[OPS] = {a + b, a * b, (a < b) ? a : b, (a > b) ? a : b, a & b, a | b, a ^ b};

    return results[op];
}

static int64_t result_of(const world_t *w, size_t i, unsigned dtype, unsigned op)
{
    int64_t x = number(0, i, dtype, op);
    int     r;

    for (r = 1; r < w->size; ++r) {
        x = reduce_two(op, x, number(r, i, dtype, op));
    }
    return x;
}

/* A byte that names its sender, its receiver and its place. */
static unsigned char pattern(int from, int to, size_t i)
{
    return (unsigned char)((from * 37) + (to * 11) + (int)(i % 251) + (int)(i >> 9));
}

static void fill(unsigned char *buf, size_t len, int from, int to)
{
    size_t i;

    for (i = 0; i < len; ++i) {
        buf[i] = pattern(from, to, i);
    }
}

static bool holds(const unsigned char *buf, size_t len, int from, int to)
{
    size_t i;

    for (i = 0; (i < len) && (buf[i] == pattern(from, to, i)); ++i) {
    }
    return i == len;
}

/* ---- cases ---- */

static void reduce_once(world_t *w, size_t count, unsigned dtype, unsigned op, bool in_place)
{
    const size_t  width = widths[dtype];
    unsigned char *in = malloc((count + 1) * width), *out = malloc((count + 1) * width);
    unsigned char *want = malloc((count + 1) * width);
    kvcl_req_h    req = NULL;
    size_t        i;

    memset(out, 0xee, (count + 1) * width);
    for (i = 0; i < count; ++i) {
        put_number(in_place ? out : in, i, dtype, number(w->rank, i, dtype, op));
        put_number(want, i, dtype, result_of(w, i, dtype, op));
    }
    CHECK(w, DO(kvcl_allreduce(w->comm, in_place ? out : in, out, count, (kvcl_dtype_t)dtype, (kvcl_reduce_t)op, NULL,
                               &req)) == KVCL_OK, "%zu of type %u, operation %u", count, dtype, op);
    CHECK(w, memcmp(out, want, count * width) == 0, "%zu of type %u, operation %u", count, dtype, op);
    CHECK(w, out[count * width] == 0xee, "%zu of type %u", count, dtype);
    free(in);
    free(out);
    free(want);
}

static void allreduce_of_every_type_and_operation(world_t *w)
{
    static const size_t counts[] = {0, 1, 3, 1000, 5003, MOST};
    unsigned            dtype, op;
    size_t              i;

    for (dtype = 0; dtype < DTYPES; ++dtype) {
        for (op = 0; op < OPS; ++op) {
            const bool has_meaning = !is_float(dtype) || (op < KVCL_REDUCE_AND);

            for (i = 0; has_meaning && (i < sizeof(counts) / sizeof(counts[0])); ++i) {
                reduce_once(w, counts[i], dtype, op, (i + op) % 2 == 0);
            }
        }
    }
}

static void reduce_scatter_of_all_lengths(world_t *w)
{
    static const size_t counts[] = {0, 1, 100, 2500, 30001};
    int64_t             *in = malloc((size_t)w->size * 30001 * sizeof(*in));
    int64_t             *mine = malloc(30001 * sizeof(*mine));
    size_t              i, c, turn;
    kvcl_req_h          req;

    for (c = 0; c < sizeof(counts) / sizeof(counts[0]); ++c) {
        for (turn = 0; turn < 2; ++turn) {
            int64_t *to = (turn == 0) ? mine : in + ((size_t)w->rank * counts[c]);

            for (i = 0; i < counts[c] * (size_t)w->size; ++i) {
                in[i] = number(w->rank, i, KVCL_DTYPE_I64, KVCL_REDUCE_SUM);
            }
            req = NULL;
            CHECK(w, DO(kvcl_reduce_scatter(w->comm, in, to, counts[c], KVCL_DTYPE_I64, KVCL_REDUCE_SUM, NULL, &req)) ==
                  KVCL_OK, "%zu", counts[c]);
            for (i = 0; i < counts[c]; ++i) {
                CHECK(w, to[i] == result_of(w, ((size_t)w->rank * counts[c]) + i, KVCL_DTYPE_I64, KVCL_REDUCE_SUM),
                      "%zu of %zu", i, counts[c]);
            }
        }
    }
    free(in);
    free(mine);
}

static const size_t lengths[] = {0, 1, 1000, 8193, 100003, LONG + 5};
enum { LENGTHS = sizeof(lengths) / sizeof(lengths[0]) };

static void alltoall_of_all_lengths(world_t *w)
{
    unsigned char *in = malloc((LONG + 5) * (size_t)w->size), *out = malloc((LONG + 5) * (size_t)w->size);
    kvcl_req_h    req;
    size_t        i;
    int           r;

    for (i = 0; i < LENGTHS; ++i) {
        for (r = 0; r < w->size; ++r) {
            fill(in + ((size_t)r * lengths[i]), lengths[i], w->rank, r);
        }
        req = NULL;
        CHECK(w, DO(kvcl_alltoall(w->comm, in, lengths[i], out, NULL, &req)) == KVCL_OK, "%zu", lengths[i]);
        for (r = 0; r < w->size; ++r) {
            CHECK(w, holds(out + ((size_t)r * lengths[i]), lengths[i], r, w->rank), "%zu from %d", lengths[i], r);
        }
    }
    free(in);
    free(out);
}

/* What rank s gives to rank d; nothing of some pairs. */
static size_t given(int s, int d, size_t mean)
{
    return ((s + d) % 4 == 3) ? 0 : ((mean * (size_t)(1 + ((s + (2 * d)) % 3))) / 2);
}

/* Parts of in lie behind one another or with gaps, those of out in the order of ranks or in the opposite one. */
static void alltoallv_once(world_t *w, size_t mean, bool spread)
{
    const size_t  size = (size_t)w->size;
    uint64_t      *lens = calloc(4 * size, sizeof(*lens)), *offs = lens + (2 * size), sent = 0, got = 0;
    unsigned char *in = malloc(((2 * mean) + 8) * size), *out = malloc(((2 * mean) + 8) * size);
    kvcl_req_h    req = NULL;
    int           i;

    for (i = 0; i < w->size; ++i) {
        const size_t from = spread ? (size - 1 - (size_t)i) : (size_t)i;

        lens[i]           = given(w->rank, i, mean);
        offs[i]           = sent;
        sent             += lens[i] + (spread ? 5 : 0);
        lens[size + from] = given((int)from, w->rank, mean);
        offs[size + from] = got;
        got              += lens[size + from];
        fill(in + offs[i], lens[i], w->rank, i);
    }
    CHECK(w, DO(kvcl_alltoallv(w->comm, in, lens, spread ? offs : NULL, out, lens + size, spread ? offs + size : NULL,
                               NULL, &req)) == KVCL_OK, "%zu", mean);
    for (i = 0; i < w->size; ++i) {
        CHECK(w, holds(out + offs[size + (size_t)i], lens[size + (size_t)i], i, w->rank), "%zu from %d", mean, i);
    }
    free(lens);
    free(in);
    free(out);
}

/* Parts of in and of out in turn, in one buffer. They may not meet: too_near. */
static void alltoallv_woven(world_t *w, size_t len, bool too_near)
{
    const size_t  size = (size_t)w->size;
    uint64_t      *lens = calloc(4 * size, sizeof(*lens)), *offs = lens + (2 * size);
    unsigned char *buf = malloc(2 * len * size);
    kvcl_req_h    req = NULL;
    kvcl_status_t status;
    int           i;

    for (i = 0; i < w->size; ++i) {
        lens[i] = lens[size + (size_t)i] = len;
        offs[size + (size_t)i]           = 2 * (size_t)i * len;
        offs[i]                          = offs[size + (size_t)i] + len;
        fill(buf + offs[i], len, w->rank, i);
    }
    offs[size - 1] -= too_near ? 1 : 0;
    status = DO(kvcl_alltoallv(w->comm, buf, lens, offs, buf, lens + size, offs + size, NULL, &req));
    CHECK(w, status == (too_near ? KVCL_ERR_INVALID_PARAM : KVCL_OK), "%zu: %s", len, kvcl_status_text(status));
    for (i = 0; (i < w->size) && !too_near; ++i) {
        CHECK(w, holds(buf + offs[size + (size_t)i], len, i, w->rank), "%zu from %d", len, i);
        CHECK(w, holds(buf + offs[i], len, w->rank, i), "%zu for %d has changed", len, i);
    }
    free(lens);
    free(buf);
}

static void alltoallv_of_woven_parts(world_t *w)
{
    alltoallv_woven(w, 100, false);
    alltoallv_woven(w, 300000, false);
    alltoallv_woven(w, 100, true);
}

static void alltoallv_of_all_lengths(world_t *w)
{
    size_t i;

    for (i = 0; i < LENGTHS; ++i) {
        alltoallv_once(w, lengths[i], false);
        alltoallv_once(w, lengths[i], true);
    }
}

/* Rank 0 gives rank 1 other lengths than that takes: longer ones, nothing, something. The two learn it, and so do the
 * others, unless they have finished. */
static void alltoallv_of_lengths_that_differ(world_t *w)
{
    static const uint64_t gives[] = {2000, 600000, 300000, 300000, 10}, takes[] = {1000, 300000, 600000, 299999, 0};
    uint64_t              *lens = calloc(2 * (size_t)w->size, sizeof(*lens));
    unsigned char         *buf = calloc(2, 600000);
    kvcl_req_h            req;
    kvcl_status_t         status;
    size_t                i;

    for (i = 0; (w->size > 1) && (i < sizeof(gives) / sizeof(gives[0])); ++i) {
        lens[1]                 = (w->rank == 0) ? gives[i] : 0;
        lens[(size_t)w->size]   = (w->rank == 1) ? takes[i] : 0;
        req                     = NULL;
        status = DO(kvcl_alltoallv(w->comm, buf, lens, NULL, buf + 600000, lens + w->size, NULL, NULL, &req));
        CHECK(w, (status == KVCL_ERR_INVALID_PARAM) || (w->rank > ((takes[i] > 0) ? 1 : 0)), "%zu: %s", i,
              kvcl_status_text(status));
        req = NULL;
        CHECK(w, DO(kvcl_barrier(w->comm, NULL, &req)) == KVCL_OK, "barrier");
    }
    free(lens);
    free(buf);
}

static void gather_to_every_root(world_t *w)
{
    unsigned char *mine = malloc(LONG + 5), *all = malloc((LONG + 5) * (size_t)w->size);
    kvcl_req_h    req;
    size_t        i;
    int           root, r;

    for (i = 0; i < LENGTHS; ++i) {
        for (root = 0; root < w->size; ++root) {
            const bool    at_root = (w->rank == root);
            unsigned char *in = (at_root && (i % 2 == 0)) ? all + ((size_t)root * lengths[i]) : mine;

            fill(in, lengths[i], w->rank, root);
            req = NULL;
            CHECK(w, DO(kvcl_gather(w->comm, root, in, lengths[i], at_root ? all : NULL, NULL, &req)) == KVCL_OK, "%zu",
                  lengths[i]);
            for (r = 0; at_root && (r < w->size); ++r) {
                CHECK(w, holds(all + ((size_t)r * lengths[i]), lengths[i], r, root), "%zu from %d", lengths[i], r);
            }
        }
    }
    free(mine);
    free(all);
}

static void scatter_from_every_root(world_t *w)
{
    unsigned char *mine = malloc(LONG + 5), *all = malloc((LONG + 5) * (size_t)w->size);
    kvcl_req_h    req;
    size_t        i;
    int           root, r;

    for (i = 0; i < LENGTHS; ++i) {
        for (root = 0; root < w->size; ++root) {
            const bool    at_root = (w->rank == root);
            unsigned char *out = (at_root && (i % 2 == 0)) ? all + ((size_t)root * lengths[i]) : mine;

            for (r = 0; at_root && (r < w->size); ++r) {
                fill(all + ((size_t)r * lengths[i]), lengths[i], root, r);
            }
            req = NULL;
            CHECK(w, DO(kvcl_scatter(w->comm, root, at_root ? all : NULL, lengths[i], out, NULL, &req)) == KVCL_OK,
                  "%zu", lengths[i]);
            CHECK(w, holds(out, lengths[i], root, w->rank), "%zu from %d", lengths[i], root);
        }
    }
    free(mine);
    free(all);
}

static void allgather_of_long_parts(world_t *w)
{
    unsigned char *mine = malloc(LONG + 5), *all = malloc((LONG + 5) * (size_t)w->size);
    kvcl_req_h    req = NULL;
    int           r;

    fill(mine, LONG + 5, w->rank, 0);
    CHECK(w, DO(kvcl_allgather(w->comm, mine, LONG + 5, all, NULL, &req)) == KVCL_OK, "long");
    for (r = 0; r < w->size; ++r) {
        CHECK(w, holds(all + ((size_t)r * (LONG + 5)), LONG + 5, r, 0), "from %d", r);
    }
    free(mine);
    free(all);
}

/* Sums of floats that depend on their order: no rank may have another bit, nor any of them the next time. */
static void all_ranks_get_the_same_bits(world_t *w)
{
    static const size_t counts[] = {1, 100, 4000, MOST};
    float               *in = malloc(MOST * sizeof(*in)), *first = malloc(MOST * sizeof(*first));
    float               *again = malloc(MOST * sizeof(*again)), *all = malloc(MOST * sizeof(*all) * (size_t)w->size);
    kvcl_req_h          req;
    size_t              c, i;
    int                 r;

    for (i = 0; i < MOST; ++i) {
        in[i] = (float)((double)((i * 2654435761u + (size_t)w->rank * 40503u) % 1000003u) * 1.37e-3) *
                (((i + (size_t)w->rank) % 3 == 0) ? -1e4f : 1.0f);
    }
    for (c = 0; c < sizeof(counts) / sizeof(counts[0]); ++c) {
        const size_t bytes = counts[c] * sizeof(*in);

        req = NULL;
        CHECK(w, DO(kvcl_allreduce(w->comm, in, first, counts[c], KVCL_DTYPE_F32, KVCL_REDUCE_SUM, NULL, &req)) ==
              KVCL_OK, "%zu", counts[c]);
        req = NULL;
        CHECK(w, DO(kvcl_allreduce(w->comm, in, again, counts[c], KVCL_DTYPE_F32, KVCL_REDUCE_SUM, NULL, &req)) ==
              KVCL_OK, "%zu", counts[c]);
        req = NULL;
        CHECK(w, DO(kvcl_allgather(w->comm, first, bytes, all, NULL, &req)) == KVCL_OK, "%zu", counts[c]);
        CHECK(w, memcmp(first, again, bytes) == 0, "%zu", counts[c]);
        for (r = 0; r < w->size; ++r) {
            CHECK(w, memcmp((char *)all + ((size_t)r * bytes), first, bytes) == 0, "%zu, rank %d", counts[c], r);
        }
    }
    free(in);
    free(first);
    free(again);
    free(all);
}

/* The last rank gives another count, type or operation; nobody can have finished without it. */
static void different_calls_are_an_error(world_t *w)
{
    static const size_t counts[] = {10, 5000, MOST};
    const bool          odd = (w->rank == w->size - 1);
    float               *in  = calloc(MOST + 1, sizeof(*in) * (size_t)w->size);
    float               *out = calloc(MOST + 1, sizeof(*out) * (size_t)w->size);
    kvcl_req_h          req;
    size_t              c, what;

    for (c = 0; (w->size > 1) && (c < sizeof(counts) / sizeof(counts[0])); ++c) {
        for (what = 0; what < 5; ++what) {
            const size_t        count = counts[c] + (odd && ((what == 0) || (what > 2)));
            const kvcl_dtype_t  dtype = (odd && (what == 1)) ? KVCL_DTYPE_I32 : KVCL_DTYPE_F32;
            const kvcl_reduce_t op    = (odd && (what == 2)) ? KVCL_REDUCE_MAX : KVCL_REDUCE_SUM;
            kvcl_status_t       status;

            req = NULL;
            if (what == 3) {
                status = DO(kvcl_alltoall(w->comm, in, count, out, NULL, &req));
            } else if (what == 4) {
                status = DO(kvcl_reduce_scatter(w->comm, in, out, count, dtype, op, NULL, &req));
            } else {
                status = DO(kvcl_allreduce(w->comm, in, out, count, dtype, op, NULL, &req));
            }
            CHECK(w, status == KVCL_ERR_INVALID_PARAM, "%zu, %zu: %s", count, what, kvcl_status_text(status));
            req = NULL;
            CHECK(w, DO(kvcl_barrier(w->comm, NULL, &req)) == KVCL_OK, "barrier");
        }
    }
    free(in);
    free(out);
}

static void who_does_not_come_ends_the_others(world_t *w)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    float              *buf   = calloc(MOST, sizeof(*buf));
    kvcl_req_h         req    = NULL;
    kvcl_status_t      status;
    char               word   = 0;
    int                r;

    for (r = 1; (w->rank == 0) && (r < w->size); ++r) { /* it comes when the others have ended */
        CHECK(w, DO(kvcl_recv_bytes(w->comm, r, 1, &word, 1, NULL, &req)) == KVCL_OK, "rank %d", r);
    }
    params.timeout_ns = (w->rank == 0) ? 0 : 200000000u;
    req               = NULL;
    status            = DO(kvcl_allreduce(w->comm, buf, buf, MOST, KVCL_DTYPE_F32, KVCL_REDUCE_SUM, &params, &req));
    CHECK(w, status == ((w->size == 1) ? KVCL_OK : KVCL_ERR_TIMED_OUT), "%s", kvcl_status_text(status));
    req = NULL;
    if (w->rank != 0) {
        CHECK(w, DO(kvcl_send_bytes(w->comm, 0, 1, &word, 1, NULL, &req)) == KVCL_OK, "send");
        req = NULL;
    }
    CHECK(w, DO(kvcl_barrier(w->comm, NULL, &req)) == KVCL_OK, "barrier");
    free(buf);
}

static void many_at_once(world_t *w)
{
    enum { N = 60 };
    static int64_t words[N], sums[N];
    kvcl_req_h     reqs[N];
    int            i;

    for (i = 0; i < N; ++i) {
        words[i] = w->rank + i;
        reqs[i]  = NULL;
        CHECK(w, kvcl_allreduce(w->comm, &words[i], &sums[i], 1, KVCL_DTYPE_I64, KVCL_REDUCE_SUM, NULL, &reqs[i]) ==
              KVCL_OK, "%d", i);
    }
    CHECK(w, kvcl_req_wait_all(reqs, N, UINT64_C(60000000000)) == KVCL_OK, "wait");
    for (i = 0; i < N; ++i) {
        CHECK(w, sums[i] == (int64_t)w->size * i + (w->size * (w->size - 1) / 2), "%d: %lld", i, (long long)sums[i]);
    }
}

static void bad_calls_change_nothing(world_t *w)
{
    double           doubles[16] = {0};
    char             *at   = (char *)doubles;
    const kvcl_comm_h comm = w->comm;
    kvcl_req_h       req   = NULL;

    CHECK(w, kvcl_allreduce(comm, at, at, 1, (kvcl_dtype_t)DTYPES, KVCL_REDUCE_SUM, NULL, &req) ==
          KVCL_ERR_INVALID_PARAM, "type");
    CHECK(w, kvcl_allreduce(comm, at, at, 1, KVCL_DTYPE_U8, (kvcl_reduce_t)OPS, NULL, &req) == KVCL_ERR_INVALID_PARAM,
          "operation");
    CHECK(w, kvcl_allreduce(w->comm, at, at, 1, KVCL_DTYPE_F32, KVCL_REDUCE_AND, NULL, &req) == KVCL_ERR_INVALID_PARAM,
          "of floats");
    CHECK(w, strstr(kvcl_last_error(), "operation 4 (and) does not reduce f32") != NULL, "sentence");
    CHECK(w, kvcl_allreduce(w->comm, at, at, SIZE_MAX / 2, KVCL_DTYPE_F32, KVCL_REDUCE_SUM, NULL, &req) ==
          KVCL_ERR_INVALID_PARAM, "count");
    CHECK(w, kvcl_allreduce(comm, at, at + 4, 2, KVCL_DTYPE_I32, KVCL_REDUCE_SUM, NULL, &req) ==
          KVCL_ERR_INVALID_PARAM, "overlap");
    CHECK(w, kvcl_alltoall(w->comm, at, 1, at, NULL, &req) == KVCL_ERR_INVALID_PARAM, "the same buffer");
    CHECK(w, kvcl_allreduce(comm, NULL, at, 1, KVCL_DTYPE_U8, KVCL_REDUCE_SUM, NULL, &req) == KVCL_ERR_INVALID_PARAM,
          "NULL");
    CHECK(w, kvcl_gather(w->comm, w->size, at, 1, at, NULL, &req) == KVCL_ERR_UNKNOWN_RANK, "root");
    CHECK(w, kvcl_scatter(w->comm, -1, at, 1, at, NULL, &req) == KVCL_ERR_UNKNOWN_RANK, "root");
    CHECK(w, req == NULL, "a request");
}

int main(int argc, char **argv)
{
#define CASE(_fn) {_fn, #_fn}
    static const struct {
        void       (*fn)(world_t *w);
        const char *name;
    } cases[] = {
        CASE(allreduce_of_every_type_and_operation),
        CASE(reduce_scatter_of_all_lengths),
        CASE(alltoall_of_all_lengths),
        CASE(alltoallv_of_all_lengths),
        CASE(alltoallv_of_woven_parts),
        CASE(alltoallv_of_lengths_that_differ),
        CASE(gather_to_every_root),
        CASE(scatter_from_every_root),
        CASE(allgather_of_long_parts),
        CASE(all_ranks_get_the_same_bits),
        CASE(different_calls_are_an_error),
        CASE(who_does_not_come_ends_the_others),
        CASE(many_at_once),
        CASE(bad_calls_change_nothing),
    };
    kvcl_context_stats_t stats = KVCL_CONTEXT_STATS_INIT;
    world_t              w     = {.ctx = NULL};
    int64_t              wrong;
    kvcl_req_h           req;
    size_t               i;
    unsigned             bad = 0;

    KVCL_TRY(kvcl_init(NULL, &w.ctx));
    KVCL_TRY(kvcl_comm_world(w.ctx, &w.comm));
    w.rank = kvcl_comm_rank(w.comm);
    w.size = kvcl_comm_size(w.comm);
    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        if ((argc > 1) && (strstr(cases[i].name, argv[1]) == NULL)) {
            continue;
        }
        w.failed = 0;
        cases[i].fn(&w);
        wrong = w.failed;
        req   = NULL;
        KVCL_TRY(DO(kvcl_allreduce(w.comm, &wrong, &wrong, 1, KVCL_DTYPE_I64, KVCL_REDUCE_SUM, NULL, &req)));
        bad += (wrong != 0);
        if (w.rank == 0) {
            printf("%s %s\n", (wrong == 0) ? "ok" : "WRONG", cases[i].name);
            fflush(stdout);
        }
    }
    KVCL_TRY(kvcl_context_stats(w.ctx, &stats));
    if (stats.malformed != 0) { /* right bytes may have arrived by a detour */
        printf("%llu messages made no sense\n", (unsigned long long)stats.malformed);
        ++bad;
    }
    kvcl_finalize(w.ctx);
    return (bad == 0) ? 0 : 1;
}
