/*
 * A world with more slots than processes (KVCL_SLOTS): operations with a slot of nobody end at once, and those with the
 * others go on.
 *   slots RANKS   prints "ok NAME" for each case; exit 1 if one failed
 */
#include "start_ranks.h"

#include "base/clock.h"
#include <kvcl/kvcl.h>

#include <string.h>

enum { FREE = 3 };

static int size;

static int wrong(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, kvcl_last_error());
    return 1;
}

static int with_nobody(kvcl_comm_h world)
{
    const uint64_t     from = kvcl_now_ns();
    kvcl_status_t      status;
    kvcl_req_h         req;
    kvcl_rank_state_t  state;
    char               byte = 'x';
    int                i;

    for (i = size; i < size + FREE; ++i) {
        status = kvcl_notify(world, i, "x", 1, NULL, &req);
        if ((status != KVCL_ERR_RANK_FAILED) || (strstr(kvcl_last_error(), "slot") == NULL)) {
            return wrong("a notification to nobody");
        }
        KVCL_TRY(kvcl_rank_state(world, i, &state));
        if (state != KVCL_RANK_UNKNOWN) {
            return wrong("the state of nobody");
        }
    }
    if (kvcl_notify(world, size + FREE, "x", 1, NULL, &req) != KVCL_ERR_UNKNOWN_RANK) {
        return wrong("a notification beyond the slots");
    }
    if (kvcl_barrier(world, NULL, &req) != KVCL_ERR_RANK_FAILED) {
        return wrong("a barrier with nobody");
    }
    status = kvcl_bcast_bytes(world, 0, &byte, 1, NULL, &req); /* rank 1 alone has only to wait for rank 0 */
    status = (status == KVCL_OK) ? kvcl_req_wait(req, KVCL_WAIT_FOREVER) : status;
    if (status != KVCL_ERR_RANK_FAILED) {
        return wrong("a broadcast with nobody");
    }
    if (kvcl_now_ns() - from > UINT64_C(5000000000)) {
        return wrong("operations with nobody take their time");
    }
    return 0;
}

static int live(const void *arg, int rank)
{
    unsigned char  active[KVCL_EVENT_RANKS];
    int            ranks[KVCL_EVENT_RANKS], i, bad;
    kvcl_context_h ctx;
    kvcl_comm_h    world, here;
    kvcl_req_h     req;
    uint64_t       view;

    (void)arg;
    (void)rank;
    KVCL_TRY(kvcl_init(NULL, &ctx));
    KVCL_TRY(kvcl_comm_world(ctx, &world));
    bad = (kvcl_comm_size(world) != size + FREE) ? wrong("the size of the world") : 0;
    for (i = 0; i < size; ++i) {
        ranks[i] = i;
    }
    KVCL_TRY(kvcl_comm_create(world, ranks, size, &here));
    bad += with_nobody(world);
    KVCL_TRY(kvcl_barrier(here, NULL, &req));
    KVCL_TRY(kvcl_req_wait(req, KVCL_WAIT_FOREVER));
    KVCL_TRY(kvcl_comm_active(world, active, size + FREE, &view));
    for (i = 0; i < size + FREE; ++i) {
        bad += (active[i] != (i < size)) ? wrong("the mask") : 0;
    }
    KVCL_TRY(kvcl_barrier(here, NULL, &req));
    KVCL_TRY(kvcl_req_wait(req, KVCL_WAIT_FOREVER));
    kvcl_comm_free(here);
    kvcl_finalize(ctx);
    return bad;
}

/* Settings that no job can have are refused, and the sentence says which. */
static int refused(const char *slots, const char *views, const char *word)
{
    kvcl_context_h ctx;
    kvcl_status_t  status;

    setenv("KVCL_SLOTS", slots, 1);
    setenv("KVCL_VIEWS", views, 1);
    status = kvcl_init(NULL, &ctx);
    if ((status != KVCL_ERR_INVALID_PARAM) || (strstr(kvcl_last_error(), word) == NULL)) {
        return wrong(slots);
    }
    return 0;
}

int main(int argc, char **argv)
{
    pid_t pids[64], pid;
    char  text[16];
    int   i, bad = 0;

    size = (argc > 1) ? atoi(argv[1]) : 3;
    if ((size < 2) || (size > 64)) {
        fprintf(stderr, "usage: slots RANKS\n");
        return 1;
    }
    snprintf(text, sizeof(text), "%d", size + FREE);
    setenv("KVCL_SLOTS", text, 1);
    setenv("KVCL_VIEWS", "yes", 1);
    start_ranks(size, live, NULL, pids);
    for (i = 0; i < size; ++i) {
        bad += rank_ends_well(pids[i]) ? 0 : 1;
    }
    printf("%s slots of nobody, %d ranks\n", (bad == 0) ? "ok" : "WRONG", size);
    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        unsetenv("KVCL_RANK");
        _exit(refused("5", "no", "KVCL_VIEWS") + refused("1025", "yes", "KVCL_SLOTS"));
    }
    i = rank_ends_well(pid) ? 0 : 1;
    printf("%s slots that no job can have\n", (i == 0) ? "ok" : "WRONG");
    return (bad + i == 0) ? 0 : 1;
}
