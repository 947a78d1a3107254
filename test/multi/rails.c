/*
 * Two ranks whose connection is lost and made again over another path. A script cuts the path meanwhile (test/guest).
 *   rails get|put|store-get|send
 * Rank 0 repeats the operation until rank 1 is reached over a path other than the first one, and AFTER more of them
 * have succeeded there. An operation that ends because the connection is lost is repeated: KVCL_ERR_UNREACHABLE, or a
 * miss of the store. All bytes are verified. Rank 0 prints both paths, how many operations it repeated, and how many
 * succeeded. The status is 1 if an operation ended otherwise, bytes were wrong, or no other path was used in LIMIT_S.
 */
#include "world.h"

enum { BLOCKS = 4, BLOCK = 256 << 10, AFTER = 10, LIMIT_S = 100 };
enum { DATA = 1, ANSWER = 2, OVER = 1u << 30, PATH_BYTES = 256 };

typedef struct job {
    world_t      w;
    kvcl_cache_h cache;
    kvcl_store_h store;
    kvcl_key_t   keys[BLOCKS];
    uint8_t      *bytes, *other; /* of one block each */
    uint32_t     round;
    unsigned     repeated;
} job_t;

typedef struct kind {
    const char    *name;
    kvcl_status_t (*once)(job_t *job); /* rank 0: one operation; bytes that are wrong are a failed check */
} kind_t;

static const uint32_t source[BLOCKS] = {0, 1, 2, 3}, got[BLOCKS] = {4, 5, 6, 7}, put_to[BLOCKS] = {8, 9, 10, 11};
static kvcl_xfer_params_t patient = KVCL_XFER_PARAMS_INIT; /* longer than the ranks need to find each other */

static time_t now_s(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec;
}

static void pattern(uint8_t *bytes, uint32_t block, uint32_t round)
{
    uint32_t i;

    memcpy(bytes, &round, sizeof(round));
    for (i = sizeof(round); i < BLOCK; ++i) {
        bytes[i] = (uint8_t)((i * 7u) + (i >> 9) + (block * 31u) + (round * 13u));
    }
}

static void fill(job_t *job, const uint32_t *blocks, uint32_t round)
{
    uint32_t i;

    for (i = 0; i < BLOCKS; ++i) {
        pattern(job->bytes, i, round);
        KVCL_TRY(kvcl_cache_write_block(job->cache, blocks[i], job->bytes, BLOCK));
    }
}

static void verify(job_t *job, uint32_t round)
{
    uint32_t i;

    for (i = 0; i < BLOCKS; ++i) {
        pattern(job->other, i, round);
        KVCL_TRY(kvcl_cache_read_block(job->cache, got[i], job->bytes, BLOCK));
        CHECK(&job->w, memcmp(job->bytes, job->other, BLOCK) == 0, "block %u of round %u is wrong", i, round);
    }
}

static kvcl_status_t get_from(job_t *job, const uint32_t *blocks, uint32_t round)
{
    kvcl_sel_t    from = {.blocks = blocks, .n_blocks = BLOCKS}, into = {.blocks = got, .n_blocks = BLOCKS};
    kvcl_req_h    req;
    kvcl_status_t status;

    fill(job, got, UINT32_MAX);
    status = DO(kvcl_get(job->w.comm, 1, job->cache, &from, &into, &patient, &req));
    if (status == KVCL_OK) {
        verify(job, round);
    }
    return status;
}

static kvcl_status_t get_once(job_t *job)
{
    return get_from(job, source, 0);
}

static kvcl_status_t put_once(job_t *job)
{
    kvcl_sel_t    from = {.blocks = source, .n_blocks = BLOCKS}, to = {.blocks = put_to, .n_blocks = BLOCKS};
    kvcl_req_h    req;
    kvcl_status_t status;

    fill(job, source, ++job->round);
    status = DO(kvcl_put(job->w.comm, 1, job->cache, &from, &to, &patient, &req));
    return (status == KVCL_OK) ? get_from(job, put_to, job->round) : status;
}

static kvcl_status_t store_get_once(job_t *job)
{
    kvcl_req_h    req;
    kvcl_status_t status;

    fill(job, got, UINT32_MAX);
    status = DO(kvcl_store_get(job->store, job->keys, BLOCKS, job->cache, got, NULL, &patient, &req));
    if (status == KVCL_OK) {
        verify(job, 0);
    }
    return (status == KVCL_ERR_NOT_FOUND) ? KVCL_ERR_UNREACHABLE : status;
}

/* Rank 1 has the message of this round when its answer has come. What an earlier try left over is skipped. An answer
 * that was lost with the old connection does not come: its message is sent again. */
static kvcl_status_t tell(job_t *job, uint32_t round)
{
    kvcl_xfer_params_t soon = KVCL_XFER_PARAMS_INIT;
    uint32_t           answer = ~round;
    kvcl_req_h         req;
    kvcl_status_t      status;

    soon.timeout_ns = 5000000000u;
    pattern(job->bytes, 0, round);
    status = DO(kvcl_send_bytes(job->w.comm, 1, DATA, job->bytes, BLOCK, &soon, &req));
    while ((status == KVCL_OK) && (answer != round)) {
        status = DO(kvcl_recv_bytes(job->w.comm, 1, ANSWER, &answer, sizeof(answer), &soon, &req));
    }
    return (status == KVCL_ERR_TIMED_OUT) ? KVCL_ERR_UNREACHABLE : status;
}

static kvcl_status_t send_once(job_t *job)
{
    return tell(job, ++job->round);
}

static const kind_t kinds[] = {
    {"get", get_once}, {"put", put_once}, {"store-get", store_get_once}, {"send", send_once},
};
enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };

/* Rank 1: answers messages, of which OVER is the last. */
static void answer(job_t *job)
{
    kvcl_req_h    req;
    kvcl_status_t status = KVCL_OK;
    uint32_t      round = 0;

    while (((status != KVCL_OK) || (round != OVER)) && (job->w.failed == 0)) {
        status = DO(kvcl_recv_bytes(job->w.comm, 0, DATA, job->bytes, BLOCK, &patient, &req));
        if (status == KVCL_OK) {
            memcpy(&round, job->bytes, sizeof(round));
            pattern(job->other, 0, round);
            CHECK(&job->w, memcmp(job->bytes, job->other, BLOCK) == 0, "message %u is wrong", round);
            status = DO(kvcl_send_bytes(job->w.comm, 0, ANSWER, &round, sizeof(round), &patient, &req));
        }
        CHECK(&job->w, (status == KVCL_OK) || (status == KVCL_ERR_UNREACHABLE), "%s", kvcl_status_name(status));
    }
}

/* "rc_verbs/rxe0:1" of "rdma, native (rc_verbs/rxe0:1)"; "": rank 1 cannot be asked now */
static void find_path(job_t *job, char buf[PATH_BYTES])
{
    kvcl_status_t status = kvcl_query_path(job->w.comm, 1, buf, PATH_BYTES);
    const char    *at;

    CHECK(&job->w, (status == KVCL_OK) || (status == KVCL_ERR_UNREACHABLE), "%s", kvcl_status_name(status));
    at = (status == KVCL_OK) ? strchr(buf, '(') : NULL;
    memmove(buf, (at != NULL) ? at + 1 : "", (at != NULL) ? strlen(at) : 1);
    buf[strcspn(buf, ")")] = '\0';
}

/* Rank 0. */
static void repeat(job_t *job, const kind_t *kind)
{
    char          first[PATH_BYTES], path[PATH_BYTES] = "";
    unsigned      n = 0, after = 0;
    time_t        until = now_s() + LIMIT_S;
    kvcl_status_t status;

    find_path(job, first);
    while ((after < AFTER) && (job->w.failed == 0)) {
        status = kind->once(job);
        n     += (status == KVCL_OK);
        CHECK(&job->w, (status == KVCL_OK) || (status == KVCL_ERR_UNREACHABLE), "%s: %s", kind->name,
              kvcl_status_name(status));
        CHECK(&job->w, now_s() < until, "no other path is used after %u s", LIMIT_S);
        if (status != KVCL_OK) {
            ++job->repeated;
            nap(10000000);
        }
        find_path(job, path);
        after += (status == KVCL_OK) && (path[0] != '\0') && (strcmp(path, first) != 0);
    }
    printf("first over %s, then over %s: %u succeeded, %u repeated\n", first, path, n, job->repeated);
    fflush(stdout);
    do {
        status = tell(job, OVER);
    } while ((status == KVCL_ERR_UNREACHABLE) && (now_s() < until + LIMIT_S));
}

static void open_job(job_t *job)
{
    kvcl_store_params_t params = KVCL_STORE_PARAMS_INIT;
    kvcl_cache_params_t writable = KVCL_CACHE_PARAMS_INIT;
    kvcl_layout_t       layout   = KVCL_LAYOUT_BYTES(3 * BLOCKS, BLOCK);
    uint32_t            i;
    kvcl_req_h          req;

    KVCL_TRY(kvcl_init(NULL, &job->w.ctx));
    KVCL_TRY(kvcl_comm_world(job->w.ctx, &job->w.comm));
    job->w.rank        = kvcl_comm_rank(job->w.comm);
    job->w.size        = kvcl_comm_size(job->w.comm);
    job->bytes         = calloc(2, BLOCK);
    job->other         = job->bytes + BLOCK;
    patient.timeout_ns = LIMIT_S * 1000000000ull;
    writable.flags     = KVCL_CACHE_WRITABLE;
    params.dir_entries = 4096;
    KVCL_TRY(kvcl_cache_create(job->w.ctx, "rails", &layout, &writable, &job->cache));
    KVCL_TRY(kvcl_store_open(job->w.comm, &params, &job->store));
    fill(job, source, 0);
    for (i = 0; i < BLOCKS; ++i) {
        kvcl_key_from_string(&i, sizeof(i), &job->keys[i]);
    }
    if (job->w.rank == 1) {
        KVCL_TRY(DO(kvcl_store_publish(job->store, job->keys, BLOCKS, job->cache, source, NULL, &req)));
    }
    sync_all(&job->w);
}

int main(int argc, char **argv)
{
    job_t    job = {.round = 0};
    unsigned k = 0;

    while ((argc == 2) && (k < KINDS) && (strcmp(argv[1], kinds[k].name) != 0)) {
        ++k;
    }
    if ((argc != 2) || (k == KINDS)) {
        fprintf(stderr, "usage: rails get|put|store-get|send, two ranks\n");
        return 2;
    }
    open_job(&job);
    (job.w.rank == 0) ? repeat(&job, &kinds[k]) : answer(&job);
    kvcl_store_close(job.store);
    kvcl_cache_destroy(job.cache);
    kvcl_finalize(job.w.ctx);
    free(job.bytes);
    return (job.w.failed == 0) ? 0 : 1;
}
