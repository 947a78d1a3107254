/*
 * Every rank and its two neighbours, over the public header: send, recv, get and put of blocks and of plain bytes, all
 * in flight at once, then every byte verified. Any number of ranks, started by any launcher.
 *   p2p [ROUNDS [paths]]
 * Prints "joined RANK of SIZE" and "ok RANK of SIZE", with "paths" also "path FROM -> TO KIND" for each other rank.
 * Exit 1 after the first mistake.
 */
#include <kvcl/kvcl.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCKS = 4, BLOCK = 5000, BYTES_MAX = 300007, EXPORT_MAX = 1024, PATH_TEXT_MAX = 160 };
enum { WAIT_S = 60, ALARM_S = 90 };

/* Areas of BLOCKS blocks in the cache: all but the first exist once for each side. The memory has the first two kinds,
 * of BYTES_MAX bytes; bytes received and got go to plain buffers. */
enum { AREA_MINE, AREA_PUT, AREA_RECEIVED = AREA_PUT + 2, AREA_GOT = AREA_RECEIVED + 2, AREAS = AREA_GOT + 2 };

/* The transfers with one neighbour: side 0 sends, gets and puts to the right, side 1 to the left. */
typedef struct side {
    int           to, from;
    kvcl_rmem_h   rmem; /* of to */
    unsigned char *received, *got;
} side_t;

static kvcl_context_h ctx;
static kvcl_comm_h    world;
static kvcl_cache_h   cache;
static kvcl_mem_h     mem;
static side_t         sides[2];
static int            rank = -1, size;

static bool ok(kvcl_status_t status, const char *what)
{
    if (status != KVCL_OK) {
        fprintf(stderr, "rank %d: %s: %s (%s)\n", rank, what, kvcl_status_text(status), kvcl_last_error());
    }
    return status == KVCL_OK;
}

static bool finish(kvcl_req_h *reqs, size_t n, const char *what)
{
    return ok(kvcl_req_wait_all(reqs, n, (uint64_t)WAIT_S * 1000000000u), what);
}

static bool barrier(void)
{
    kvcl_req_h req = NULL;

    return ok(kvcl_barrier(world, NULL, &req), "kvcl_barrier") && finish(&req, 1, "barrier");
}

/* The bytes of a rank in a round. */
static unsigned char pattern(int of, int round, size_t i)
{
    uint64_t x = (((uint64_t)of * 1000003u) + ((uint64_t)round * 8191u) + i) * UINT64_C(0x9e3779b97f4a7c15);

    return (unsigned char)(x >> 56);
}

static void fill(unsigned char *buf, size_t len, int of, int round, size_t from)
{
    size_t i;

    for (i = 0; i < len; ++i) {
        buf[i] = pattern(of, round, from + i);
    }
}

static bool holds(const unsigned char *buf, size_t len, int of, int round, size_t from, const char *what)
{
    size_t i;

    for (i = 0; i < len; ++i) {
        if (buf[i] != pattern(of, round, from + i)) {
            fprintf(stderr, "rank %d: round %d: byte %zu of %zu %s rank %d is wrong\n", rank, round, i, len, what, of);
            return false;
        }
    }
    return true;
}

static size_t bytes_of(int round)
{
    static const size_t lens[] = {1000, BYTES_MAX, 8192, 1, 8193, 100001};

    return lens[(size_t)round % (sizeof(lens) / sizeof(lens[0]))];
}

/* ids has room for BLOCKS. */
static kvcl_sel_t area(uint32_t *ids, int which)
{
    uint32_t i;

    for (i = 0; i < BLOCKS; ++i) {
        ids[i] = ((uint32_t)which * BLOCKS) + ((i * 3) % BLOCKS); /* not in order */
    }
    return (kvcl_sel_t){.blocks = ids, .n_blocks = BLOCKS};
}

static bool write_mine(int round)
{
    unsigned char block[BLOCK];
    uint32_t      ids[BLOCKS], i;

    (void)area(ids, AREA_MINE);
    for (i = 0; i < BLOCKS; ++i) {
        fill(block, BLOCK, rank, round, (size_t)i * BLOCK);
        if (!ok(kvcl_cache_write_block(cache, ids[i], block, BLOCK), "kvcl_cache_write_block")) {
            return false;
        }
    }
    fill(kvcl_mem_addr(mem), bytes_of(round), rank, round, 0);
    return true;
}

static bool blocks_hold(int which, int of, int round, const char *what)
{
    unsigned char block[BLOCK];
    uint32_t      ids[BLOCKS], i;

    (void)area(ids, which);
    for (i = 0; i < BLOCKS; ++i) {
        if (!ok(kvcl_cache_read_block(cache, ids[i], block, BLOCK), "kvcl_cache_read_block") ||
            !holds(block, BLOCK, of, round, (size_t)i * BLOCK, what)) {
            return false;
        }
    }
    return true;
}

/* Post the eight requests of one side. */
static bool post(int s, int round, kvcl_req_h *reqs)
{
    const side_t        *side = &sides[s];
    const unsigned char *mine = kvcl_mem_addr(mem);
    const size_t        len   = bytes_of(round);
    const uint64_t      tag   = ((uint64_t)round * 2) + (uint64_t)s + 1; /* not 0: ~0 is KVCL_ANY_TAG */
    uint32_t            ids[4][BLOCKS];
    kvcl_sel_t          from = area(ids[0], AREA_MINE), put = area(ids[1], AREA_PUT + s);
    kvcl_sel_t          received = area(ids[2], AREA_RECEIVED + s), got = area(ids[3], AREA_GOT + s);

    return ok(kvcl_recv(world, side->from, tag, cache, &received, NULL, &reqs[0]), "kvcl_recv") &&
           ok(kvcl_recv_bytes(world, side->from, ~tag, side->received, BYTES_MAX, NULL, &reqs[1]), "kvcl_recv_bytes") &&
           ok(kvcl_send(world, side->to, tag, cache, &from, NULL, &reqs[2]), "kvcl_send") &&
           ok(kvcl_send_bytes(world, side->to, ~tag, mine, len, NULL, &reqs[3]), "kvcl_send_bytes") &&
           ok(kvcl_get(world, side->to, cache, &from, &got, NULL, &reqs[4]), "kvcl_get") &&
           ok(kvcl_get_bytes(side->rmem, 0, side->got, len, NULL, &reqs[5]), "kvcl_get_bytes") &&
           ok(kvcl_put(world, side->to, cache, &from, &put, NULL, &reqs[6]), "kvcl_put") &&
           ok(kvcl_put_bytes(side->rmem, (uint64_t)(AREA_PUT + s) * BYTES_MAX, mine, len, NULL, &reqs[7]),
              "kvcl_put_bytes");
}

static bool verify(int s, int round)
{
    const side_t        *side = &sides[s];
    const unsigned char *put  = (const unsigned char *)kvcl_mem_addr(mem) + ((size_t)(AREA_PUT + s) * BYTES_MAX);
    const size_t        len   = bytes_of(round);

    return blocks_hold(AREA_RECEIVED + s, side->from, round, "of a block received from") &&
           blocks_hold(AREA_GOT + s, side->to, round, "of a block got from") &&
           blocks_hold(AREA_PUT + s, side->from, round, "of a block put by") &&
           holds(side->received, len, side->from, round, 0, "received from") &&
           holds(side->got, len, side->to, round, 0, "got from") && holds(put, len, side->from, round, 0, "put by");
}

static bool play(int round)
{
    kvcl_req_h reqs[16] = {NULL};

    return write_mine(round) && barrier() && post(0, round, &reqs[0]) && post(1, round, &reqs[8]) &&
           finish(reqs, 16, "a round") && barrier() && verify(0, round) && verify(1, round);
}

static bool join(void)
{
    kvcl_layout_t layout = KVCL_LAYOUT_BYTES(AREAS * BLOCKS, BLOCK);
    unsigned char *all, mine[EXPORT_MAX];
    size_t        len = sizeof(mine);
    kvcl_req_h    req = NULL;
    bool          good;
    int           s;
    const kvcl_cache_params_t writable = {.size = sizeof(writable), .flags = KVCL_CACHE_WRITABLE};

    if (!ok(kvcl_init(NULL, &ctx), "kvcl_init") || !ok(kvcl_comm_world(ctx, &world), "kvcl_comm_world")) {
        return false;
    }
    rank = kvcl_comm_rank(world);
    size = kvcl_comm_size(world);
    memset(mine, 0, sizeof(mine));
    all  = malloc((size_t)size * EXPORT_MAX);
    good = (all != NULL) && ok(kvcl_cache_create(ctx, "pages", &layout, &writable, &cache), "cache") &&
           ok(kvcl_mem_alloc(ctx, (size_t)AREA_RECEIVED * BYTES_MAX, NULL, &mem), "kvcl_mem_alloc") &&
           ok(kvcl_mem_export(mem, KVCL_READ_WRITE, mine, &len), "kvcl_mem_export") &&
           ok(kvcl_allgather(world, mine, EXPORT_MAX, all, NULL, &req), "kvcl_allgather") &&
           finish(&req, 1, "allgather");
    for (s = 0; good && (s < 2); ++s) {
        sides[s].to       = (rank + ((s == 0) ? 1 : size - 1)) % size;
        sides[s].from     = (rank + ((s == 0) ? size - 1 : 1)) % size;
        sides[s].received = malloc(BYTES_MAX);
        sides[s].got      = malloc(BYTES_MAX);
        good = (sides[s].received != NULL) && (sides[s].got != NULL) &&
               ok(kvcl_rmem_import(world, sides[s].to, all + ((size_t)sides[s].to * EXPORT_MAX), len, &sides[s].rmem),
                  "kvcl_rmem_import");
    }
    free(all);
    return good;
}

/* After an error requests are in flight: then kvcl_finalize frees the objects that they use. */
static void leave(bool idle)
{
    int s;

    for (s = 0; idle && (s < 2); ++s) {
        kvcl_rmem_free(sides[s].rmem);
    }
    if (idle) {
        kvcl_mem_free(mem);
        kvcl_cache_destroy(cache);
    }
    kvcl_finalize(ctx);
    for (s = 0; s < 2; ++s) {
        free(sides[s].received);
        free(sides[s].got);
    }
}

static bool print_paths(void)
{
    char text[PATH_TEXT_MAX];
    int  to;

    for (to = 0; to < size; ++to) {
        if (to == rank) {
            continue;
        }
        if (!ok(kvcl_query_path(world, to, text, sizeof(text)), "kvcl_query_path")) {
            return false;
        }
        printf("path %d -> %d %s\n", rank, to, text);
    }
    return barrier();
}

int main(int argc, char **argv)
{
    int  rounds = (argc > 1) ? atoi(argv[1]) : 12, round;
    bool good;

    alarm(ALARM_S); /* a hang is a failure under any launcher */
    good = join();
    if (good) {
        printf("joined %d of %d\n", rank, size);
        fflush(stdout);
    }
    for (round = 0; good && (round < rounds); ++round) {
        good = play(round);
        if (good && (round == 0)) {
            printf("round 1 of %d\n", rounds);
            fflush(stdout);
        }
    }
    good = good && ((argc < 3) || print_paths()) && barrier();
    if (good) {
        printf("ok %d of %d\n", rank, size);
    }
    leave(good);
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
