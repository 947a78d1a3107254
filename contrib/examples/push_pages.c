/*
 * Pushes a prompt's pages into the decode rank's memory, and pulls them back for the prompt's next turn.
 *
 *   mpirun -n 2 push_pages      (4: two pairs; a rank without a pair: to itself)
 *
 * The memory is the engine's own, registered once. The decode rank exports it and offers free pages anywhere in it.
 * The prefill rank writes its pages there with one kvcl_put_vec; the notification of that put says that decoding may
 * begin. Later the prefill rank, which has dropped the pages meanwhile, reads them with one kvcl_get_vec. Even ranks
 * prefill, odd ranks decode.
 */
#include <kvcl/kvcl.h>

#include <stdint.h>
#include <string.h>

enum { PAGE = 16384, PAGES = 256, N = 40, LAST_BYTES = 5000 }; /* the prompt fills N pages, the last one in part */

static const uint64_t second = 1000000000;

static unsigned char memory[2 * PAGES * PAGE]; /* a rank's pages for prefill, then those for decode */

/* What the decode rank sends: its memory's description, and the offsets of the pages to fill. */
typedef struct offer {
    uint64_t      pages[N];
    size_t        len;
    unsigned char desc[1024];
} offer_t;

static size_t page_bytes(size_t p)
{
    return (p + 1 < N) ? PAGE : LAST_BYTES;
}

/* Stands for the model. Visit the bytes of the prompt's page p: write them, or count the wrong ones. */
static size_t visit(unsigned char *page, size_t p, int write)
{
    size_t        wrong = 0, i;
    unsigned char value;

    for (i = 0; i < page_bytes(p); ++i) {
        value = (unsigned char)((p * 31) + i + (i >> 8) + 1);
        if (write) {
            page[i] = value;
        }
        wrong += page[i] != value;
    }
    return wrong;
}

/* Decode: offer pages. */
static void make_offer(kvcl_comm_h world, int other, kvcl_mem_h mem, offer_t *offer)
{
    kvcl_req_h req;
    size_t     p;

    for (p = 0; p < N; ++p) {
        offer->pages[p] = (PAGES + ((p * 59) % PAGES)) * PAGE;
    }
    offer->len = sizeof(offer->desc);
    KVCL_TRY(kvcl_mem_export(mem, KVCL_READ_WRITE, offer->desc, &offer->len));
    KVCL_TRY(kvcl_notify(world, other, offer, sizeof(*offer), NULL, &req));
    KVCL_TRY(kvcl_req_wait(req, 60 * second));
}

/* Decode: verify the prompt once it is here. @return wrong bytes. */
static size_t take(kvcl_comm_h world, const offer_t *offer)
{
    char   message[16];
    size_t wrong = 0, p;

    KVCL_TRY(kvcl_notify_recv(world, message, sizeof(message), NULL, 60 * second));
    for (p = 0; p < N; ++p) {
        wrong += visit(memory + offer->pages[p], p, 0);
    }
    return wrong;
}

/* Prefill: compute the prompt, push it into the offered pages, drop it here, and pull it. @return wrong bytes. */
static size_t push_and_pull(kvcl_comm_h world, int other, kvcl_mem_h mem)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_vec_t         pieces[N];
    size_t             wrong = 0, p;
    kvcl_rmem_h        theirs;
    kvcl_req_h         req;
    offer_t            offer;

    KVCL_TRY(kvcl_notify_recv(world, &offer, sizeof(offer), NULL, 60 * second));
    KVCL_TRY(kvcl_rmem_import(world, other, offer.desc, offer.len, &theirs));
    for (p = 0; p < N; ++p) {
        pieces[p] = (kvcl_vec_t){offer.pages[p], memory + ((p * 101) % PAGES * PAGE), page_bytes(p)};
        (void)visit(pieces[p].addr, p, 1);
    }
    params.notify       = "prompt 1";
    params.notify_bytes = strlen("prompt 1");
    KVCL_TRY(kvcl_put_vec(theirs, pieces, N, mem, &params, &req));
    KVCL_TRY(kvcl_req_wait(req, 60 * second)); /* the bytes are there: the pages here are free */
    for (p = 0; p < N; ++p) {
        memset(pieces[p].addr, 0, PAGE);
    }
    KVCL_TRY(kvcl_get_vec(theirs, pieces, N, mem, NULL, &req));
    KVCL_TRY(kvcl_req_wait(req, 60 * second));
    for (p = 0; p < N; ++p) {
        wrong += visit(pieces[p].addr, p, 0);
    }
    kvcl_rmem_free(theirs);
    return wrong;
}

int main(void)
{
    size_t         wrong = 0;
    offer_t        offer = {.len = 0};
    kvcl_context_h ctx;
    kvcl_comm_h    world;
    kvcl_mem_h     mem;
    kvcl_req_h     req;
    int            rank, other;

    KVCL_TRY(kvcl_init(NULL, &ctx));
    KVCL_TRY(kvcl_comm_world(ctx, &world));
    rank  = kvcl_comm_rank(world);
    other = ((rank ^ 1) < kvcl_comm_size(world)) ? rank ^ 1 : rank;
    KVCL_TRY(kvcl_mem_register(ctx, memory, sizeof(memory), KVCL_MEM_HOST, NULL, &mem));
    if ((rank % 2 == 1) || (other == rank)) {
        make_offer(world, other, mem, &offer);
    }
    if (rank % 2 == 0) {
        wrong += push_and_pull(world, other, mem);
    }
    if ((rank % 2 == 1) || (other == rank)) {
        wrong += take(world, &offer);
    }
    printf("rank %d: %d pages %s, %zu bytes wrong\n", rank, N, (rank % 2 == 0) ? "pushed and pulled" : "taken", wrong);
    KVCL_TRY(kvcl_barrier(world, NULL, &req)); /* no rank leaves while another reads its memory */
    KVCL_TRY(kvcl_req_wait(req, 60 * second));
    kvcl_mem_free(mem);
    kvcl_finalize(ctx);
    return (wrong == 0) ? 0 : 1;
}
