/*
 * A rank that the nemesis attacks (contrib/nemesis/run). It puts blocks, gets blocks of all ranks, and takes part in
 * steps: an allgather over the ranks that are left, then agreement, and a shrink where the step failed. Each line of
 * its output is a JSON object; each line of its input a command:
 *   hold          end the steps at the same one as the others
 *   check S L N   get the blocks 0 to N - 1 of life L of slot S, and count their copies
 *   activate S    the process that waits in slot S is to be a member (KVCL_JOIN_WAITS)
 *   quit          leave the job
 * In a job that processes join (KVCL_JOIN_AT) the ranks agree over the world, of which those are ranks too: the first
 * call of one that joins (KVCL_JOIN) is an agreement that a step has failed, so all shrink the world, and go on with
 * it. If others shrink at that moment, all calls end with KVCL_ERR_INVALID_PARAM, and all agree on that again. It comes
 * to the store meanwhile, in a thread of its own.
 * A rank that was excluded says so and ends with 3; one that has no quorum for its last deadline, with 4; one that
 * could not join, with 5: another may.
 */
#include "rank.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* ---- commands ---- */

static void check(rank_t *rank, uint32_t slot, uint32_t life, uint32_t n)
{
    static uint32_t missing[PUTS_MAX];
    kvcl_status_t   status;
    name_t          name = {slot, life, 0};
    uint32_t        n_missing = 0, single = 0, i;

    for (; name.number < n; ++name.number) {
        status = blocks_get(&rank->blocks, &name);
        rank_end_if_out(rank, status);
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

/* All members are told to, so the slot may have become one's by another's call, or its process have ended. */
static void activate(rank_t *rank, int slot)
{
    uint64_t      began = now_ns();
    kvcl_status_t status = kvcl_comm_activate(rank->world, &slot, 1, ACTIVATE_S * SECOND, NULL);

    blocks_ended(&rank->blocks, &rank->blocks.activate, "activate", status, began, ACTIVATE_S * SECOND);
    rank_end_if_out(rank, status);
}

static void obey(rank_t *rank, const char *line)
{
    unsigned slot, life, n;

    if (strcmp(line, "hold") == 0) {
        rank->hold = true;
    } else if (strcmp(line, "quit") == 0) {
        rank->quit = true;
    } else if ((sscanf(line, "activate %u", &slot) == 1) && (slot < SLOTS)) {
        activate(rank, (int)slot);
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
        rank_end_if_out(rank, status);
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
            rank_end_if_out(rank, blocks_get(&rank->blocks, &name));
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
    rank_end_if_out(rank, status);
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
    uint64_t      began  = now_ns();
    kvcl_status_t status = kvcl_comm_agree(rank->grows ? rank->world : rank->comm, flags, DECIDE_S * SECOND);

    blocks_ended(&rank->blocks, &rank->blocks.agree, "agree", (status == KVCL_ERR_RANK_FAILED) ? KVCL_OK : status,
                 began, DECIDE_S * SECOND);
    rank_end_if_out(rank, status);
    rank->again = rank->grows && (status == KVCL_ERR_INVALID_PARAM);
    if ((status != KVCL_OK) && (status != KVCL_ERR_RANK_FAILED) && !rank->again) {
        rank_end_as(rank, ALONE);
    }
    return status;
}

static void shrink(rank_t *rank)
{
    const kvcl_comm_h from  = rank->grows ? rank->world : rank->comm;
    uint64_t          began = now_ns();
    kvcl_comm_h       left;
    kvcl_status_t     status;
    int               n;

    KVCL_TRY(kvcl_comm_get_failed(from, NULL, 0, &n));
    KVCL_TRY(kvcl_comm_ack_failed(from, n, NULL));
    status = kvcl_comm_shrink(from, DECIDE_S * SECOND, &left);
    blocks_ended(&rank->blocks, &rank->blocks.shrink, "shrink", status, began, DECIDE_S * SECOND);
    rank_end_if_out(rank, status);
    rank->again = rank->grows && (status == KVCL_ERR_INVALID_PARAM);
    if (rank->again) {
        return;
    }
    if (status != KVCL_OK) {
        rank_end_as(rank, ALONE);
    }
    if ((rank->comm != rank->world) && (rank->comm != NULL)) {
        kvcl_comm_free(rank->comm);
    }
    rank->comm = left;
}

/* One step, on which all that are left agree. Bits: the step has succeeded; all want to hold. */
static void step_together(rank_t *rank)
{
    bool          hold = false, ok = (rank->comm != NULL) && !rank->again && (step(rank, &hold) == KVCL_OK);
    uint64_t      flags = (ok ? 1u : 0u) | ((ok && hold) ? 2u : 0u);
    kvcl_status_t status = agree(rank, &flags);

    if (rank->again) {
        return;
    }
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
        if (rank_has_store(rank)) {
            take_commands(rank, 0);
            put_and_get(rank);
        }
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
        fprintf(stderr, "usage: nemesis_rank SEED LIFE REPLICAS TIMEOUT_MS SLACK_MS INIT_MS OPEN_MS "
                "(contrib/nemesis/run starts it)\n");
        exit(2);
    }
    return value;
}

int main(int argc, char **argv)
{
    static rank_t rank;

    setvbuf(stdout, NULL, _IOLBF, 0);
    rank.life              = (uint32_t)number(argc, argv, 2);
    rank.blocks.timeout_ns = number(argc, argv, 4) * 1000000;
    rank.blocks.slack_ns   = number(argc, argv, 5) * 1000000;
    rank.init_ns           = number(argc, argv, 6) * 1000000;
    rank.open_ns           = number(argc, argv, 7) * 1000000;
    rank.grows             = (getenv("KVCL_JOIN_AT") != NULL);
    rank.newcomer          = (getenv("KVCL_JOIN") != NULL);
    rank.replicas          = number(argc, argv, 3);
    rank_begin(&rank);
    rank.rnd = (number(argc, argv, 1) * UINT64_C(0x9e3779b97f4a7c15)) + (rank.life * SLOTS) + rank.slot + 1;
    work(&rank);
    rank_stop_events(&rank);
    rank_print_tallies(&rank.blocks);
    printf("{\"what\": \"ended\", \"why\": \"quit\"}\n");
    if (rank.comm != rank.world) {
        kvcl_comm_free(rank.comm);
    }
    kvcl_store_close(rank.blocks.store);
    kvcl_cache_destroy(rank.blocks.cache);
    kvcl_finalize(rank.ctx);
    return 0;
}
