/*
 * What the operations of sim_job.h move: a byte is a function of its operation, its owner and its place.
 */
#include "config.h"

#include "sim_job.h"

#include <string.h>

enum { RESULTS = 4096 };

static struct {
    uint64_t key, digest;
} results[RESULTS]; /* of operations after which all ranks have the same bytes */

static uint64_t key_of(const job_t *job)
{
    uint64_t state = sim.seed; /* what another run has left counts for nothing */

    state = kvcl_splitmix64(&state) ^ job->comm ^ ((job->seq + 1) * UINT64_C(0x9e3779b97f4a7c15));
    return kvcl_splitmix64(&state);
}

static uint8_t given(uint64_t key, uint32_t rank, uint64_t i)
{
    return (uint8_t)((key >> ((i % 7) * 8)) + (rank * 31) + (i * 167) + 13);
}

/* ---- which ---- */

static const kvcl_coll_alg_t *nth_of(kvcl_coll_kind_t kind, uint64_t n)
{
    const kvcl_coll_alg_t *alg;
    uint64_t              count = 0;
    size_t                i;

    for (i = 0; (alg = kvcl_coll_alg_at(i)) != NULL; ++i) {
        count += (alg->kind == kind);
    }
    n %= count;
    for (i = 0; ; ++i) {
        alg = kvcl_coll_alg_at(i);
        if ((alg->kind == kind) && (n-- == 0)) {
            return alg;
        }
    }
}

const kvcl_coll_alg_t *job_choose(const job_t *job, kvcl_coll_shape_t *shape, unsigned *way)
{
    static const kvcl_coll_kind_t kinds[] = {KVCL_COLL_ALLREDUCE, KVCL_COLL_ALLGATHER, KVCL_COLL_ALLTOALL,
                                             KVCL_COLL_ALLREDUCE, KVCL_COLL_REDUCE_SCATTER, KVCL_COLL_BCAST,
                                             KVCL_COLL_BARRIER, KVCL_COLL_GATHER, KVCL_COLL_SCATTER};
    const uint64_t   key  = key_of(job);
    kvcl_coll_kind_t kind = kinds[(key >> 8) % (sizeof(kinds) / sizeof(kinds[0]))];

    kind   = (job->seq == 0) ? KVCL_COLL_ALLGATHER : (job->seq == 1) ? KVCL_COLL_BCAST : kind;
    *way   = (unsigned)((key >> 16) % 3);
    *shape = (kvcl_coll_shape_t){.rank = job->rank, .size = job->size, .len = 4,
                                 .path = ((key >> 24) % 2 == 0) ? KVCL_COLL_PATH_SHM : KVCL_COLL_PATH_NET,
                                 .chunk = ((key >> 25) % 2 == 0) ? 0 : 8};
    if (kind == KVCL_COLL_BARRIER) {
        shape->len = 0;
    } else if ((kind == KVCL_COLL_ALLREDUCE) || (kind == KVCL_COLL_REDUCE_SCATTER)) {
        shape->len       = (kind == KVCL_COLL_ALLREDUCE) ? 16 : 4;
        shape->elem      = 4;
        shape->reduction = 1;
    } else if (kind == KVCL_COLL_BCAST) {
        shape->len  = (job->seq == 1) ? (uint64_t)sim.n_slots * LOCAL : 24;
        shape->root = (job->seq == 1) ? job->ep.donor : (uint32_t)((key >> 32) % job->size);
    } else if ((kind == KVCL_COLL_GATHER) || (kind == KVCL_COLL_SCATTER)) {
        shape->root = (uint32_t)((key >> 32) % job->size);
    }
    return nth_of(kind, key >> 40);
}

/* ---- before ---- */

static void put(job_t *job, uint8_t *to, uint8_t *have, uint64_t off, uint64_t len, uint64_t i)
{
    const uint64_t key = key_of(job);
    uint64_t       at;

    for (at = 0; at < len; ++at) {
        to[off + at]   = given(key, job->rank, i + at);
        have[off + at] = 1;
    }
}

static void make(uint8_t **bytes, uint8_t **have, uint64_t len)
{
    *bytes = malloc(2 * (len + 1));
    if (*bytes == NULL) {
        abort();
    }
    *have = *bytes + len + 1;
    memset(*bytes, 0xa5, len + 1);
    memset(*have, 0, len + 1);
}

void job_bytes_begin(job_t *job)
{
    job_op_t                *op    = &job->op;
    const kvcl_coll_shape_t *shape = &op->shape;
    const uint64_t          len = shape->len, mine = job->rank * len;
    const bool              is_root = (job->rank == shape->root);
    kvcl_coll_bytes_t       bytes;

    if (kvcl_coll_buffer_bytes(op->alg, shape, &bytes) != KVCL_OK) {
        abort();
    }
    make(&op->out, &op->out_have, bytes.recv);
    op->out_bytes = bytes.recv;
    op->in        = op->out;
    op->in_have   = op->out_have;
    op->in_bytes  = bytes.send;
    if (kvcl_coll_has_two_buffers(op->alg->kind)) {
        make(&op->in, &op->in_have, bytes.send);
        put(job, op->in, op->in_have, 0, bytes.send, 0);
    }
    switch (op->alg->kind) {
    case KVCL_COLL_BCAST:
        put(job, op->out, op->out_have, 0, is_root ? len : 0, 0);
        break;
    case KVCL_COLL_ALLREDUCE:
        put(job, op->out, op->out_have, 0, len, 0);
        break;
    case KVCL_COLL_ALLGATHER:
        put(job, op->out, op->out_have, mine, len, 0);
        break;
    case KVCL_COLL_ALLTOALL:
        put(job, op->out, op->out_have, mine, len, mine);
        break;
    case KVCL_COLL_REDUCE_SCATTER:
        put(job, op->out, op->out_have, 0, len, mine);
        break;
    case KVCL_COLL_GATHER:
        put(job, op->out, op->out_have, mine, is_root ? len : 0, 0);
        break;
    default:
        break;
    }
    if ((job->seq == 0) || ((job->seq == 1) && is_root)) {
        job_ep_give(job, (uint32_t)job->seq, op->out + ((job->seq == 0) ? mine : 0), len);
    }
}

/* ---- meanwhile ---- */

void job_bytes_check_have(proc_t *p, uint64_t off, uint64_t len)
{
    const job_op_t *op = &job_of(p)->op;

    if ((off > op->in_bytes) || (len > op->in_bytes - off)) {
        sim_broken("Served", p, "bytes outside of an operation's memory are read");
    } else if ((len > 0) && (memchr(op->in_have + off, 0, len) != NULL)) {
        sim_broken("Served", p, "bytes are read before they are there");
    }
}

void job_bytes_write(job_op_t *op, const job_pull_t *pull, const uint8_t *bytes)
{
    uint64_t i;

    for (i = 0; i < pull->len; ++i) {
        op->out[pull->off + i]      = (uint8_t)(bytes[i] + ((pull->with != KVCL_PLAN_COPY) ? op->out[pull->with + i]
                                                                                           : 0));
        op->out_have[pull->off + i] = 1;
    }
}

/* ---- after ---- */

static uint8_t expected(const job_t *job, uint64_t i)
{
    const kvcl_coll_shape_t *shape = &job->op.shape;
    const kvcl_coll_kind_t  kind   = job->op.alg->kind;
    const uint64_t          key = key_of(job), mine = job->rank * shape->len;
    const uint32_t          owner = (shape->len > 0) ? (uint32_t)(i / shape->len) : 0;
    uint8_t                 sum   = 0;
    uint32_t                r;

    switch (kind) {
    case KVCL_COLL_ALLREDUCE:
    case KVCL_COLL_REDUCE_SCATTER:
        for (r = 0; r < shape->size; ++r) {
            sum = (uint8_t)(sum + given(key, r, (kind == KVCL_COLL_ALLREDUCE) ? i : (mine + i)));
        }
        return sum;
    case KVCL_COLL_ALLGATHER:
    case KVCL_COLL_GATHER:
        return given(key, owner, i % shape->len);
    case KVCL_COLL_ALLTOALL:
        return given(key, owner, mine + (i % shape->len));
    case KVCL_COLL_SCATTER:
        return given(key, shape->root, mine + i);
    default:
        return given(key, shape->root, i);
    }
}

/* The first two operations carry the ranks' own data: all must have the same. */
static void check_same(proc_t *p, const uint8_t *bytes, uint64_t len)
{
    const job_t    *job   = job_of(p);
    const uint64_t key    = key_of(job);
    uint64_t       digest = len, i;

    for (i = 0; i < len; ++i) {
        digest ^= bytes[i];
        digest  = kvcl_splitmix64(&digest);
    }
    if ((results[key % RESULTS].key == key) && (results[key % RESULTS].digest != digest)) {
        sim_broken("Right", p, "another rank got other bytes from the same operation");
    }
    results[key % RESULTS].key    = key;
    results[key % RESULTS].digest = digest;
}

void job_bytes_check(proc_t *p)
{
    job_t          *job  = job_of(p);
    const job_op_t *op   = &job->op;
    const uint8_t  *got  = op->out;
    uint64_t       len   = op->out_bytes, i;

    if ((op->alg->regions != NULL) && (op->shape.size > 1)) {
        len  = op->shape.len;
        got += op->out_bytes - len;
    }
    if (job->seq < 2) {
        check_same(p, got, len);
        job_ep_learn(p, (uint32_t)job->seq, got, len);
        return;
    }
    if ((op->alg->kind == KVCL_COLL_GATHER) && (job->rank != op->shape.root)) {
        return;
    }
    for (i = 0; i < len; ++i) {
        if (got[i] != expected(job, i)) {
            sim_broken("Right", p, "an operation ended well with a wrong byte");
            return;
        }
    }
}
