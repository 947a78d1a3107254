/*
 * A stranger's layout, selection and order. Unpack refuses any bytes or returns a shape that packs to itself. With a
 * selection that passes the check, a stream never leaves its bases, in any order, and yields the number of bytes it
 * stated. Input: the packed shape, u32 order, four u32 of ranges, then u32 block ids.
 */
#include "kv/runs.h"

#include "base/wirebuf.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_STEPS = 4096, MAX_IDS = 256 };

static void require(int ok)
{
    if (!ok) {
        abort();
    }
}

/* The driver has no grammar: make the fields checked first valid, so that the rest is reached too. */
static void repair(uint8_t *packed)
{
    static const uint8_t limits[] = {3, 3, 17, 9, 15, 3};
    size_t i;

    packed[0] = KVCL_SHAPE_WIRE_VERSION, packed[1] = 0, packed[2] = KVCL_SHAPE_WIRE_BYTES, packed[3] = 0;
    memset(packed + 80, 0, 8);
    memset(packed + 5, 0, 3);
    packed[4] %= 3;
    for (i = 0; i < sizeof(limits); ++i) {
        memset(packed + 8 + (4 * i) + 1, 0, 3);
        packed[8 + (4 * i)] %= limits[i];
    }
    memset(packed + 33, 0, 7);
    for (i = 40; i < 80; i += 8) { /* strides: mostly default, sometimes padded */
        memset(packed + i + 2, 0, 6);
        packed[i] = (packed[i] & 1) ? packed[i] : 0;
        packed[i + 1] = (packed[i] == 0) ? 0 : packed[i + 1];
    }
}

static void walk(const kvcl_side_t *side, uint32_t order)
{
    uint64_t total = kvcl_sel_bytes(side->shape, &side->sel), seen = 0;
    kvcl_stream_t s;
    uintptr_t addr = 0;
    size_t len = 1;
    int steps;

    kvcl_stream_init(&s, side, order);
    require(s.total_bytes == total);
    for (steps = 0; (steps < MAX_STEPS) && ((len = kvcl_stream_next(&s, SIZE_MAX, &addr)) > 0); ++steps) {
        require(s.base < side->shape->n_bases);
        require((addr <= side->shape->base_bytes) && (len <= side->shape->base_bytes - addr));
        seen += len;
    }
    require((len > 0) || (seen == total));
    kvcl_stream_seek(&s, total - (total / 3));
    require(kvcl_stream_pos(&s) == total - (total / 3));
}

static void try_side(const kvcl_shape_t *shape, kvcl_rd_t *rd, uintptr_t *bases)
{
    static uint32_t ids[MAX_IDS];
    uint32_t order = kvcl_rd_u32(rd);
    kvcl_side_t side = {.shape = shape, .bases = bases, .sel = {.blocks = ids}};
    kvcl_runs_t runs;

    side.sel.layers = (kvcl_range_t){kvcl_rd_u32(rd), kvcl_rd_u32(rd)};
    side.sel.heads = (kvcl_range_t){kvcl_rd_u32(rd), kvcl_rd_u32(rd)};
    while ((kvcl_rd_left(rd) >= 4) && (side.sel.n_blocks < MAX_IDS)) {
        ids[side.sel.n_blocks++] = kvcl_rd_u32(rd);
    }
    if (kvcl_side_check(&side) != KVCL_OK) {
        memset(&side.sel.layers, 0, sizeof(side.sel.layers));
        memset(&side.sel.heads, 0, sizeof(side.sel.heads));
        while (side.sel.n_blocks > 0 && ids[side.sel.n_blocks - 1] >= shape->blocks) {
            --side.sel.n_blocks;
        }
        if (kvcl_side_check(&side) != KVCL_OK) {
            return;
        }
    }
    walk(&side, kvcl_stream_order_valid(order) ? order : KVCL_STREAM_CANONICAL);
    require(kvcl_runs_init(&runs, &side, &side, KVCL_RUNS_ANY_ORDER) == KVCL_OK);
    require(kvcl_stream_order_valid(runs.dst.order));
}

static void try_shape(const uint8_t *packed, size_t len, kvcl_rd_t *rest)
{
    static uintptr_t bases[2 * KVCL_LAYOUT_MAX_LAYERS];
    uint8_t again[KVCL_SHAPE_WIRE_BYTES];
    char line[KVCL_LAYOUT_DESCRIBE_MAX];
    kvcl_shape_t shape, twin;

    if (kvcl_shape_unpack(&shape, packed, len) != KVCL_OK) {
        return;
    }
    kvcl_shape_pack(&shape, again);
    require(kvcl_shape_unpack(&twin, again, sizeof(again)) == KVCL_OK);
    require(memcmp(&shape, &twin, sizeof(shape)) == 0);
    require(kvcl_shape_compatible(&shape, &twin) == KVCL_OK);
    kvcl_shape_describe(&shape, line, sizeof(line));
    require(shape.n_bases <= 2 * KVCL_LAYOUT_MAX_LAYERS);
    try_side(&shape, rest, bases);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t packed[KVCL_SHAPE_WIRE_BYTES];
    kvcl_shape_t shape;
    kvcl_rd_t rd;

    if (size < sizeof(packed)) {
        require(kvcl_shape_unpack(&shape, data, size) != KVCL_OK);
        return 0;
    }
    memcpy(packed, data, sizeof(packed));
    kvcl_rd_init(&rd, data + sizeof(packed), size - sizeof(packed));
    try_shape(packed, sizeof(packed), &rd);
    repair(packed);
    kvcl_rd_init(&rd, data + sizeof(packed), size - sizeof(packed));
    try_shape(packed, sizeof(packed), &rd);
    return 0;
}
