/*
 * Reads a prompt's pages by their addresses, as engines' connectors do that have lists of descriptors and no layout.
 *
 *   mpirun -n 2 by_address      (4: two pairs; a rank without a pair: from itself)
 *
 * The prefill rank exports its memory once. For each prompt it notifies the decode rank: the offsets and lengths of the
 * pages. The decode rank reads all of them in one operation, into pages of its own, and the notification of that
 * operation tells the prefill rank that it may use the pages for the next prompt. Even ranks prefill, odd ranks decode.
 */
#include <kvcl/kvcl.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 16384, PAGES = 256, PROMPTS = 5, PAGES_EACH = 40, LAST_BYTES = 5000 };

static const uint64_t second = 1000000000;

/* What the prefill rank says of a prompt. */
typedef struct prompt {
    uint32_t number;
    uint32_t n;
    struct {
        uint64_t offset, len;
    } pages[PAGES_EACH];
} prompt_t;

static uint8_t value(uint32_t prompt, uint32_t page, size_t i)
{
    return (uint8_t)((prompt * 89u) + (page * 31u) + i + (i >> 8));
}

/* Stands for the model: computes a prompt into pages all over the memory; the last page is filled in part. */
static void compute(uint8_t *memory, uint32_t number, prompt_t *prompt)
{
    uint32_t i;
    size_t   at;

    prompt->number = number;
    prompt->n      = PAGES_EACH;
    for (i = 0; i < PAGES_EACH; ++i) {
        prompt->pages[i].offset = (uint64_t)((i * 101 + number * 7) % PAGES) * PAGE;
        prompt->pages[i].len    = (i + 1 < PAGES_EACH) ? PAGE : LAST_BYTES;
        for (at = 0; at < prompt->pages[i].len; ++at) {
            memory[prompt->pages[i].offset + at] = value(number, i, at);
        }
    }
}

/* Decode: read the prompt that the other rank has announced, and say so. @return bytes that are wrong. */
static size_t fetch(kvcl_comm_h world, kvcl_rmem_h theirs, uint8_t *memory, kvcl_mem_h mine)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_vec_t         pieces[PAGES_EACH];
    size_t             wrong = 0, at;
    prompt_t           prompt;
    kvcl_req_h         req;
    uint32_t           i;

    KVCL_TRY(kvcl_notify_recv(world, &prompt, sizeof(prompt), NULL, 60 * second));
    for (i = 0; i < prompt.n; ++i) {
        at        = (size_t)(PAGES - 1 - i) * PAGE;
        pieces[i] = (kvcl_vec_t){prompt.pages[i].offset, memory + at, prompt.pages[i].len};
    }
    params.notify       = &prompt.number;
    params.notify_bytes = sizeof(prompt.number);
    KVCL_TRY(kvcl_get_vec(theirs, pieces, prompt.n, mine, &params, &req));
    KVCL_TRY(kvcl_req_wait(req, 60 * second));
    for (i = 0; i < prompt.n; ++i) {
        for (at = 0; at < pieces[i].len; ++at) {
            wrong += ((uint8_t *)pieces[i].addr)[at] != value(prompt.number, i, at);
        }
    }
    return wrong;
}

/* Prefill: compute a prompt and announce its pages. */
static void announce(kvcl_comm_h world, int to, uint8_t *memory, uint32_t number)
{
    prompt_t   prompt;
    kvcl_req_h req;

    compute(memory, number, &prompt);
    KVCL_TRY(kvcl_notify(world, to, &prompt, sizeof(prompt), NULL, &req));
    KVCL_TRY(kvcl_req_wait(req, 60 * second));
}

/* Prefill: the other rank has read it. */
static void until_read(kvcl_comm_h world, uint32_t number)
{
    uint32_t read;

    KVCL_TRY(kvcl_notify_recv(world, &read, sizeof(read), NULL, 60 * second));
    if (read != number) {
        fprintf(stderr, "prompt %u was read, not %u\n", read, number);
        exit(EXIT_FAILURE);
    }
}

/* The other rank's memory. */
static kvcl_rmem_h attach(kvcl_comm_h world, int other, kvcl_mem_h mem)
{
    struct {
        size_t  len;
        uint8_t bytes[1024];
    } mine = {sizeof(mine.bytes), {0}}, *all = malloc(sizeof(mine) * (size_t)kvcl_comm_size(world));
    kvcl_rmem_h rmem;
    kvcl_req_h  req;

    KVCL_TRY(kvcl_mem_export(mem, KVCL_READ, mine.bytes, &mine.len));
    KVCL_TRY(kvcl_allgather(world, &mine, sizeof(mine), all, NULL, &req));
    KVCL_TRY(kvcl_req_wait(req, 60 * second));
    KVCL_TRY(kvcl_rmem_import(world, other, all[other].bytes, all[other].len, &rmem));
    free(all);
    return rmem;
}

int main(void)
{
    kvcl_context_h ctx;
    kvcl_comm_h    world;
    kvcl_mem_h     pages, mine; /* of the prefill rank, and of the decode rank */
    kvcl_rmem_h    theirs;
    kvcl_req_h     req;
    size_t         wrong = 0;
    uint32_t       number;
    int            rank, size, other;

    KVCL_TRY(kvcl_init(NULL, &ctx));
    KVCL_TRY(kvcl_comm_world(ctx, &world));
    rank  = kvcl_comm_rank(world);
    size  = kvcl_comm_size(world);
    other = ((rank ^ 1) < size) ? rank ^ 1 : rank;
    KVCL_TRY(kvcl_mem_alloc(ctx, (size_t)PAGES * PAGE, NULL, &pages));
    KVCL_TRY(kvcl_mem_alloc(ctx, (size_t)PAGES * PAGE, NULL, &mine));
    theirs = attach(world, other, pages);
    for (number = 0; number < PROMPTS; ++number) {
        if (rank % 2 == 0) {
            announce(world, other, kvcl_mem_addr(pages), number);
        }
        if ((rank % 2 == 1) || (other == rank)) {
            wrong += fetch(world, theirs, kvcl_mem_addr(mine), mine);
        }
        if (rank % 2 == 0) {
            until_read(world, number);
        }
    }
    printf("rank %d: %d prompts of %d pages %s, %zu bytes wrong\n", rank, PROMPTS, PAGES_EACH,
           (rank % 2 == 0) ? "announced" : "read", wrong);
    KVCL_TRY(kvcl_barrier(world, NULL, &req));
    KVCL_TRY(kvcl_req_wait(req, 60 * second));
    kvcl_rmem_free(theirs);
    kvcl_mem_free(pages);
    kvcl_mem_free(mine);
    kvcl_finalize(ctx);
    return (wrong == 0) ? EXIT_SUCCESS : EXIT_FAILURE;
}
