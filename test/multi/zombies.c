/*
 * Ranks that are stopped until the others have excluded them, and go on in the middle of their work: nothing of what
 * they begin then succeeds or reaches a member, and no byte that a verified get accepts is changed.
 *   zombies [N [DEAD_MS]]   stops N ranks or some more (6), three of each job of eight, one job after the other; each
 *                           is excluded after DEAD_MS (STOPPED_MS); prints a line for each job; exit 1 if one is wrong
 *
 * Each member has put KEYS blocks in two copies. A zombie sends, notifies, writes into caches, puts new keys, replaces,
 * removes and publishes keys of members, and calls collectives, until it has been told, and once more. The members get
 * all keys of each other again and again, look for the new keys, and take messages. A job in which a member was
 * excluded as well, since it got no processor, counts for nothing; of these there may be as many as of the others.
 */
#include "start_ranks.h"

#include "base/clock.h"
#include <kvcl/kvcl.h>

#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

enum { RANKS = 8, ZOMBIES = 3, KEYS = 8, BLOCK = 4096, LONG_S = 60, LATE_NS = 100000000, TAG = 5, BURST = 4 };
enum { FROM, TO, TRIED, BLOCKS }; /* blocks of a rank's cache: put from, got into, published */

typedef enum { NOTIFY, SEND, WRITE, PUT, UPSERT, REMOVE, PUBLISH, BARRIER, REDUCE, AGREE, KINDS } late_kind_t;
static const char *const kinds[] = {"notify", "send", "write", "put", "upsert", "remove", "publish", "barrier",
                                    "reduce", "agree"};

typedef struct shared {
    _Atomic bool     resumed, over;
    _Atomic int      ready, excluding, again, told, done; /* ranks; again: that have looked at everything since */
    _Atomic bool     lost_member;
    _Atomic unsigned tried[KINDS], well[KINDS], stale; /* of zombies, after they went on */
    _Atomic unsigned burst;   /* notifications beside them that were posted */
    _Atomic unsigned messages, found, wrong, missing, gets; /* of members; messages, found: what zombies began late */
    _Atomic unsigned written; /* blocks of members' caches that a late write has changed: no verified get reads them */
} shared_t;

typedef struct me {
    kvcl_context_h ctx;
    kvcl_comm_h    world;
    kvcl_cache_h   cache, open; /* open: others may write into it, a block of each rank */
    kvcl_store_h   store;
    kvcl_req_h     recv;
    int            rank;
    unsigned       n; /* late keys so far */
    bool           told;
    bool           closed; /* a member has excluded the zombies, and taken what they had sent before */
    unsigned char  in[16];
} me_t;

static shared_t *s;
static unsigned zombies; /* bits */
static unsigned sum[KINDS], sum_burst, sum_stale, sum_gets, sum_written;

static bool is_zombie(int rank)
{
    return ((zombies >> rank) & 1) != 0;
}

static kvcl_key_t key_of(const char *what, int rank, unsigned i)
{
    kvcl_key_t key;
    char       name[48];

    kvcl_key_from_string(name, (size_t)snprintf(name, sizeof(name), "%s/%d/%u", what, rank, i), &key);
    return key;
}

static void fill(me_t *me, uint32_t id, int rank, unsigned i, unsigned char late)
{
    unsigned char bytes[BLOCK];

    memset(bytes, (rank * KEYS) + (int)i + 1, sizeof(bytes));
    bytes[0] = late;
    KVCL_TRY(kvcl_cache_write_block(me->cache, id, bytes, sizeof(bytes)));
}

static kvcl_status_t end_of(kvcl_status_t posted, kvcl_req_h *req)
{
    return (posted == KVCL_OK) ? kvcl_req_wait(*req, KVCL_WAIT_FOREVER) : posted;
}

/* ---- a member ---- */

static kvcl_status_t get(me_t *me, const kvcl_key_t *key)
{
    const uint32_t id  = TO;
    kvcl_req_h     req = NULL;

    return end_of(kvcl_store_get(me->store, key, 1, me->cache, &id, NULL, NULL, &req), &req);
}

/* A key of a member must be there, once the maps have moved. */
static void get_key(me_t *me, int of, unsigned i)
{
    const kvcl_key_t key = key_of("member", of, i);
    const uint64_t   end = kvcl_now_ns() + (LONG_S * UINT64_C(1000000000) / 3);
    unsigned char    bytes[BLOCK], want[BLOCK];
    kvcl_status_t    status;

    while (((status = get(me, &key)) != KVCL_OK) && (kvcl_now_ns() < end) && !s->lost_member) {
        usleep(2000);
    }
    if (status != KVCL_OK) {
        fprintf(stderr, "rank %d: key %d/%u: %s\n", me->rank, of, i, kvcl_status_text(status));
        s->missing += 1;
        return;
    }
    memset(want, (of * KEYS) + (int)i + 1, sizeof(want));
    want[0] = 0;
    KVCL_TRY(kvcl_cache_read_block(me->cache, TO, bytes, sizeof(bytes)));
    s->wrong += (memcmp(bytes, want, sizeof(want)) != 0) ? 1 : 0;
    s->gets  += 1;
}

static void take_messages(me_t *me)
{
    kvcl_recv_info_t info = KVCL_RECV_INFO_INIT;
    unsigned char    byte;

    while (kvcl_notify_recv(me->world, &byte, 1, &info, 0) == KVCL_OK) {
        s->messages += me->closed || (byte != 0); /* 1: begun late */
    }
    if ((me->recv != NULL) && (kvcl_req_test(me->recv) != KVCL_INPROGRESS)) {
        s->messages += (kvcl_req_wait(me->recv, KVCL_WAIT_FOREVER) == KVCL_OK) &&
                       (me->closed || (me->in[0] != 0));
        me->recv     = NULL;
    }
    if ((me->recv == NULL) && (kvcl_recv_bytes(me->world, KVCL_ANY_SOURCE, TAG, me->in, sizeof(me->in), NULL,
                                               &me->recv) != KVCL_OK)) {
        me->recv = NULL;
    }
}

static void look_at_all(me_t *me)
{
    kvcl_key_t    key;
    unsigned char bytes[BLOCK];
    unsigned      i;
    int           of;

    for (of = 0; of < RANKS; ++of) {
        take_messages(me);
        for (i = 0; i < KEYS; ++i) {
            key = key_of("late", of, i);
            if (!is_zombie(of)) {
                get_key(me, of, i);
            } else if (get(me, &key) == KVCL_OK) {
                s->found += 1;
            }
        }
    }
    for (of = 0; of < RANKS; ++of) {
        KVCL_TRY(kvcl_cache_read_block(me->open, (uint32_t)of, bytes, sizeof(bytes)));
        if (bytes[1] != 0) {
            s->written += 1;
            memset(bytes, 0, sizeof(bytes));
            KVCL_TRY(kvcl_cache_write_block(me->open, (uint32_t)of, bytes, sizeof(bytes)));
        }
    }
}

static int members(me_t *me)
{
    unsigned char active[RANKS];
    int           n = 0, i;

    KVCL_TRY(kvcl_comm_active(me->world, active, RANKS, NULL));
    for (i = 0; i < RANKS; ++i) {
        n += active[i];
    }
    return n;
}

static void be_member(me_t *me)
{
    bool excluding = false;
    int  n;

    while (!s->over) {
        look_at_all(me);
        n = members(me);
        if (n < RANKS - ZOMBIES) {
            s->lost_member = true;
        }
        if (!excluding && (n <= RANKS - ZOMBIES)) {
            take_messages(me);
            excluding     = me->closed = true;
            s->excluding += 1;
        }
        usleep(10000);
    }
    look_at_all(me);
    s->again += 1;
}

/* ---- a zombie ---- */

static kvcl_status_t coll(me_t *me, late_kind_t kind, const kvcl_xfer_params_t *params)
{
    uint64_t   one = 1, all = 0;
    kvcl_req_h req = NULL;

    if (kind == AGREE) {
        return kvcl_comm_agree(me->world, &one, LATE_NS);
    }
    return end_of((kind == BARRIER) ? kvcl_barrier(me->world, params, &req)
                                    : kvcl_allreduce(me->world, &one, &all, 1, KVCL_DTYPE_U64, KVCL_REDUCE_SUM, params,
                                                     &req), &req);
}

static kvcl_status_t in_store(me_t *me, late_kind_t kind, const kvcl_key_t *key, const kvcl_xfer_params_t *params)
{
    const uint32_t from = FROM, tried = TRIED;
    kvcl_req_h     req = NULL;
    kvcl_status_t  status;

    switch (kind) {
    case PUT:
        return end_of(kvcl_store_put(me->store, key, 1, me->cache, &from, params, &req), &req);
    case UPSERT:
        return end_of(kvcl_store_upsert(me->store, key, 1, me->cache, &from, params, &req), &req);
    case REMOVE:
        return end_of(kvcl_store_remove(me->store, key, 1, params, &req), &req);
    default:
        status = end_of(kvcl_store_publish(me->store, key, 1, me->cache, &tried, params, &req), &req);
        KVCL_TRY(kvcl_store_withdraw(me->store, me->cache, &tried, 1));
        return status;
    }
}

/* Begun late or not: that is the first byte of all that it sends. */
static kvcl_status_t act(me_t *me, late_kind_t kind, unsigned char late)
{
    const char         *whose = late ? "late" : "early";
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    const uint32_t     from   = FROM, mine = (uint32_t)me->rank;
    kvcl_sel_t         local  = {.blocks = &from, .n_blocks = 1}, remote = {.blocks = &mine, .n_blocks = 1};
    kvcl_req_h         req    = NULL;
    kvcl_key_t         key;
    int                to, i;

    for (to = (int)(me->n % RANKS); is_zombie(to); to = (to + 1) % RANKS) {
    }
    params.timeout_ns = LATE_NS;
    me->n            += 1;
    key = ((kind == PUT) || (kind == PUBLISH) || !late) ? key_of(whose, me->rank, me->n % KEYS)
                                                        : key_of("member", to, me->n % KEYS);
    fill(me, FROM, me->rank, 0, late);
    fill(me, TRIED, me->rank, 0, late);
    for (i = 0; i < BURST; ++i) { /* some are always under way */
        s->burst += (kvcl_notify(me->world, to, &late, 1, &params, NULL) == KVCL_OK) && (late != 0);
    }
    switch (kind) {
    case NOTIFY:
        return end_of(kvcl_notify(me->world, to, &late, 1, &params, &req), &req);
    case SEND:
        return end_of(kvcl_send_bytes(me->world, to, TAG, &late, 1, &params, &req), &req);
    case WRITE:
        params.remote_cache = "open";
        return late ? end_of(kvcl_put(me->world, to, me->cache, &local, &remote, &params, &req), &req) : KVCL_OK;
    case BARRIER:
    case REDUCE:
    case AGREE:
        return late ? coll(me, kind, &params) : KVCL_OK;
    default:
        return in_store(me, kind, &key, &params);
    }
}

static void be_zombie(me_t *me)
{
    kvcl_event_t  event = KVCL_EVENT_INIT;
    kvcl_status_t status;
    unsigned      kind, after = 0;
    bool          late;

    for (kind = (unsigned)me->rank % KINDS; after <= KINDS; kind = (kind + 1) % KINDS) {
        late   = s->resumed;
        status = act(me, (late_kind_t)kind, late ? 1 : 0);
        if (late) {
            s->tried[kind] += 1;
            s->well[kind]  += (status == KVCL_OK) ? 1 : 0;
            s->stale       += (status == KVCL_ERR_STALE) ? 1 : 0;
            if ((status == KVCL_OK) && (kind != WRITE)) {
                fprintf(stderr, "rank %d, excluded: %s ends well\n", me->rank, kinds[kind]);
            }
        }
        while (kvcl_event_next(me->ctx, &event) == KVCL_OK) {
            me->told = me->told || (event.type == KVCL_EVENT_EXCLUDED);
        }
        after += me->told ? 1 : 0;
    }
    s->told += 1;
}

/* ---- a rank ---- */

static void begin(me_t *me)
{
    kvcl_layout_t       layout = KVCL_LAYOUT_BYTES(BLOCKS, BLOCK), wide = KVCL_LAYOUT_BYTES(RANKS, BLOCK);
    kvcl_store_params_t params = KVCL_STORE_PARAMS_INIT;
    kvcl_cache_params_t open   = KVCL_CACHE_PARAMS_INIT;
    kvcl_req_h          req    = NULL;
    const uint32_t      from   = FROM;
    kvcl_key_t          key;
    unsigned            i;

    params.dir_entries = 1 << 12;
    params.dram_bytes  = 16ull * RANKS * KEYS * BLOCK;
    params.block_bytes = BLOCK;
    params.replicas    = 2;
    open.flags         = KVCL_CACHE_WRITABLE;
    KVCL_TRY(kvcl_init(NULL, &me->ctx));
    KVCL_TRY(kvcl_comm_world(me->ctx, &me->world));
    KVCL_TRY(kvcl_cache_create(me->ctx, "own", &layout, NULL, &me->cache));
    KVCL_TRY(kvcl_cache_create(me->ctx, "open", &wide, &open, &me->open));
    KVCL_TRY(kvcl_store_open(me->world, &params, &me->store));
    for (i = 0; !is_zombie(me->rank) && (i < KEYS); ++i) {
        key = key_of("member", me->rank, i);
        fill(me, FROM, me->rank, i, 0);
        KVCL_TRY(end_of(kvcl_store_put(me->store, &key, 1, me->cache, &from, NULL, &req), &req));
    }
    KVCL_TRY(end_of(kvcl_barrier(me->world, NULL, &req), &req));
    s->ready += 1;
}

static int live(const void *arg, int rank)
{
    static me_t me;

    (void)arg;
    me.rank = rank;
    begin(&me);
    if (is_zombie(rank)) {
        be_zombie(&me);
    } else {
        be_member(&me);
    }
    s->done += 1;
    while (s->done < RANKS) { /* nobody leaves before all have looked */
        usleep(1000);
    }
    kvcl_store_close(me.store);
    kvcl_cache_destroy(me.open);
    kvcl_cache_destroy(me.cache);
    kvcl_finalize(me.ctx);
    return 0;
}

/* ---- the parent ---- */

static bool wait_until(const _Atomic int *count, int n)
{
    const uint64_t end = kvcl_now_ns() + (LONG_S * UINT64_C(1000000000));

    while ((atomic_load((_Atomic int *)(uintptr_t)count) < n) && (kvcl_now_ns() < end) && !s->lost_member) {
        usleep(500);
    }
    return atomic_load((_Atomic int *)(uintptr_t)count) >= n;
}

static void signal_zombies(const pid_t *pids, int sig)
{
    int i;

    for (i = 0; i < RANKS; ++i) {
        if (is_zombie(i)) {
            kill(pids[i], sig);
        }
    }
}

static void end_job(const pid_t *pids, bool *right)
{
    int i;

    for (i = 0; i < RANKS; ++i) {
        if (!*right) {
            kill(pids[i], SIGKILL);
        }
    }
    for (i = 0; i < RANKS; ++i) {
        *right = rank_ends_well(pids[i]) && *right;
    }
}

/* @return 1: all is right, 0: it is not, -1: a member was excluded as well. */
static int run(unsigned job)
{
    pid_t    pids[RANKS];
    unsigned tried = 0, well = 0, i;
    bool     right;

    memset(s, 0, sizeof(*s));
    for (zombies = 0, i = 0; i < ZOMBIES; ++i) {
        zombies |= 1u << ((job + (i * (1 + (job % 2)))) % RANKS);
    }
    start_ranks(RANKS, live, NULL, pids);
    right = wait_until(&s->ready, RANKS);
    usleep(50000 + (7000 * (job % 8)));
    signal_zombies(pids, SIGSTOP);
    right      = right && wait_until(&s->excluding, RANKS - ZOMBIES);
    s->resumed = true;
    signal_zombies(pids, SIGCONT);
    right   = right && wait_until(&s->told, ZOMBIES);
    s->over = true;
    right   = right && wait_until(&s->again, RANKS - ZOMBIES);
    end_job(pids, &right);
    for (i = 0; i < KINDS; ++i) {
        tried += s->tried[i];
        well  += (i != WRITE) ? s->well[i] : 0;
        sum[i] += s->tried[i];
    }
    right = right && (well == 0) && (s->messages == 0) && (s->found == 0) && (s->wrong == 0) && (s->missing == 0) &&
            (s->gets != 0);
    if (s->lost_member) {
        printf("none: job %u: a member was excluded as well\n", job);
        return -1;
    }
    printf("%s job %u, zombies 0x%02x: %u calls and %u messages after they went on, %u well, %u stale; members: %u "
           "late messages, %u late keys, of %u gets %u wrong, %u missing; blocks written late %u\n",
           right ? "ok" : "WRONG", job, zombies, tried, s->burst, well, s->stale, s->messages, s->found, s->gets,
           s->wrong, s->missing, s->written);
    sum_burst   += s->burst;
    sum_stale   += s->stale;
    sum_gets    += s->gets;
    sum_written += s->written;
    return right ? 1 : 0;
}

int main(int argc, char **argv)
{
    const int wanted = (argc > 1) ? atoi(argv[1]) : 2 * ZOMBIES;
    unsigned  job, i, none = 0, wrong = 0, well = 0;
    int       result;

    s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    set_views((argc > 2) ? (unsigned)atoi(argv[2]) : STOPPED_MS);
    for (job = 0; ((int)(well + wrong) * ZOMBIES < wanted) && (wrong == 0) && (none <= 2 + well); ++job) {
        result = run(job);
        none  += (result < 0) ? 1 : 0;
        wrong += (result == 0) ? 1 : 0;
        well  += (result > 0) ? 1 : 0;
        fflush(stdout);
    }
    printf("%u zombies in %u jobs, %u wrong, %u that count for nothing; they called", ZOMBIES * (well + wrong),
           well + wrong, wrong, none);
    for (i = 0; i < KINDS; ++i) {
        printf(" %s %u", kinds[i], sum[i]);
    }
    printf(", and %u messages; %u ended with KVCL_ERR_STALE; %u gets of members were compared; %u blocks written "
           "late\n", sum_burst, sum_stale, sum_gets, sum_written);
    return ((wrong == 0) && ((int)well * ZOMBIES >= wanted)) ? 0 : 1;
}
