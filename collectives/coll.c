/*
 * The list of algorithms as an array, names, and the one place that makes a plan.
 *
 * The signature mixes what all ranks must agree on: operation, algorithm, size, root, lengths, reduction. It travels
 * with each announcement, so ranks that planned differently learn it at the first message.
 */
#include "config.h"

#include "collectives/coll.h"

#include "base/error.h"
#include "base/rand.h"

#include <string.h>

#define ALG_POINTER(_name) &kvcl_coll_alg_##_name,
static const kvcl_coll_alg_t *const algs[] = {KVCL_COLL_ALGS(ALG_POINTER)};
#undef ALG_POINTER

#define KIND_NAME(_name, _text) _text,
static const char *const kind_names[] = {KVCL_COLL_MAP(KIND_NAME)};
#undef KIND_NAME

const kvcl_coll_alg_t *kvcl_coll_alg_at(size_t i)
{
    return (i < sizeof(algs) / sizeof(algs[0])) ? algs[i] : NULL;
}

const kvcl_coll_alg_t *kvcl_coll_alg_find(kvcl_coll_kind_t kind, const char *name)
{
    size_t i;

    for (i = 0; i < sizeof(algs) / sizeof(algs[0]); ++i) {
        if ((algs[i]->kind == kind) && (strcmp(algs[i]->name, name) == 0)) {
            return algs[i];
        }
    }
    return NULL;
}

const char *kvcl_coll_kind_name(kvcl_coll_kind_t kind)
{
    return ((unsigned)kind < KVCL_COLL_COUNT) ? kind_names[kind] : "unknown";
}

const char *kvcl_coll_path_name(kvcl_coll_path_t path)
{
    return (path == KVCL_COLL_PATH_SHM) ? "shm" : ((path == KVCL_COLL_PATH_STAGE) ? "stage" : "net");
}

int kvcl_coll_has_two_buffers(kvcl_coll_kind_t kind)
{
    return (kind == KVCL_COLL_REDUCE_SCATTER) || (kind == KVCL_COLL_ALLTOALL) || (kind == KVCL_COLL_ALLTOALLV) ||
           (kind == KVCL_COLL_GATHER) || (kind == KVCL_COLL_SCATTER);
}

/* How many times len the largest buffer has. */
static uint32_t copies_of(const kvcl_coll_alg_t *alg, const kvcl_coll_shape_t *shape)
{
    if (alg->regions != NULL) {
        return alg->regions(shape->size);
    }
    return ((alg->kind == KVCL_COLL_BCAST) || (alg->kind == KVCL_COLL_ALLREDUCE)) ? 1 : shape->size;
}

/* The end of the last of n parts. */
static kvcl_status_t end_of(const uint64_t *lens, const uint64_t *offs, uint32_t n, uint64_t *end_p)
{
    uint64_t end;
    uint32_t i;

    *end_p = 0;
    for (i = 0; i < n; ++i) {
        if (__builtin_add_overflow(lens[i], offs[i], &end)) {
            return kvcl_fail(KVCL_ERR_INVALID_PARAM, "alltoallv: the part for rank %u, %llu bytes at %llu, ends behind "
                             "2^64", i, (unsigned long long)lens[i], (unsigned long long)offs[i]);
        }
        *end_p = ((lens[i] > 0) && (end > *end_p)) ? end : *end_p;
    }
    return KVCL_OK;
}

static kvcl_status_t parts_bytes(const kvcl_coll_shape_t *shape, kvcl_coll_bytes_t *bytes_p)
{
    const kvcl_coll_parts_t *parts  = shape->parts;
    kvcl_status_t            status = end_of(parts->send_lens, parts->send_offs, shape->size, &bytes_p->send);

    return (status == KVCL_OK) ? end_of(parts->recv_lens, parts->recv_offs, shape->size, &bytes_p->recv) : status;
}

kvcl_status_t kvcl_coll_buffer_bytes(const kvcl_coll_alg_t *alg, const kvcl_coll_shape_t *shape,
                                     kvcl_coll_bytes_t *bytes_p)
{
    const int is_root = (shape->rank == shape->root);
    uint64_t  all;

    if (alg->kind == KVCL_COLL_ALLTOALLV) {
        return parts_bytes(shape, bytes_p);
    }
    if (__builtin_mul_overflow((uint64_t)copies_of(alg, shape), shape->len, &all)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: %llu bytes for each of %u ranks are more than 2^64 bytes",
                         kvcl_coll_kind_name(alg->kind), (unsigned long long)shape->len, shape->size);
    }
    *bytes_p = (kvcl_coll_bytes_t){shape->len, shape->len};
    switch (alg->kind) {
    case KVCL_COLL_ALLGATHER:
    case KVCL_COLL_ALLREDUCE:
    case KVCL_COLL_ALLTOALL:
        *bytes_p = (kvcl_coll_bytes_t){all, all};
        break;
    case KVCL_COLL_REDUCE_SCATTER:
        bytes_p->send = all;
        break;
    case KVCL_COLL_GATHER:
        *bytes_p = is_root ? (kvcl_coll_bytes_t){0, all} : (kvcl_coll_bytes_t){shape->len, 0};
        break;
    case KVCL_COLL_SCATTER:
        *bytes_p = is_root ? (kvcl_coll_bytes_t){all, 0} : (kvcl_coll_bytes_t){0, shape->len};
        break;
    default:
        break;
    }
    return KVCL_OK;
}

static uint32_t signature_of(const kvcl_coll_alg_t *alg, const kvcl_coll_shape_t *shape)
{
    const uint64_t words[] = {alg->kind, shape->size, shape->root, shape->len, shape->chunk, shape->elem,
                              shape->reduction};
    uint64_t       state   = 0;
    const char    *c;
    size_t         i;

    for (c = alg->name; *c != '\0'; ++c) {
        state ^= (uint64_t)(unsigned char)*c;
        state = kvcl_splitmix64(&state);
    }
    for (i = 0; i < sizeof(words) / sizeof(words[0]); ++i) {
        state ^= words[i];
        state = kvcl_splitmix64(&state);
    }
    return (uint32_t)(state >> 32);
}

static kvcl_status_t check_shape(const kvcl_coll_alg_t *alg, const kvcl_coll_shape_t *shape,
                                 kvcl_coll_bytes_t *bytes_p)
{
    const char *name = kvcl_coll_kind_name(alg->kind);

    if (shape->rank >= shape->size) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: rank %u in a communicator of %u ranks", name,
                         shape->rank, shape->size);
    }
    if (shape->root >= shape->size) {
        return kvcl_fail(KVCL_ERR_UNKNOWN_RANK, "%s: root %u in a communicator of %u ranks", name,
                         shape->root, shape->size);
    }
    if ((shape->elem > 1) && (shape->len % shape->elem != 0)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: %llu bytes are no whole elements of %u bytes", name,
                         (unsigned long long)shape->len, shape->elem);
    }
    return kvcl_coll_buffer_bytes(alg, shape, bytes_p);
}

kvcl_status_t kvcl_coll_plan(const kvcl_coll_alg_t *alg, const kvcl_coll_shape_t *shape, kvcl_plan_t *plan)
{
    kvcl_coll_bytes_t bytes = {0, 0};
    kvcl_status_t     status;

    kvcl_plan_init(plan);
    status = check_shape(alg, shape, &bytes);
    if (status != KVCL_OK) {
        return status;
    }
    plan->signature = signature_of(alg, shape);
    plan->uneven    = (alg->kind == KVCL_COLL_ALLTOALLV);
    if ((shape->size > 1) && ((shape->len > 0) || (alg->kind == KVCL_COLL_BARRIER) || plan->uneven)) {
        alg->plan(shape, plan);
    }
    status = kvcl_plan_seal(plan);
    if (status == KVCL_OK) {
        status = kvcl_plan_check(plan, shape->rank, shape->size, bytes.send, bytes.recv);
    }
    if (status != KVCL_OK) {
        kvcl_plan_fini(plan);
    }
    return status;
}
