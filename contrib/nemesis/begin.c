/*
 * How a rank of the nemesis begins and ends: it begins the job or joins it, comes to the store, prints what it is told,
 * and, at its end, what its calls came to. A thread prints the events.
 */
#include "rank.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* ---- what it is told ---- */

static void print_event(const kvcl_event_t *event)
{
    static const char *const names[] = {"0", "SUSPECT", "ALIVE_AGAIN", "FAILED", "VIEW", "EXCLUDED", "DRAINED", "7",
                                        "JOINED", "WAITING"};
    const int               n        = (int)(sizeof(names) / sizeof(*names));
    const char              *sep     = "";
    int                     r;

    flockfile(stdout);
    printf("{\"what\": \"event\", \"type\": \"%s\", \"view\": %" PRIu64 ", \"id\": \"%016" PRIx64 "\", \"ns\": %" PRIu64
           ", \"ranks\": [", ((event->type >= 1) && (event->type < n)) ? names[event->type] : "OTHER", event->view,
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
void rank_stop_events(rank_t *rank)
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

void rank_print_tallies(const blocks_t *blocks)
{
    print_tally("put", &blocks->put);
    print_tally("get", &blocks->get);
    print_tally("step", &blocks->step);
    print_tally("agree", &blocks->agree);
    print_tally("shrink", &blocks->shrink);
    print_tally("join", &blocks->join);
    print_tally("activate", &blocks->activate);
}

/* It is no member any more, or cannot know. Does not return. */
void rank_end_as(rank_t *rank, int code)
{
    rank_stop_events(rank);
    rank_print_tallies(&rank->blocks);
    printf("{\"what\": \"ended\", \"why\": \"%s\"}\n",
           (code == EXCLUDED) ? "excluded" : (code == REFUSED) ? "refused" : "alone");
    _exit(code); /* others may read its memory until it has ended, and it has nothing more to say to them */
}

void rank_end_if_out(rank_t *rank, kvcl_status_t status)
{
    if (status == KVCL_ERR_STALE) {
        rank_end_as(rank, EXCLUDED);
    }
}

/* ---- beginning ---- */

static void begin_events(rank_t *rank)
{
    rank->stop_fd = eventfd(0, EFD_CLOEXEC);
    if ((rank->stop_fd < 0) || (pthread_create(&rank->events, NULL, take_events, rank) != 0)) {
        perror("nemesis_rank");
        exit(2);
    }
}

/* A process that joins may be refused, as long as the error is one that a process which joins may get. */
static void join(rank_t *rank)
{
    uint64_t      began  = now_ns();
    kvcl_status_t status = kvcl_init(NULL, &rank->ctx);

    blocks_ended(&rank->blocks, &rank->blocks.join, "join", status, began, rank->init_ns);
    if (status != KVCL_OK) {
        rank_print_tallies(&rank->blocks);
        printf("{\"what\": \"ended\", \"why\": \"refused\"}\n");
        exit(REFUSED);
    }
    KVCL_TRY(kvcl_comm_world(rank->ctx, &rank->world));
    begin_events(rank);
    began  = now_ns();
    status = kvcl_comm_sync(rank->world, DECIDE_S * SECOND, NULL);
    blocks_ended(&rank->blocks, &rank->blocks.join, "sync", status, began, DECIDE_S * SECOND);
    rank_end_if_out(rank, status);
    if (status != KVCL_OK) {
        rank_end_as(rank, (status == KVCL_ERR_BUSY) ? REFUSED : ALONE);
    }
}

/* The communicator of those that begin the job, which are its members now. */
static void make_first_comm(rank_t *rank)
{
    unsigned char active[SLOTS];
    int           ranks[SLOTS], n = 0, i;

    rank->comm = rank->world;
    if (rank->grows) {
        KVCL_TRY(kvcl_comm_active(rank->world, active, kvcl_comm_size(rank->world), NULL));
        for (i = 0; i < kvcl_comm_size(rank->world); ++i) {
            if (active[i]) {
                ranks[n++] = i;
            }
        }
        KVCL_TRY(kvcl_comm_create(rank->world, ranks, n, &rank->comm));
    }
}

static void *open_store(void *arg)
{
    rank_t *rank = arg;

    rank->open_began_ns = now_ns();
    rank->open_status   = blocks_open(&rank->blocks, rank->ctx, rank->world, POOL_BYTES, rank->replicas, true);
    atomic_store(&rank->opened, true);
    return NULL;
}

static void begin_to_open(rank_t *rank)
{
    ++rank->n_opens;
    atomic_store(&rank->opened, false);
    if (pthread_create(&rank->opener, NULL, open_store, rank) != 0) {
        perror("nemesis_rank");
        exit(2);
    }
}

static void say_ready(const rank_t *rank)
{
    char   address[64] = "";
    size_t len;

    if (rank->grows) {
        KVCL_TRY(kvcl_join_address(rank->ctx, address, sizeof(address), &len));
    }
    printf("{\"what\": \"ready\", \"slot\": %" PRIu32 ", \"address\": \"%s\"}\n", rank->slot, address);
}

bool rank_has_store(rank_t *rank)
{
    if (rank->has_store || !atomic_load(&rank->opened)) {
        return rank->has_store;
    }
    (void)pthread_join(rank->opener, NULL);
    blocks_ended(&rank->blocks, &rank->blocks.join, "open", rank->open_status, rank->open_began_ns, rank->open_ns);
    rank->has_store = (rank->open_status == KVCL_OK);
    if (rank->has_store) {
        say_ready(rank);
        return true;
    }
    rank_end_if_out(rank, kvcl_comm_sync(rank->world, 0, NULL));
    if (rank->n_opens == OPENS) { /* others may end, and shards begin to move anew: so several attempts */
        rank_end_as(rank, ALONE);
    }
    begin_to_open(rank);
    return false;
}

void rank_begin(rank_t *rank)
{
    if (rank->newcomer) {
        join(rank);
        rank->slot = (uint32_t)kvcl_comm_rank(rank->world);
        begin_to_open(rank);
        return;
    }
    KVCL_TRY(kvcl_init(NULL, &rank->ctx));
    KVCL_TRY(kvcl_comm_world(rank->ctx, &rank->world));
    begin_events(rank);
    make_first_comm(rank);
    rank->slot = (uint32_t)kvcl_comm_rank(rank->world);
    KVCL_TRY(blocks_open(&rank->blocks, rank->ctx, rank->world, POOL_BYTES, rank->replicas, false));
    rank->has_store = true;
    say_ready(rank);
}
