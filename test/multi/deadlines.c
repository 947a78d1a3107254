/*
 * Operations whose peer falls silent, each with a deadline of its own: every one of them ends, with a status that says
 * so. Rank 0 posts one of each kind to rank 1, round after round, until one round has failed in all of them; rank 1
 * replies. A script stops rank 1, or cuts the wires, meanwhile (test/guest).
 *   deadlines SECONDS [nostore]   the time that each operation has; without operations of a store
 * Each rank prints, for each kind, how many ended well, by their deadline, for a lost peer, and otherwise; and how long
 * after its deadline the latest of them ended (negative: before it). Times are printed and not judged. The status is 1
 * if an operation ended with a status that does not fit.
 */
#include "world.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

enum { PART = 4, PARTS = 4, BLOCK = 256 << 10, MESSAGE = 1 << 20, SILENT_MAX = 3 };

typedef enum kind { GET, PUT, SEND, RECEIVE, STORE_GET, EXISTS, KINDS } kind_t;

static const char *const names[KINDS] = {"get", "put", "send", "receive", "store get", "exists"};

typedef struct op {
    kind_t        kind;
    double        due;
    double        ended;
    kvcl_status_t status;
    _Atomic int   done;
} op_t;

typedef struct count {
    unsigned ok, due, lost, other;
    double   latest; /* beside its deadline */
} count_t;

typedef struct job {
    world_t      w;
    double       seconds;
    kvcl_cache_h cache;
    kvcl_store_h store; /* NULL: without */
    kvcl_key_t   keys[PART];
    char         *out, *in;
    op_t         ops[KINDS];
    count_t      counts[KINDS];
} job_t;

/* Where gets, puts and gets from the store write, and the blocks that are read. */
static const uint32_t got[PART] = {0, 1, 2, 3}, put[PART] = {4, 5, 6, 7}, stored[PART] = {8, 9, 10, 11},
                      source[PART] = {12, 13, 14, 15};
static uint8_t present[PART];

static double now_s(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + ((double)ts.tv_nsec * 1e-9);
}

static void end(void *arg, kvcl_status_t status)
{
    op_t *op = arg;

    op->ended  = now_s();
    op->status = status;
    atomic_store(&op->done, 1);
}

static kvcl_status_t post_op(job_t *job, kind_t kind, const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    kvcl_sel_t into = {.blocks = got, .n_blocks = PART}, to = {.blocks = put, .n_blocks = PART};
    kvcl_sel_t from = {.blocks = source, .n_blocks = PART};
    int        peer = 1 - job->w.rank;

    switch (kind) {
    case GET:
        return kvcl_get(job->w.comm, peer, job->cache, &from, &into, params, req_p);
    case PUT:
        return kvcl_put(job->w.comm, peer, job->cache, &from, &to, params, req_p);
    case SEND:
        return kvcl_send_bytes(job->w.comm, peer, (uint64_t)job->w.rank, job->out, MESSAGE, params, req_p);
    case RECEIVE:
        return kvcl_recv_bytes(job->w.comm, peer, (uint64_t)peer, job->in, MESSAGE, params, req_p);
    case STORE_GET:
        return kvcl_store_get(job->store, job->keys, PART, job->cache, stored, NULL, params, req_p);
    default:
        return kvcl_store_exists_post(job->store, job->keys, PART, present, params, req_p);
    }
}

static void post(job_t *job, kind_t kind)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    op_t               *op    = &job->ops[kind];
    kvcl_status_t      status;

    atomic_store(&op->done, 0);
    op->kind          = kind;
    op->due           = now_s() + job->seconds;
    params.timeout_ns = (uint64_t)(job->seconds * 1e9);
    params.cb         = end;
    params.cb_arg     = op;
    status            = post_op(job, kind, &params, NULL);
    if (status != KVCL_OK) {
        end(op, status);
    }
}

/* Whether the peer is lost, or was silent for too long. */
static bool settle(job_t *job, kind_t kind)
{
    op_t    *op    = &job->ops[kind];
    count_t *count = &job->counts[kind];
    double  late;
    bool    fits;

    while (atomic_load(&op->done) == 0) {
        usleep(1000);
    }
    late          = op->ended - op->due;
    count->latest = ((count->ok + count->due + count->lost + count->other == 0) || (late > count->latest)) ? late :
                    count->latest;
    switch (op->status) {
    case KVCL_OK:
        ++count->ok;
        return false;
    case KVCL_ERR_TIMED_OUT:
        ++count->due;
        return true;
    case KVCL_ERR_RANK_FAILED:
    case KVCL_ERR_UNREACHABLE:
        ++count->lost;
        return true;
    default:
        ++count->other;
        fits = (op->status == KVCL_ERR_NOT_FOUND) && (kind == STORE_GET);
        CHECK(&job->w, fits || (count->other > 1), "%s: %s", names[kind], kvcl_status_name(op->status));
        return false;
    }
}

/* @return the kinds that failed. */
static unsigned round_of(job_t *job, unsigned kinds)
{
    unsigned failed = 0;
    kind_t   kind;

    for (kind = 0; kind < KINDS; ++kind) {
        if (kinds & (1u << kind)) {
            post(job, kind);
        }
    }
    for (kind = 0; kind < KINDS; ++kind) {
        if ((kinds & (1u << kind)) && settle(job, kind)) {
            failed |= 1u << kind;
        }
    }
    return failed;
}

static void ask(job_t *job)
{
    const unsigned direct = (1u << GET) | (1u << PUT) | (1u << SEND) | (1u << RECEIVE);
    const unsigned others = (job->store != NULL) ? (1u << STORE_GET) | (1u << EXISTS) : 0;

    while ((round_of(job, direct | others) & direct) != direct) {
        continue;
    }
}

static void reply(job_t *job)
{
    unsigned silent = 0;

    while (silent < SILENT_MAX) {
        silent = (round_of(job, 1u << RECEIVE) == 0) ? 0 : silent + 1;
        silent = ((silent == 0) && (round_of(job, 1u << SEND) != 0)) ? 1 : silent;
    }
}

static void open_job(job_t *job, bool with_store)
{
    kvcl_store_params_t params = KVCL_STORE_PARAMS_INIT;
    kvcl_cache_params_t writable = KVCL_CACHE_PARAMS_INIT;
    kvcl_layout_t       layout   = KVCL_LAYOUT_BYTES(PART * PARTS, BLOCK);
    uint32_t            i;
    kvcl_req_h          req;

    KVCL_TRY(kvcl_init(NULL, &job->w.ctx));
    KVCL_TRY(kvcl_comm_world(job->w.ctx, &job->w.comm));
    job->w.rank = kvcl_comm_rank(job->w.comm);
    job->out    = calloc(1, MESSAGE);
    job->in     = calloc(1, MESSAGE);
    writable.flags = KVCL_CACHE_WRITABLE;
    KVCL_TRY(kvcl_cache_create(job->w.ctx, "deadlines", &layout, &writable, &job->cache));
    if (!with_store) {
        return;
    }
    params.dir_entries = 4096;
    KVCL_TRY(kvcl_store_open(job->w.comm, &params, &job->store));
    for (i = 0; i < PART; ++i) {
        kvcl_key_from_string(&i, sizeof(i), &job->keys[i]);
    }
    if (job->w.rank == 1) {
        KVCL_TRY(DO(kvcl_store_publish(job->store, job->keys, PART, job->cache, source, NULL, &req)));
    }
    sync_all(&job->w);
}

int main(int argc, char **argv)
{
    job_t  job = {.seconds = (argc > 1) ? strtod(argv[1], NULL) : 0};
    bool   with_store = (argc == 2);
    kind_t kind;

    if ((job.seconds <= 0) || !(with_store || ((argc == 3) && (strcmp(argv[2], "nostore") == 0)))) {
        fprintf(stderr, "usage: deadlines SECONDS [nostore], two ranks\n");
        return 2;
    }
    open_job(&job, with_store);
    (job.w.rank == 0) ? ask(&job) : reply(&job);
    for (kind = 0; kind < KINDS; ++kind) {
        const count_t *count = &job.counts[kind];
        if (count->ok + count->due + count->lost + count->other > 0) {
            printf("%s: %u ok, %u at the deadline, %u lost, %u otherwise; the latest %+.3f s\n", names[kind], count->ok,
                   count->due, count->lost, count->other, count->latest);
        }
    }
    fflush(stdout);
    kvcl_store_close(job.store);
    kvcl_cache_destroy(job.cache);
    kvcl_finalize(job.w.ctx);
    free(job.out);
    free(job.in);
    return (job.w.failed == 0) ? 0 : 1;
}
