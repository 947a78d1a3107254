/*
 * The simulator of coll_sim.h. One static error text, all other state in one sim_t. What the bytes are is in
 * coll_sim_bytes.c.
 */
#include "config.h"

#include "test/unit/coll_sim.h"
#include "test/unit/coll_sim_bytes.h"

#include "base/rand.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { EARLY_PER_PEER = KVCL_EXEC_ANNOUNCES + 1, MOST_EVENTS = 20000000 };

typedef enum { ITEM_START, ITEM_ANNOUNCE, ITEM_ACK, ITEM_ABORT, ITEM_PULL, ITEM_GONE } item_kind_t;

typedef struct item {
    item_kind_t   kind;
    uint32_t      to; /* the rank of the event */
    uint32_t      from;
    uint32_t      k;
    uint32_t      step;
    uint32_t      signature;
    uint32_t      round;
    uint64_t      off;
    uint64_t      peer_off;
    uint64_t      with;
    uint64_t      len;
    kvcl_status_t status;
    uint8_t       *bytes; /* of an announcement that carries them, else NULL */
} item_t;

typedef enum { RANK_ASLEEP, RANK_RUNNING, RANK_ENDED, RANK_FREED, RANK_DEAD } rank_state_t;

typedef struct sim_rank {
    rank_state_t       state;
    kvcl_status_t      status;
    kvcl_coll_shape_t  shape;
    kvcl_plan_t        plan;
    kvcl_exec_t        exec;
    void              *memory;
    item_t            *early; /* items that arrived before it started, in order */
    uint32_t           n_early;
    sim_bytes_t        out;     /* what RECVs name */
    sim_bytes_t        in;      /* what SENDs name; of one buffer the same pointers */
    uint32_t          *rounds; /* per step */
    uint8_t           **eager; /* per step: the bytes that came with its announcement */
    uint32_t           pulls;
} sim_rank_t;

typedef struct sim {
    const kvcl_coll_alg_t *alg;
    const sim_params_t    *params;
    sim_result_t          *result;
    kvcl_rand_t            rnd;
    sim_rank_t            *ranks;
    item_t                *items;
    size_t                 first; /* in_order: the oldest */
    size_t                 count;
    size_t                 capacity;
    uint64_t               events;
    uint64_t               fault_at;
    int                    faulted;
    int                    wrong;
    int                    no_acks;
    void                  *copies; /* of bytes in announcements */
} sim_t;

static char sim_text[512];

static void complain(sim_t *sim, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void complain(sim_t *sim, const char *fmt, ...)
{
    char    what[256];
    va_list args;

    if (sim->wrong) {
        return;
    }
    va_start(args, fmt);
    vsnprintf(what, sizeof(what), fmt, args);
    va_end(args);
    snprintf(sim_text, sizeof(sim_text), "%s of %u ranks, root %u, %llu bytes, chunk %llu, seed %llu, fault %d: %s",
             sim->alg->name, sim->params->shape.size, sim->params->shape.root,
             (unsigned long long)sim->params->shape.len, (unsigned long long)sim->params->shape.chunk,
             (unsigned long long)sim->params->seed, (int)sim->params->fault, what);
    sim->wrong = 1;
}

static void put_item(sim_t *sim, const item_t *item)
{
    if (sim->first + sim->count == sim->capacity) {
        if (sim->first > 0) {
            memmove(sim->items, sim->items + sim->first, sim->count * sizeof(*sim->items));
            sim->first = 0;
        }
        if (sim->count * 2 >= sim->capacity) {
            sim->capacity = (sim->capacity == 0) ? 256 : (sim->capacity * 2);
            sim->items    = realloc(sim->items, sim->capacity * sizeof(*sim->items));
            if (sim->items == NULL) {
                abort();
            }
        }
    }
    sim->items[sim->first + sim->count++] = *item;
}

static item_t take_item(sim_t *sim)
{
    size_t i = sim->first;
    item_t item;

    if (sim->params->in_order) {
        item = sim->items[i];
        ++sim->first;
        --sim->count;
        return item;
    }
    i += kvcl_rand_below(&sim->rnd, sim->count);
    item = sim->items[i];
    --sim->count;
    sim->items[i] = sim->items[sim->first + sim->count];
    return item;
}

static void check_have(sim_t *sim, uint32_t r, uint64_t off, uint64_t len, const char *when)
{
    if (sim->ranks[r].state == RANK_FREED) {
        complain(sim, "%s reads rank %u's buffer, which was released", when, r);
    } else if ((off > sim->ranks[r].in.len) || (len > sim->ranks[r].in.len - off)) {
        complain(sim, "%s is outside rank %u's buffer", when, r);
    } else if ((len > 0) && (memchr(sim->ranks[r].in.have + off, 0, len) != NULL)) {
        complain(sim, "%s of %llu+%llu at rank %u before the bytes are there", when, (unsigned long long)off,
                 (unsigned long long)len, r);
    }
}

static void send_item(sim_t *sim, item_kind_t kind, uint32_t from, const kvcl_exec_action_t *action, uint32_t round)
{
    put_item(sim, &(item_t){
                          .kind      = kind,
                          .to        = action->peer,
                          .from      = from,
                          .k         = action->k,
                          .off       = action->off,
                          .len       = action->len,
                          .signature = action->signature,
                          .status    = action->status,
                          .round     = round,
                  });
}

static void announce(sim_t *sim, uint32_t r, const kvcl_exec_action_t *action, uint32_t round)
{
    ++sim->result->announces;
    check_have(sim, r, action->off, action->len, "an announcement");
    send_item(sim, ITEM_ANNOUNCE, r, action, round);
    if (sim->no_acks && (action->len > 0) && !sim->wrong) {
        sim->items[sim->first + sim->count - 1].bytes = sim_copy(&sim->copies, sim->ranks[r].in.bytes + action->off,
                                                                 action->len);
        (void)!kvcl_exec_acked(&sim->ranks[r].exec, action->peer, action->k); /* a refusal hangs the sender */
    }
}

static void do_action(sim_t *sim, uint32_t r, const kvcl_exec_action_t *action)
{
    sim_rank_t        *rank = &sim->ranks[r];
    const kvcl_step_t *step = (action->step == KVCL_STEP_NONE) ? NULL : &rank->plan.steps[action->step];

    switch (action->op) {
    case KVCL_EXEC_ANNOUNCE:
        announce(sim, r, action, (step->after == KVCL_STEP_NONE) ? 0 : rank->rounds[step->after]);
        break;
    case KVCL_EXEC_ACK:
        if (!sim->no_acks) {
            ++sim->result->acks;
            send_item(sim, ITEM_ACK, r, action, 0);
        }
        break;
    case KVCL_EXEC_ABORT:
        send_item(sim, ITEM_ABORT, r, action, 0);
        break;
    case KVCL_EXEC_PULL:
        ++rank->pulls;
        if (rank->pulls > sim->result->most_pulls) {
            sim->result->most_pulls = rank->pulls;
        }
        put_item(sim, &(item_t){
                              .kind     = ITEM_PULL,
                              .to       = r,
                              .from     = action->peer,
                              .step     = action->step,
                              .off      = action->off,
                              .peer_off = action->peer_off,
                              .with     = action->with,
                              .len      = action->len,
                      });
        break;
    }
}

static void run_rank(sim_t *sim, uint32_t r)
{
    sim_rank_t        *rank = &sim->ranks[r];
    kvcl_exec_action_t action;

    if (rank->state == RANK_DEAD) {
        return;
    }
    while (kvcl_exec_next(&rank->exec, &action)) {
        do_action(sim, r, &action);
    }
    if (rank->state == RANK_RUNNING) {
        rank->status = kvcl_exec_status(&rank->exec);
        if (rank->status != KVCL_INPROGRESS) {
            rank->state = RANK_ENDED;
        }
    }
    if ((rank->state == RANK_ENDED) && kvcl_exec_released(&rank->exec)) {
        rank->state = RANK_FREED;
    }
}

static void check_barrier(sim_t *sim, uint32_t r)
{
    uint32_t i;

    if ((sim->ranks[r].state != RANK_ENDED) && (sim->ranks[r].state != RANK_FREED)) {
        return;
    }
    for (i = 0; (sim->ranks[r].status == KVCL_OK) && (i < sim->params->shape.size); ++i) {
        if (sim->ranks[i].state == RANK_ASLEEP) {
            complain(sim, "rank %u left the barrier before rank %u came", r, i);
        }
    }
}

static kvcl_status_t feed(sim_rank_t *rank, const item_t *item)
{
    kvcl_status_t status;
    uint32_t      peer;
    int           failed;

    switch (item->kind) {
    case ITEM_ANNOUNCE:
        peer   = kvcl_plan_find_peer(&rank->plan, item->from);
        failed = (rank->exec.status != KVCL_OK);
        status = kvcl_exec_announced(&rank->exec, item->from, item->k, item->off, item->len, item->signature);
        if ((status == KVCL_OK) && !failed && (item->bytes != NULL)) {
            rank->eager[rank->plan.index[rank->plan.peers[peer].first_recv + item->k]] = item->bytes;
            kvcl_exec_has_bytes(&rank->exec, item->from, item->k);
        }
        return status;
    case ITEM_ACK:
        return kvcl_exec_acked(&rank->exec, item->from, item->k);
    default:
        return kvcl_exec_aborted(&rank->exec, item->from, item->status);
    }
}

static void start_rank(sim_t *sim, uint32_t r)
{
    sim_rank_t *rank = &sim->ranks[r];
    uint32_t   i;

    if (rank->state != RANK_ASLEEP) {
        return;
    }
    rank->state = RANK_RUNNING;
    kvcl_exec_init(&rank->exec, &rank->plan, rank->memory, &sim->params->limits);
    for (i = 0; i < rank->n_early; ++i) {
        if (feed(rank, &rank->early[i]) != KVCL_OK) {
            complain(sim, "rank %u refused what came early: %s", r, kvcl_last_error());
        }
    }
}

/* An honest rank sends to a rank that has not started at most what src/coll/coll_early.c keeps of it. */
static void keep_early(sim_t *sim, const item_t *item)
{
    sim_rank_t *rank = &sim->ranks[item->to];
    uint32_t   i, n = 0;

    for (i = 0; i < rank->n_early; ++i) {
        n += (rank->early[i].from == item->from);
    }
    if (n == EARLY_PER_PEER) {
        complain(sim, "rank %u says too much to rank %u, which has not started", item->from, item->to);
        return;
    }
    rank->early[rank->n_early++] = *item;
}

static void answer_abort(sim_t *sim, const item_t *item)
{
    kvcl_exec_action_t action = {.op = KVCL_EXEC_ABORT, .peer = item->from, .status = KVCL_ERR_CANCELED};

    send_item(sim, ITEM_ABORT, item->to, &action, 0);
}

/* A message to a rank that has not started, or that has ended and been freed. */
static void message_outside(sim_t *sim, const item_t *item)
{
    sim_rank_t *rank = &sim->ranks[item->to];

    if (rank->state == RANK_FREED) {
        if (sim->params->fault == SIM_NO_FAULT) {
            complain(sim, "a message to rank %u, which has ended", item->to);
        } else if (item->kind == ITEM_ANNOUNCE) {
            answer_abort(sim, item);
        }
        return;
    }
    if (item->kind != ITEM_ACK) {
        keep_early(sim, item);
    }
    if (item->kind == ITEM_ABORT) {
        answer_abort(sim, item);
    }
}

/* Record the step of an announcement or of the end of a pull in the chain of rounds. */
static void note_round(sim_t *sim, uint32_t r, uint32_t index, uint32_t round)
{
    sim_rank_t        *rank = &sim->ranks[r];
    const kvcl_step_t *step = &rank->plan.steps[index];

    if ((step->after != KVCL_STEP_NONE) && (rank->rounds[step->after] > round)) {
        round = rank->rounds[step->after];
    }
    ++round;
    rank->rounds[index] = round;
    if (round > sim->result->rounds) {
        sim->result->rounds = round;
    }
}

static void note_announced(sim_t *sim, const item_t *item)
{
    const kvcl_plan_t *plan = &sim->ranks[item->to].plan;
    uint32_t           peer = kvcl_plan_find_peer(plan, item->from);

    if ((peer != KVCL_STEP_NONE) && (item->k < plan->peers[peer].recvs)) {
        note_round(sim, item->to, plan->index[plan->peers[peer].first_recv + item->k], item->round);
    }
}

static void take_bytes(sim_t *sim, const item_t *item)
{
    sim_bytes_t   *out  = &sim->ranks[item->to].out;
    const uint8_t *here = sim->ranks[item->to].eager[item->step];
    const uint8_t *from = (here != NULL) ? here : (sim->ranks[item->from].in.bytes + item->peer_off);

    if (item->with == KVCL_PLAN_COPY) {
        memcpy(out->bytes + item->off, from, item->len);
    } else if (memchr(out->have + item->with, 0, item->len) != NULL) {
        complain(sim, "rank %u reduces with bytes that are not there", item->to);
    } else if ((item->len % sim->params->shape.elem != 0) || (item->off % sim->params->shape.elem != 0)) {
        complain(sim, "rank %u cuts an element", item->to);
    } else if (item->from < item->to) {
        sim_reduce(out->bytes + item->off, from, out->bytes + item->with, item->len, sim->params->odd);
    } else {
        sim_reduce(out->bytes + item->off, out->bytes + item->with, from, item->len, sim->params->odd);
    }
    memset(out->have + item->off, 1, item->len);
}

static void end_pull(sim_t *sim, const item_t *item)
{
    sim_rank_t   *rank   = &sim->ranks[item->to];
    kvcl_status_t status = KVCL_OK;

    --rank->pulls;
    if (rank->state == RANK_DEAD) {
        return;
    }
    if (rank->state != RANK_RUNNING) {
        complain(sim, "a late byte in rank %u's buffer", item->to);
        return;
    }
    if ((sim->params->fault == SIM_PULL_FAILS) && !sim->faulted && (sim->events >= sim->fault_at)) {
        sim->faulted = 1;
        status       = KVCL_ERR_IO;
    } else if ((sim->ranks[item->from].state == RANK_DEAD) && (rank->eager[item->step] == NULL)) {
        status = KVCL_ERR_RANK_FAILED;
    } else {
        if (rank->eager[item->step] == NULL) {
            check_have(sim, item->from, item->peer_off, item->len, "a pull");
        }
        if (!sim->wrong) {
            take_bytes(sim, item);
            sim->result->pulled_bytes += item->len;
        }
    }
    status = kvcl_exec_pulled(&rank->exec, item->step, status);
    if (status != KVCL_OK) {
        complain(sim, "rank %u refused the end of its pull: %s", item->to, kvcl_last_error());
    }
}

static void do_item(sim_t *sim, const item_t *item)
{
    sim_rank_t   *rank   = &sim->ranks[item->to];
    kvcl_status_t status = KVCL_OK;

    if (item->kind == ITEM_START) {
        start_rank(sim, item->to);
    } else if (item->kind == ITEM_PULL) {
        end_pull(sim, item);
    } else if (rank->state == RANK_DEAD) {
        return;
    } else if (item->kind == ITEM_GONE) {
        start_rank(sim, item->to); /* so that the executor is tested, not the caller */
        kvcl_exec_peer_failed(&rank->exec, item->from, KVCL_ERR_RANK_FAILED);
    } else {
        if (item->kind == ITEM_ANNOUNCE) {
            note_announced(sim, item);
        }
        if ((rank->state == RANK_ASLEEP) || (rank->state == RANK_FREED)) {
            message_outside(sim, item);
            return;
        }
        status = feed(rank, item);
    }
    if (status != KVCL_OK) {
        complain(sim, "rank %u refused a message: %s", item->to, kvcl_last_error());
    }
    run_rank(sim, item->to);
}

static void do_fault(sim_t *sim)
{
    uint32_t victim = (uint32_t)kvcl_rand_below(&sim->rnd, sim->params->shape.size);
    uint32_t i;

    if ((sim->params->fault == SIM_NO_FAULT) || (sim->params->fault == SIM_PULL_FAILS) || sim->faulted ||
        (sim->events < sim->fault_at)) {
        return;
    }
    sim->faulted = 1;
    if (sim->params->fault == SIM_CANCEL) {
        start_rank(sim, victim);
        kvcl_exec_fail(&sim->ranks[victim].exec, KVCL_ERR_CANCELED);
        run_rank(sim, victim);
        return;
    }
    sim->ranks[victim].state = RANK_DEAD;
    for (i = 0; i < sim->params->shape.size; ++i) {
        if (i != victim) {
            put_item(sim, &(item_t){.kind = ITEM_GONE, .to = i, .from = victim});
        }
    }
}

static void check_bytes(sim_t *sim, uint32_t r)
{
    const kvcl_coll_shape_t shape = sim->ranks[r].shape;
    uint64_t                n, i;
    const uint8_t          *got = sim_result_of(sim->alg, &shape, &sim->ranks[r].out, &n);

    if (sim->params->odd && (sim->alg->kind == KVCL_COLL_REDUCE_SCATTER)) {
        return; /* no other rank has these */
    }
    for (i = 0; i < n; ++i) {
        if (sim->params->odd) {
            uint64_t       same;
            const uint8_t *first = sim_result_of(sim->alg, &shape, &sim->ranks[0].out, &same);

            if ((sim->ranks[0].state == RANK_FREED) && (sim->ranks[0].status == KVCL_OK) && (got[i] != first[i])) {
                complain(sim, "rank %u has another byte at %llu than rank 0", r, (unsigned long long)i);
                return;
            }
        } else if (got[i] != sim_expected(sim->alg->kind, &shape, i)) {
            complain(sim, "rank %u has a wrong byte at %llu", r, (unsigned long long)i);
            return;
        }
    }
}

static void check_end(sim_t *sim)
{
    uint32_t r;

    for (r = 0; r < sim->params->shape.size; ++r) {
        sim_rank_t *rank = &sim->ranks[r];

        if (rank->state == RANK_DEAD) {
            continue;
        }
        if (rank->state != RANK_FREED) {
            complain(sim, "rank %u never ends (state %d, status %d)", r, (int)rank->state, (int)rank->status);
            return;
        }
        ++*((rank->status == KVCL_OK) ? &sim->result->succeeded : &sim->result->failed);
        if (rank->status == KVCL_OK) {
            check_bytes(sim, r);
        }
    }
}

static void open_sim(sim_t *sim)
{
    kvcl_coll_shape_t shape;
    uint32_t          r, i;

    sim->no_acks = sim->params->no_acks;
    sim->ranks = calloc(sim->params->shape.size, sizeof(*sim->ranks));
    if (sim->ranks == NULL) {
        abort();
    }
    for (r = 0; (r < sim->params->shape.size) && !sim->wrong; ++r) {
        sim_rank_t *rank = &sim->ranks[r];

        shape      = sim->params->shape;
        shape.rank = r;
        sim_parts_init(sim->alg, &shape);
        rank->shape = shape;
        if (kvcl_coll_plan(sim->alg, &shape, &rank->plan) != KVCL_OK) {
            complain(sim, "no plan for rank %u: %s", r, kvcl_last_error());
            return;
        }
        rank->memory = malloc(kvcl_exec_bytes(&rank->plan) + 1);
        rank->rounds = calloc(rank->plan.count + 1, sizeof(*rank->rounds));
        rank->eager  = calloc(rank->plan.count + 1, sizeof(*rank->eager));
        rank->early  = malloc((size_t)shape.size * EARLY_PER_PEER * sizeof(*rank->early));
        if ((rank->early == NULL) || (rank->memory == NULL) || (rank->rounds == NULL) || (rank->eager == NULL)) {
            abort();
        }
        sim_bytes_init(sim->alg, &shape, &rank->in, &rank->out);
        for (i = 0; i < rank->plan.npeers; ++i) {
            sim->no_acks = sim->no_acks && (rank->plan.peers[i].sends <= KVCL_EXEC_ANNOUNCES);
        }
        put_item(sim, &(item_t){.kind = ITEM_START, .to = r});
    }
}

static void close_sim(sim_t *sim)
{
    uint32_t r;

    for (r = 0; r < sim->params->shape.size; ++r) {
        kvcl_plan_fini(&sim->ranks[r].plan);
        free(sim->ranks[r].memory);
        sim_bytes_fini(&sim->ranks[r].in, &sim->ranks[r].out);
        free(sim->ranks[r].rounds);
        free(sim->ranks[r].early);
        free(sim->ranks[r].eager);
        sim_parts_fini(&sim->ranks[r].shape);
    }
    sim_copies_fini(&sim->copies);
    free(sim->ranks);
    free(sim->items);
}

const char *sim_run(const kvcl_coll_alg_t *alg, const sim_params_t *params, sim_result_t *result)
{
    sim_t sim = {.alg = alg, .params = params, .result = result};

    memset(result, 0, sizeof(*result));
    kvcl_rand_seed(&sim.rnd, params->seed);
    sim.fault_at = kvcl_rand_below(&sim.rnd, params->shape.size * 6);
    open_sim(&sim);
    while ((sim.count > 0) && !sim.wrong) {
        item_t item = take_item(&sim);

        do_item(&sim, &item);
        if (alg->kind == KVCL_COLL_BARRIER) {
            check_barrier(&sim, item.to);
        }
        do_fault(&sim);
        if (++sim.events > MOST_EVENTS) {
            complain(&sim, "no end after %d events", MOST_EVENTS);
        }
    }
    if (!sim.wrong) {
        check_end(&sim);
    }
    close_sim(&sim);
    return sim.wrong ? sim_text : NULL;
}

uint64_t sim_seed(void)
{
    static uint64_t seed;
    static int      known;
    const char     *text = getenv("TEST_SEED");

    if (!known) {
        known = 1;
        seed  = (text != NULL) ? strtoull(text, NULL, 0) : (uint64_t)time(NULL);
        printf("TEST_SEED=%llu\n", (unsigned long long)seed);
        fflush(stdout);
    }
    return seed;
}
