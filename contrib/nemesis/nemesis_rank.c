/*
 * A rank that the nemesis attacks (contrib/nemesis/run). It puts blocks, gets blocks of all ranks, and takes part in
 * steps: an allgather over the ranks that are left, then agreement, and a shrink where the step failed. Each line of
 * its output is a JSON object; each line of its input a command:
 *   hold          end the steps at the same one as the others
 *   check S L N   get the blocks 0 to N - 1 of life L of slot S, and count their copies
 *   quit          leave the job
 * A rank that was excluded says so and ends with 3; one that has no quorum for its last deadline, with 4.
 */
#include "blocks.h"

#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Blocks of a life: few enough that no pool evicts any, also when few ranks are left. */
enum { PUTS_MAX = 4000, PUTS_EVERY = 4 };

enum { EXCLUDED = 3, ALONE = 4, DECIDE_S = 90 };
#define SECOND UINT64_C(1000000000)

typedef struct rank {
    kvcl_context_h ctx;
    kvcl_comm_h    world, comm; /* comm: of those that are left */
    blocks_t       blocks;
    uint32_t       slot, life, acked;
    uint64_t       turns, steps, rnd;
    bool           hold, held, quit;
    pthread_t      events;  /* prints them */
    int            stop_fd; /* ends it */
    struct { uint32_t life, acked; } known[SLOTS]; /* what the others have put */
    char           line[256]; /* of the input, so far */
    size_t         len;
} rank_t;

/* What a rank gives to a step. */
typedef struct given {
    uint32_t slot, life, acked, hold;
} given_t;

static uint32_t below(rank_t *rank, uint32_t n)
{
    rank->rnd ^= rank->rnd << 13;
    rank->rnd ^= rank->rnd >> 7;
    rank->rnd ^= rank->rnd << 17;
    return (uint32_t)(rank->rnd % n);
}

/* ---- what it is told ---- */

static void print_event(const kvcl_event_t *event)
{
    static const char *const names[] = {"0", "SUSPECT", "ALIVE_AGAIN", "FAILED", "VIEW", "EXCLUDED"};
    const char              *sep = "";
    int                     r;

    flockfile(stdout);
    printf("{\"what\": \"event\", \"type\": \"%s\", \"view\": %" PRIu64 ", \"id\": \"%016" PRIx64 "\", \"ns\": %" PRIu64
           ", \"ranks\": [", ((event->type >= 1) && (event->type <= 5)) ? names[event->type] : "OTHER", event->view,
           event->view_id, event->time_ns);
    for (r = 0; r < KVCL_EVENT_RANKS; ++r) {
        if (kvcl_event_has(event, r)) {
            printf("%s%d", sep, r);
            sep = ", ";
        }
    }
    printf("]}\n");
    funlockfile(stdout);
}

/* A thread of its own: the rank may wait in a call for the very rank that fails. */
static void *take_events(void *arg)
{
    rank_t        *rank = arg;
    kvcl_event_t  event = KVCL_EVENT_INIT;
    struct pollfd fds[] = {{.events = POLLIN}, {.fd = rank->stop_fd, .events = POLLIN}};

    KVCL_TRY(kvcl_event_fd(rank->ctx, &fds[0].fd));
    do {
        (void)poll(fds, 2, -1);
        while (kvcl_event_next(rank->ctx, &event) == KVCL_OK) {
            print_event(&event);
        }
    } while (fds[1].revents == 0);
    return NULL;
}

/* All events that there are have been printed when it returns. */
static void stop_events(rank_t *rank)
{
    const uint64_t one = 1;

    if ((write(rank->stop_fd, &one, sizeof(one)) != sizeof(one)) || (pthread_join(rank->events, NULL) != 0)) {
        perror("nemesis_rank");
        exit(2);
    }
}

static void print_tally(const char *call, const tally_t *tally)
{
    printf("{\"what\": \"tally\", \"call\": \"%s\", \"calls\": %" PRIu64 ", \"ok\": %" PRIu64 ", \"misses\": %" PRIu64
           ", \"wrong\": %" PRIu64 ", \"late\": %" PRIu64 ", \"worst_over_ms\": %.1f}\n", call, tally->calls, tally->ok,
           tally->misses, tally->wrong, tally->late, (double)tally->worst_ns / 1e6);
}

static void print_tallies(const blocks_t *blocks)
{
    print_tally("put", &blocks->put);
    print_tally("get", &blocks->get);
    print_tally("step", &blocks->step);
    print_tally("agree", &blocks->agree);
    print_tally("shrink", &blocks->shrink);
}

/* It is no member any more, or cannot know. Does not return. */
static void end_as(rank_t *rank, int code)
{
    stop_events(rank);
    print_tallies(&rank->blocks);
    printf("{\"what\": \"ended\", \"why\": \"%s\"}\n", (code == EXCLUDED) ? "excluded" : "alone");
    _exit(code); /* others may read its memory until it has ended, and it has nothing more to say to them */
}

static void end_if_out(rank_t *rank, kvcl_status_t status)
{
    if (status == KVCL_ERR_STALE) {
        end_as(rank, EXCLUDED);
    }
}

/* ---- commands ---- */

static void check(rank_t *rank, uint32_t slot, uint32_t life, uint32_t n)
{
    static uint32_t missing[PUTS_MAX];
    kvcl_status_t   status;
    name_t          name = {slot, life, 0};
    uint32_t        n_missing = 0, single = 0, i;

    for (; name.number < n; ++name.number) {
        status = blocks_get(&rank->blocks, &name);
        end_if_out(rank, status);
        if (status != KVCL_OK) {
            missing[n_missing++] = name.number;
        }
        single += (blocks_copies(&rank->blocks, &name) < 2);
    }
    flockfile(stdout);
    printf("{\"what\": \"checked\", \"slot\": %" PRIu32 ", \"life\": %" PRIu32 ", \"n\": %" PRIu32 ", \"single\": "
           "%" PRIu32 ", \"missing\": [", slot, life, n, single);
    for (i = 0; i < n_missing; ++i) {
        printf("%s%" PRIu32, (i == 0) ? "" : ", ", missing[i]);
    }
    printf("]}\n");
    funlockfile(stdout);
}

static void obey(rank_t *rank, const char *line)
{
    unsigned slot, life, n;

    if (strcmp(line, "hold") == 0) {
        rank->hold = true;
    } else if (strcmp(line, "quit") == 0) {
        rank->quit = true;
    } else if ((sscanf(line, "check %u %u %u", &slot, &life, &n) == 3) && (slot < SLOTS) && (n <= PUTS_MAX)) {
        check(rank, slot, life, n);
    } else {
        fprintf(stderr, "nemesis_rank: no such command: %s\n", line);
        exit(2);
    }
}

/* Takes what has come; wait_ms -1: the next command. */
static void take_commands(rank_t *rank, int wait_ms)
{
    struct pollfd fd = {.fd = STDIN_FILENO, .events = POLLIN};
    char          c;

    while (poll(&fd, 1, wait_ms) > 0) {
        if (read(STDIN_FILENO, &c, 1) != 1) {
            exit(0); /* the nemesis has ended */
        }
        if (c == '\n') {
            rank->line[rank->len] = '\0';
            rank->len             = 0;
            obey(rank, rank->line);
            return;
        }
        if (rank->len < sizeof(rank->line) - 1) {
            rank->line[rank->len++] = c;
        }
    }
}

/* ---- work ---- */

static void put_and_get(rank_t *rank)
{
    name_t        name = {rank->slot, rank->life, rank->acked};
    kvcl_status_t status;
    uint8_t       copies;
    int           i;

    if ((rank->turns++ % PUTS_EVERY == 0) && (rank->acked < PUTS_MAX)) {
        status = blocks_put(&rank->blocks, &name, &copies);
        end_if_out(rank, status);
        if (status == KVCL_OK) {
            ++rank->acked;
            printf("{\"what\": \"acked\", \"n\": %" PRIu32 ", \"copies\": %u}\n", rank->acked, (unsigned)copies);
        }
    }
    for (i = 0; i < 4; ++i) {
        name.slot = below(rank, SLOTS);
        if (rank->known[name.slot].acked != 0) {
            name.life   = rank->known[name.slot].life;
            name.number = below(rank, rank->known[name.slot].acked);
            end_if_out(rank, blocks_get(&rank->blocks, &name));
        }
    }
}

/* An allgather over comm. hold_p: some rank wants the steps to end. */
static kvcl_status_t step(rank_t *rank, bool *hold_p)
{
    given_t            mine = {rank->slot, rank->life, rank->acked, rank->hold}, all[SLOTS] = {{0, 0, 0, 0}};
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_req_h         req;
    kvcl_status_t      status;
    uint64_t           began = now_ns();
    int                i;

    params.timeout_ns = rank->blocks.timeout_ns;
    status            = kvcl_allgather(rank->comm, &mine, sizeof(mine), all, &params, &req);
    status            = (status == KVCL_OK) ? kvcl_req_wait(req, KVCL_WAIT_FOREVER) : status;
    blocks_ended(&rank->blocks, &rank->blocks.step, "step", status, began, rank->blocks.timeout_ns);
    end_if_out(rank, status);
    for (i = 0; (status == KVCL_OK) && (i < kvcl_comm_size(rank->comm)); ++i) {
        if ((all[i].slot >= SLOTS) || ((i == kvcl_comm_rank(rank->comm)) && (all[i].slot != rank->slot))) {
            printf("{\"what\": \"wrong\", \"step\": %" PRIu64 "}\n", rank->steps);
            ++rank->blocks.step.wrong;
            continue;
        }
        rank->known[all[i].slot].life  = all[i].life;
        rank->known[all[i].slot].acked = all[i].acked;
        *hold_p                        = *hold_p || (all[i].hold != 0);
    }
    return status;
}

static kvcl_status_t agree(rank_t *rank, uint64_t *flags)
{
    uint64_t      began = now_ns();
    kvcl_status_t status = kvcl_comm_agree(rank->comm, flags, DECIDE_S * SECOND);

    blocks_ended(&rank->blocks, &rank->blocks.agree, "agree", (status == KVCL_ERR_RANK_FAILED) ? KVCL_OK : status,
                 began,
                 DECIDE_S * SECOND);
    end_if_out(rank, status);
    if ((status != KVCL_OK) && (status != KVCL_ERR_RANK_FAILED)) {
        end_as(rank, ALONE);
    }
    return status;
}

static void shrink(rank_t *rank)
{
    uint64_t      began = now_ns();
    kvcl_comm_h   left;
    kvcl_status_t status;
    int           n;

    KVCL_TRY(kvcl_comm_get_failed(rank->comm, NULL, 0, &n));
    KVCL_TRY(kvcl_comm_ack_failed(rank->comm, n, NULL));
    status = kvcl_comm_shrink(rank->comm, DECIDE_S * SECOND, &left);
    blocks_ended(&rank->blocks, &rank->blocks.shrink, "shrink", status, began, DECIDE_S * SECOND);
    end_if_out(rank, status);
    if (status != KVCL_OK) {
        end_as(rank, ALONE);
    }
    if (rank->comm != rank->world) {
        kvcl_comm_free(rank->comm);
    }
    rank->comm = left;
}

/* One step, on which all that are left agree. Bits: the step has succeeded; nobody wants to hold. */
static void step_together(rank_t *rank)
{
    bool          hold = false, ok = (step(rank, &hold) == KVCL_OK);
    uint64_t      flags = (ok ? 1u : 0u) | ((ok && hold) ? 2u : 0u);
    kvcl_status_t status = agree(rank, &flags);

    if ((status == KVCL_ERR_RANK_FAILED) || ((flags & 1) == 0)) {
        shrink(rank);
        return;
    }
    ++rank->steps;
    printf("{\"what\": \"step\", \"n\": %" PRIu64 ", \"size\": %d}\n", rank->steps, kvcl_comm_size(rank->comm));
    rank->held = ((flags & 2) != 0);
}

static void work(rank_t *rank)
{
    while (!rank->held && !rank->quit) {
        take_commands(rank, 0);
        put_and_get(rank);
        step_together(rank);
    }
    printf("{\"what\": \"held\", \"acked\": %" PRIu32 ", \"steps\": %" PRIu64 "}\n", rank->acked, rank->steps);
    while (!rank->quit) {
        take_commands(rank, -1);
    }
}

static uint64_t number(int argc, char **argv, int i)
{
    char               *end;
    unsigned long long value = (i < argc) ? strtoull(argv[i], &end, 10) : 0;

    if ((i >= argc) || (end == argv[i]) || (*end != '\0')) {
        fprintf(stderr, "usage: nemesis_rank SEED LIFE REPLICAS TIMEOUT_MS SLACK_MS (contrib/nemesis/run starts it)\n");
        exit(2);
    }
    return value;
}

int main(int argc, char **argv)
{
    static rank_t rank;
    uint64_t      replicas = number(argc, argv, 3);

    setvbuf(stdout, NULL, _IOLBF, 0);
    rank.life             = (uint32_t)number(argc, argv, 2);
    rank.blocks.timeout_ns = number(argc, argv, 4) * 1000000;
    rank.blocks.slack_ns   = number(argc, argv, 5) * 1000000;
    KVCL_TRY(kvcl_init(NULL, &rank.ctx));
    KVCL_TRY(kvcl_comm_world(rank.ctx, &rank.world));
    rank.stop_fd = eventfd(0, EFD_CLOEXEC);
    if ((rank.stop_fd < 0) || (pthread_create(&rank.events, NULL, take_events, &rank) != 0)) {
        perror("nemesis_rank");
        return 2;
    }
    rank.comm = rank.world;
    rank.slot = (uint32_t)kvcl_comm_rank(rank.world);
    rank.rnd  = (number(argc, argv, 1) * UINT64_C(0x9e3779b97f4a7c15)) + rank.slot + 1;
    blocks_open(&rank.blocks, rank.ctx, rank.world, 256u << 20, replicas);
    printf("{\"what\": \"ready\", \"slot\": %" PRIu32 "}\n", rank.slot);
    work(&rank);
    stop_events(&rank);
    print_tallies(&rank.blocks);
    printf("{\"what\": \"ended\", \"why\": \"quit\"}\n");
    if (rank.comm != rank.world) {
        kvcl_comm_free(rank.comm);
    }
    kvcl_store_close(rank.blocks.store);
    kvcl_cache_destroy(rank.blocks.cache);
    kvcl_finalize(rank.ctx);
    return 0;
}
