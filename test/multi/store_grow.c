/*
 * Stores to which processes come that have joined the job (KVCL_STORE_JOIN), and that ranks leave (kvcl_leave), while
 * others put and get, and are killed.
 * All processes are forked here, and do what the parent tells them by memory that all share. In between they put new
 * keys, and get any key that was acknowledged before the get began: it must be found, with its bytes.
 *   store_grow [CASE]   prints "ok CASE ..." or "WRONG CASE ..."; exit 1 if it is wrong
 *
 * come     3 ranks of 5 slots; two processes come at once; then rank 1 is killed, and another one comes in its slot;
 *          then rank 0 is killed. After each step all ranks look up all keys
 * killed   a process is killed while it comes, at a time by seed; another one comes in its slot
 * leave    single copies: a rank leaves by kvcl_leave, then one that had come; nothing is lost at any time
 * struck   two copies: while a rank leaves, another one is killed, at a time by seed; and one that leaves is killed
 * refused  other replicas, another block size, no store, no views
 */
#include "grow_keys.h"
#include "start_ranks.h"
#include "base/clock.h"

#include <kvcl/kvcl.h>

#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

enum { SLOTS = 5, RANKS = 3, PROCS = 16, KEYS = 300, LONG_S = 60 };
enum { LONGER_MS = 500 }; /* a get while others come; 50 where each rank has a processor */

typedef enum { NOTHING, OPEN, JOIN, LOOK, COPIES, BEGIN, PAUSE, LEAVE, END } what_t;

typedef struct proc {
    _Atomic int      ready, status, rank, asked, done, result;
    char             address[64], sentence[256];
    what_t           what;
    uint64_t         replicas, block_bytes; /* of OPEN and JOIN */
    _Atomic int      acked[KEYS];           /* the put of this key has ended well */
    _Atomic unsigned n_put, n_got, lost, wrong, failed;
    _Atomic uint64_t longest_ns;            /* of its gets */
} proc_t;

typedef struct shared {
    proc_t procs[PROCS];
} shared_t;

typedef struct me {
    proc_t         *proc;
    kvcl_context_h ctx;
    kvcl_comm_h    world;
    kvcl_store_h   store;
    kvcl_cache_h   cache;
    kvcl_rand_t    rnd;
    bool           works;
} me_t;

static shared_t *shared;
static int      n_procs;
static pid_t    pids[PROCS];
static bool     alive[PROCS];
static char     why[200];

/* ---- a process ---- */

static void put_next(me_t *me)
{
    static uint64_t words[WORDS];
    unsigned        i   = atomic_load(&me->proc->n_put);
    kvcl_key_t      key = key_of((int)(me->proc - shared->procs), i);
    uint32_t        id  = 0;
    kvcl_req_h      req;
    kvcl_status_t   status;

    expected(&key, words);
    KVCL_TRY(kvcl_cache_write_block(me->cache, id, words, sizeof(words)));
    status = wait_for(kvcl_store_put(me->store, &key, 1, me->cache, &id, NULL, &req), &req);
    if (status != KVCL_OK) {
        fprintf(stderr, "process %d: put %u: %s\n", (int)(me->proc - shared->procs), i, kvcl_last_error());
        ++me->proc->failed;
        return;
    }
    atomic_store(&me->proc->acked[i], 1);
    ++me->proc->n_put;
}

static void get(me_t *me, int of, unsigned i)
{
    static uint64_t want[WORDS], got[WORDS];
    kvcl_key_t      key  = key_of(of, i);
    uint64_t        from = kvcl_now_ns();
    uint32_t        id   = 1;
    kvcl_req_h      req;
    kvcl_status_t   status;

    if (atomic_load(&shared->procs[of].acked[i]) == 0) {
        return;
    }
    status = wait_for(kvcl_store_get(me->store, &key, 1, me->cache, &id, NULL, NULL, &req), &req);
    from   = kvcl_now_ns() - from;
    if (from > atomic_load(&me->proc->longest_ns)) {
        atomic_store(&me->proc->longest_ns, from);
    }
    ++me->proc->n_got;
    if (status != KVCL_OK) {
        fprintf(stderr, "rank %d: key %d/%u is not found: %s\n", atomic_load(&me->proc->rank), of, i,
                kvcl_status_text(status));
        ++me->proc->lost;
        return;
    }
    KVCL_TRY(kvcl_cache_read_block(me->cache, id, got, sizeof(got)));
    expected(&key, want);
    me->proc->wrong += (memcmp(want, got, sizeof(want)) != 0) ? 1 : 0;
}

static kvcl_status_t open_store(me_t *me, bool join)
{
    kvcl_store_params_t params = KVCL_STORE_PARAMS_INIT;

    params.flags       = join ? KVCL_STORE_JOIN : 0;
    params.dir_entries = 1 << 16;
    params.block_bytes = me->proc->block_bytes;
    params.dram_bytes  = 8ull * KEYS * BLOCK;
    params.replicas    = me->proc->replicas;
    return kvcl_store_open(me->world, &params, &me->store);
}

static void look(me_t *me)
{
    int      of;
    unsigned i;

    for (of = 0; of < PROCS; ++of) {
        for (i = 0; i < KEYS; ++i) {
            get(me, of, i);
        }
    }
}

/* Until each acknowledged key has two copies again. */
static kvcl_status_t wait_copies(me_t *me)
{
    uint64_t            end = kvcl_now_ns() + (LONG_S * UINT64_C(1000000000));
    kvcl_store_places_t places;
    unsigned            few, i;
    kvcl_key_t          key;
    int                 of;

    do {
        few = 0;
        for (of = 0; of < PROCS; ++of) {
            for (i = 0; i < KEYS; ++i) {
                key = key_of(of, i);
                if ((atomic_load(&shared->procs[of].acked[i]) != 0) &&
                    ((kvcl_store_where(me->store, &key, 1, &places, sizeof(places), NULL) != KVCL_OK) ||
                     (places.n < 2))) {
                    ++few;
                }
            }
        }
        usleep(few != 0 ? 5000 : 0);
    } while ((few != 0) && (kvcl_now_ns() < end));
    return (few == 0) ? KVCL_OK : KVCL_ERR_TIMED_OUT;
}

static kvcl_status_t do_task(me_t *me)
{
    switch (me->proc->what) {
    case OPEN:
        return open_store(me, false);
    case JOIN:
        return open_store(me, true);
    case LOOK:
        look(me);
        return KVCL_OK;
    case COPIES:
        return wait_copies(me);
    case BEGIN:
        me->works = true;
        return KVCL_OK;
    case PAUSE:
        me->works = false;
        return KVCL_OK;
    case LEAVE:
        me->works = false;
        return kvcl_leave(me->ctx, UINT64_C(60000000000));
    default:
        return KVCL_OK;
    }
}

static void work(me_t *me)
{
    if ((kvcl_rand_next(&me->rnd) % 4 == 0) && (atomic_load(&me->proc->n_put) < KEYS)) {
        put_next(me);
    } else {
        get(me, (int)(kvcl_rand_next(&me->rnd) % PROCS), (unsigned)(kvcl_rand_next(&me->rnd) % KEYS));
    }
}

static int run(proc_t *proc)
{
    kvcl_layout_t layout = KVCL_LAYOUT_BYTES(2, BLOCK);
    kvcl_status_t status;
    static me_t   me;
    size_t        len;
    int           asked;

    me.proc = proc;
    kvcl_rand_seed(&me.rnd, kvcl_now_ns());
    status = kvcl_init(NULL, &me.ctx);
    snprintf(proc->sentence, sizeof(proc->sentence), "%s", (status == KVCL_OK) ? "" : kvcl_last_error());
    if (status == KVCL_OK) {
        KVCL_TRY(kvcl_comm_world(me.ctx, &me.world));
        KVCL_TRY(kvcl_join_address(me.ctx, proc->address, sizeof(proc->address), &len));
        KVCL_TRY(kvcl_cache_create(me.ctx, "c", &layout, NULL, &me.cache));
        atomic_store(&proc->rank, kvcl_comm_rank(me.world));
    }
    atomic_store(&proc->status, status);
    atomic_store(&proc->ready, 1);
    while (status == KVCL_OK) {
        asked = atomic_load(&proc->asked);
        if (asked == atomic_load(&proc->done)) {
            if (me.works) {
                work(&me);
            } else {
                usleep(500);
            }
            continue;
        }
        if (proc->what == END) {
            kvcl_store_close(me.store);
            kvcl_cache_destroy(me.cache);
            kvcl_finalize(me.ctx);
            break;
        }
        atomic_store(&proc->result, do_task(&me));
        if (atomic_load(&proc->result) != KVCL_OK) {
            snprintf(proc->sentence, sizeof(proc->sentence), "%s", kvcl_last_error());
        }
        atomic_store(&proc->done, asked);
    }
    return 0;
}

static int live(const void *arg, int rank)
{
    (void)arg;
    return run(&shared->procs[rank]);
}

/* ---- the parent ---- */

static bool fail(const char *what, int of)
{
    if (why[0] == '\0') {
        snprintf(why, sizeof(why), "%s (%d)", what, of);
    }
    return false;
}

static bool wait_value(_Atomic int *flag, int value)
{
    uint64_t end = kvcl_now_ns() + (LONG_S * UINT64_C(1000000000));

    while (atomic_load(flag) != value) {
        if (kvcl_now_ns() > end) {
            return false;
        }
        usleep(500);
    }
    return true;
}

static void ask(int proc, what_t what)
{
    shared->procs[proc].what = what;
    atomic_fetch_add(&shared->procs[proc].asked, 1);
}

static bool ends(int proc, kvcl_status_t status)
{
    proc_t *p = &shared->procs[proc];

    if (!wait_value(&p->done, atomic_load(&p->asked))) {
        return fail("a process does not end its task", proc);
    }
    if (atomic_load(&p->result) != status) {
        fprintf(stderr, "process %d, task %d: %s: %s\n", proc, (int)p->what,
                kvcl_status_name((kvcl_status_t)atomic_load(&p->result)), p->sentence);
        return fail("a process's task has another result", proc);
    }
    return true;
}

static bool all_do(what_t what)
{
    bool right = true;
    int  i;

    for (i = 0; i < n_procs; ++i) {
        if (alive[i]) {
            ask(i, what);
        }
    }
    for (i = 0; i < n_procs; ++i) {
        right = right && (!alive[i] || ends(i, KVCL_OK));
    }
    return right;
}

static bool is_there(int proc)
{
    proc_t *p = &shared->procs[proc];

    if (!wait_value(&p->ready, 1) || (atomic_load(&p->status) != KVCL_OK)) {
        fprintf(stderr, "process %d: %s\n", proc, p->sentence);
        return fail("a process does not start", proc);
    }
    return true;
}

static bool start(int n)
{
    bool right = true;
    int  i;

    memset(shared, 0, sizeof(*shared));
    memset(alive, 0, sizeof(alive));
    why[0] = '\0';
    for (i = 0; i < PROCS; ++i) {
        shared->procs[i].replicas    = 2;
        shared->procs[i].block_bytes = BLOCK;
    }
    n_procs = n;
    start_ranks(n, live, NULL, pids);
    for (i = 0; i < n; ++i) {
        alive[i] = true;
        right    = right && is_there(i);
    }
    return right;
}

/* @return the number of a process that joins the job, as this rank or (-1) any. */
static int come(int rank)
{
    char  text[16], addresses[PROCS * 64] = "";
    int   n = n_procs++, i;
    pid_t pid;

    for (i = 0; i < n; ++i) {
        if (alive[i]) {
            snprintf(addresses + strlen(addresses), sizeof(addresses) - strlen(addresses), "%s%s",
                     (addresses[0] != '\0') ? "," : "", shared->procs[i].address);
        }
    }
    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        snprintf(text, sizeof(text), "%d", rank);
        setenv("KVCL_RANK", text, 1);
        setenv("KVCL_JOIN", addresses, 1);
        alarm(RANK_LIVES_S);
        _exit(run(&shared->procs[n]));
    }
    pids[n]  = pid;
    alive[n] = true;
    return n;
}

static void kill_proc(int proc)
{
    kill(pids[proc], SIGKILL);
    (void)waitpid(pids[proc], NULL, 0);
    alive[proc] = false;
}

/* A process that joins the job comes to the store as well. */
static bool comes_to_store(int proc)
{
    if (!is_there(proc)) {
        return false;
    }
    ask(proc, JOIN);
    return ends(proc, KVCL_OK);
}

static bool finish(const char *name, bool right, uint64_t seed)
{
    unsigned puts = 0, gets = 0, lost = 0, wrong = 0, failed = 0;
    uint64_t longest = 0;
    int      i, status;

    for (i = 0; i < n_procs; ++i) {
        const proc_t *p = &shared->procs[i];

        if (alive[i] && right) {
            ask(i, END);
        } else if (alive[i]) {
            kill(pids[i], SIGKILL);
        }
        puts    += p->n_put;
        gets    += p->n_got;
        lost    += p->lost;
        wrong   += p->wrong;
        failed  += p->failed;
        longest  = (p->longest_ns > longest) ? p->longest_ns : longest;
    }
    for (i = 0; i < n_procs; ++i) {
        if (alive[i] && ((waitpid(pids[i], &status, 0) != pids[i]) || !WIFEXITED(status) ||
                         (WEXITSTATUS(status) != 0)) && right) {
            right = fail("a process ends badly", i);
        }
    }
    if ((lost + wrong + failed) != 0) {
        right = fail("keys were not found, or puts failed", (int)lost);
    }
    printf("%s %s, seed %llu: %u puts, %u gets, the longest %.0f ms; not found %u, wrong %u, failed puts %u%s%s\n",
           right ? "ok" : "WRONG", name, (unsigned long long)seed, puts, gets, (double)longest / 1e6, lost, wrong,
           failed, right ? "" : ": ", right ? "" : why);
    fflush(stdout);
    return right;
}

/* The longest get of the first ranks since the last call of this, in ms. */
static double longest_get(void)
{
    uint64_t longest = 0, one;
    int      i;

    for (i = 0; i < RANKS; ++i) {
        one     = atomic_exchange(&shared->procs[i].longest_ns, 0);
        longest = (one > longest) ? one : longest;
    }
    return (double)longest / 1e6;
}

static bool case_come(uint64_t seed)
{
    bool   right = start(RANKS) && all_do(OPEN) && all_do(BEGIN);
    int    a, b;
    double before, then;

    if (right) {
        (void)longest_get();
        usleep(500000);
        before = longest_get();
        a      = come(-1);
        b     = come(-1);
        right = is_there(a) && is_there(b);
        ask(a, JOIN);
        ask(b, JOIN);
        right = right && ends(a, KVCL_OK) && ends(b, KVCL_OK);
        then  = longest_get();
        printf("   the longest get of the others: %.1f ms before two come, %.1f ms meanwhile\n", before, then);
        right = right && ((then < before + LONGER_MS) || fail("gets take longer while two come: ms", (int)then)) &&
                all_do(BEGIN) && all_do(LOOK) && all_do(COPIES);
    }
    if (right) {
        kill_proc(1);
        right = comes_to_store(come(1)) && all_do(BEGIN) && all_do(LOOK) && all_do(COPIES);
    }
    if (right) {
        kill_proc(0);
        right = all_do(LOOK) && all_do(COPIES) && all_do(PAUSE) && all_do(LOOK);
    }
    return finish("come", right, seed);
}

static bool case_killed(uint64_t seed)
{
    bool        right = start(RANKS) && all_do(OPEN) && all_do(BEGIN);
    kvcl_rand_t rnd;
    int         i, proc;

    kvcl_rand_seed(&rnd, seed);
    for (i = 0; right && (i < 3); ++i) {
        proc  = come(RANKS);
        right = is_there(proc);
        ask(proc, JOIN);
        usleep((useconds_t)(kvcl_rand_next(&rnd) % 60000));
        kill_proc(proc);
        right = right && all_do(LOOK);
    }
    right = right && comes_to_store(come(RANKS)) && all_do(BEGIN) && all_do(LOOK) && all_do(COPIES) &&
            all_do(PAUSE) && all_do(LOOK);
    return finish("killed", right, seed);
}

/* After kvcl_leave() a process can only end. */
static void let_end(int proc)
{
    ask(proc, END);
    (void)waitpid(pids[proc], NULL, 0);
    alive[proc] = false;
}

static bool case_leave(uint64_t seed)
{
    bool right = start(RANKS);
    int  proc, i;

    for (i = 0; i < PROCS; ++i) {
        shared->procs[i].replicas = 1;
    }
    right = right && all_do(OPEN) && all_do(BEGIN) && comes_to_store(proc = come(-1)) && all_do(BEGIN);
    if (right) {
        usleep(300000); /* the one that came has blocks as well */
        ask(1, LEAVE);
        right = ends(1, KVCL_OK);
        let_end(1);
        right = right && all_do(LOOK);
        ask(proc, LEAVE);
        right = right && ends(proc, KVCL_OK);
        let_end(proc);
        right = right && all_do(LOOK) && all_do(PAUSE) && all_do(LOOK);
    }
    return finish("leave", right, seed);
}

static bool case_struck(uint64_t seed)
{
    bool        right = start(RANKS) && all_do(OPEN) && all_do(BEGIN) && comes_to_store(come(-1)) && all_do(BEGIN);
    kvcl_rand_t rnd;

    kvcl_rand_seed(&rnd, seed);
    right = right && all_do(COPIES);
    if (right) {
        ask(1, LEAVE);
        usleep((useconds_t)(kvcl_rand_next(&rnd) % 60000));
        kill_proc(2);
        right = ends(1, KVCL_OK);
        let_end(1);
        right = right && all_do(LOOK) && comes_to_store(come(1)) && all_do(BEGIN) && all_do(COPIES);
    }
    if (right) {
        ask(RANKS, LEAVE);
        usleep((useconds_t)(kvcl_rand_next(&rnd) % 60000));
        kill_proc(RANKS);
        right = all_do(LOOK) && all_do(COPIES) && all_do(PAUSE) && all_do(LOOK);
    }
    return finish("struck", right, seed);
}

static bool refuses(int proc, what_t what, kvcl_status_t status, const char *word)
{
    ask(proc, what);
    if (!ends(proc, status)) {
        return false;
    }
    return (strstr(shared->procs[proc].sentence, word) != NULL) || fail(shared->procs[proc].sentence, proc);
}

static bool case_refused(uint64_t seed)
{
    bool right = start(2);
    int  proc;

    if (right) {
        proc  = come(-1);
        right = is_there(proc) && refuses(proc, JOIN, KVCL_ERR_NOT_FOUND, "KVCL_STORE_JOIN");
        alive[proc] = false; /* the collective open is the first two ranks' only: this one is killed */
        kill_proc(proc);
        right = right && all_do(OPEN) && all_do(BEGIN);
        proc  = come(-1);
        right = right && is_there(proc);
        shared->procs[proc].replicas = 1;
        right = right && refuses(proc, JOIN, KVCL_ERR_INVALID_PARAM, "replicas");
        shared->procs[proc].replicas    = 0;
        shared->procs[proc].block_bytes = 2 * BLOCK;
        right = right && refuses(proc, JOIN, KVCL_ERR_INVALID_PARAM, "block size");
        shared->procs[proc].block_bytes = BLOCK;
        ask(proc, JOIN);
        right = right && ends(proc, KVCL_OK) && all_do(BEGIN) && all_do(LOOK);
        right = right && refuses(proc, JOIN, KVCL_ERR_NOT_FOUND, "takes no part");
    }
    return finish("refused", right, seed);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        bool       (*run)(uint64_t seed);
    } cases[] = {{"come", case_come}, {"killed", case_killed}, {"leave", case_leave}, {"struck", case_struck},
                 {"refused", case_refused}};
    const char *text = getenv("TEST_SEED");
    uint64_t   seed  = (text != NULL) ? strtoull(text, NULL, 10) : kvcl_now_ns() % 1000000;
    unsigned   bad   = 0, i;
    char       slots[8];

    snprintf(slots, sizeof(slots), "%d", SLOTS);
    set_views(STOPPED_MS); /* leaving takes about as long */
    setenv("KVCL_SLOTS", slots, 1);
    setenv("KVCL_JOIN_AT", "127.0.0.1:0", 1);
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        if ((argc < 2) || (strcmp(argv[1], cases[i].name) == 0)) {
            bad += cases[i].run(seed) ? 0 : 1;
        }
    }
    return (bad == 0) ? 0 : 1;
}
