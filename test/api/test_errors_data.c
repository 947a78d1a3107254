/*
 * What public calls refuse (errors.h): layouts, caches, memory, transfers, keys, the store.
 */
#include "test/api/errors.h"

#include <stdio.h>
#include <sys/mman.h>

static const kvcl_sel_t far_block = {.blocks = bad_ids, .n_blocks = 2}, no_ids = {.n_blocks = 2},
                        far_layer = {.blocks = good_ids, .n_blocks = 2, .layers = {0, 3}},
                        no_head   = {.blocks = good_ids, .n_blocks = 2, .heads = {2, 2}};

/* ---- layouts and caches ---- */

#define SMALL \
    .size = sizeof(kvcl_layout_t), .layers = 2, .blocks = 4, .tokens = 4, .heads = 2, .head_dim = 8, .elem_bytes = 2

/* A good layout with one bad field. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverride-init"
static const struct {
    kvcl_layout_t layout;
    const char   *word;
} bad_layouts[] = {
    {{SMALL, .layers = 0}, "layers"},
    {{SMALL, .layers = KVCL_LAYOUT_MAX_LAYERS + 1}, "layers"},
    {{SMALL, .kv = 3}, "kv"},
    {{SMALL, .blocks = 0}, "blocks"},
    {{SMALL, .blocks = KVCL_LAYOUT_MAX_BLOCKS + 1}, "blocks"},
    {{SMALL, .tokens = 0}, "tokens"},
    {{SMALL, .heads = 0}, "heads"},
    {{SMALL, .head_dim = 0}, "head_dim"},
    {{SMALL, .elem_bytes = 0}, "elem_bytes"},
    {{SMALL, .flags = 0x10}, "0x10"},
    {{SMALL, .flags = KVCL_LAYOUT_PER_LAYER | KVCL_LAYOUT_PER_PLANE}, "PER_PLANE"},
    {{SMALL, .order = 2}, "order"},
    {{SMALL, .reserved = 1}, "reserved"},
    {{SMALL, .flags = KVCL_LAYOUT_PER_LAYER, .layer_stride = 4096}, "layer_stride"},
    {{SMALL, .flags = KVCL_LAYOUT_PER_PLANE, .kv_stride = 4096}, "kv_stride"},
    {{SMALL, .head_stride = 15}, "head_stride"},
    {{SMALL, .token_stride = 31}, "token_stride"},
    {{SMALL, .block_stride = 127}, "block_stride"},
    {{SMALL, .kv_stride = 64}, "kv_stride"},
    {{SMALL, .layer_stride = 1023}, "layer_stride"},
    {{SMALL, .token_stride = UINT64_MAX}, "token_stride"},
    {{SMALL, .layer_stride = UINT64_C(1) << 62}, "layer_stride"},
    {{SMALL, .head_dim = UINT32_MAX, .elem_bytes = UINT32_MAX}, "head_dim"},
    {{SMALL, .tokens = UINT32_MAX, .heads = UINT32_MAX}, "block"},
    {{SMALL, .blocks = KVCL_LAYOUT_MAX_BLOCKS, .tokens = UINT32_MAX}, "blocks"},
};
#pragma GCC diagnostic pop

START_TEST(bad_layouts_are_named)
{
    kvcl_layout_t wide = shape;
    size_t        i;

    for (i = 0; i < sizeof(bad_layouts) / sizeof(bad_layouts[0]); ++i) {
        const kvcl_layout_t *l    = &bad_layouts[i].layout;
        const char          *word = bad_layouts[i].word;
        char                 text[8] = "before";
        REFUSED(BAD_LAYOUT, word, kvcl_layout_block_bytes(l, &out.n));
        REFUSED(BAD_LAYOUT, word, kvcl_layout_extent(l, &out.n, &out.m));
        REFUSED(BAD_LAYOUT, word, kvcl_layout_hash(l, out.bytes));
        REFUSED(BAD_LAYOUT, word, kvcl_layout_compatible(l, &shape));
        REFUSED(BAD_LAYOUT, word, kvcl_layout_compatible(&shape, l));
        REFUSED(BAD_LAYOUT, word, kvcl_layout_describe(l, text, sizeof(text)));
        ck_assert_str_eq(text, "");
        REFUSED(BAD_LAYOUT, word, kvcl_cache_create(ctx, "bad", l, NULL, &out.cache));
    }
    REFUSED(INVALID_PARAM, "layout", kvcl_layout_block_bytes(NULL, &out.n));
    REFUSED(INVALID_PARAM, "layout", kvcl_layout_compatible(&shape, NULL));
    REFUSED(INVALID_PARAM, "buffer", kvcl_layout_describe(&shape, (char *)out.bytes, 0));
    REFUSED(INVALID_PARAM, "buffer", kvcl_layout_describe(&shape, NULL, 64));
    wide.head_dim = 9;
    REFUSED(BAD_LAYOUT, "head_dim is 4 on one side, 9", kvcl_layout_compatible(&shape, &wide));
}
END_TEST

START_TEST(caches_refuse)
{
    char  longest[65], block[4096] = {0};
    const kvcl_cache_params_t no_kind = {.size = sizeof(no_kind), .kind = (kvcl_mem_kind_t)7};

    memset(longest, 'n', sizeof(longest) - 1);
    longest[64] = '\0';
    REFUSED(INVALID_PARAM, "kvcl_cache_create", kvcl_cache_create(NULL, "c", &shape, NULL, &out.cache));
    REFUSED(INVALID_PARAM, "kvcl_cache_create", kvcl_cache_create(ctx, NULL, &shape, NULL, &out.cache));
    REFUSED(INVALID_PARAM, "kvcl_cache_create", kvcl_cache_create(ctx, "c", NULL, NULL, &out.cache));
    REFUSED(INVALID_PARAM, "kvcl_cache_create", kvcl_cache_create(ctx, "c", &shape, NULL, NULL));
    REFUSED(INVALID_PARAM, "name", kvcl_cache_create(ctx, "", &shape, NULL, &out.cache));
    REFUSED(INVALID_PARAM, "64", kvcl_cache_create(ctx, longest, &shape, NULL, &out.cache));
    REFUSED(UNSUPPORTED, "kind 7", kvcl_cache_create(ctx, "c", &shape, &no_kind, &out.cache));
    REFUSED(EXISTS, "\"mine\"", kvcl_cache_create(ctx, "mine", &shape, NULL, &out.cache));
    REFUSED(INVALID_PARAM, "block", kvcl_cache_read_block(NULL, 0, out.bytes, 256));
    REFUSED(INVALID_PARAM, "256 bytes", kvcl_cache_read_block(cache, 0, out.bytes, 255));
    REFUSED(INVALID_PARAM, "257", kvcl_cache_read_block(cache, 0, out.bytes, 257));
    REFUSED(INVALID_PARAM, "block", kvcl_cache_read_block(cache, 0, NULL, 256));
    REFUSED(OUT_OF_RANGE, "kvcl_cache_read_block: cache \"mine\": selection: blocks[0] is 8: the layout has blocks 0 "
            "to 7", kvcl_cache_read_block(cache, BLOCKS, out.bytes, 256));
    REFUSED(OUT_OF_RANGE, "4294967295", kvcl_cache_read_block(cache, UINT32_MAX, out.bytes, 256));
    REFUSED(INVALID_PARAM, "255", kvcl_cache_write_block(cache, 0, block, 255));
    REFUSED(INVALID_PARAM, "block", kvcl_cache_write_block(cache, 0, NULL, 256));
    REFUSED(OUT_OF_RANGE, "kvcl_cache_write_block: cache \"mine\"", kvcl_cache_write_block(cache, BLOCKS, block, 256));
    ck_assert_ptr_null(kvcl_cache_base(cache, 1));
    longest[63] = '\0'; /* 63 bytes are allowed */
    TAKEN(kvcl_cache_create(ctx, longest, &shape, NULL, &out.cache));
    kvcl_cache_destroy(out.cache);
    kvcl_cache_destroy(NULL);
}
END_TEST

/* Peers reach all bytes that the layout covers. Shorter memory makes no cache, and no peer finds one. */
#define SHORT(_params) kvcl_cache_create(ctx, "short", &per_layer, &(_params), &out.cache)
START_TEST(short_memory_is_refused)
{
    kvcl_layout_t       per_layer = shape;
    size_t              page = (size_t)sysconf(_SC_PAGESIZE), need, n, bytes[3];
    char                *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void                *bases[3] = {out.bytes, out.bytes, out.bytes};
    kvcl_cache_params_t fine, bad;
    char                words[64];

    per_layer.flags = KVCL_LAYOUT_PER_LAYER;
    TAKEN(kvcl_layout_extent(&per_layer, &n, &need));
    ck_assert_uint_eq(n, 2);
    ck_assert((pages != MAP_FAILED) && (need <= sizeof(out.bytes)) && (need > 16) && (need <= page));
    bytes[0] = bytes[1] = bytes[2] = need;
    bad = fine = (kvcl_cache_params_t){.size = sizeof(fine), .n_bases = 2, .bases = bases, .base_bytes = bytes};
    bytes[1] = need - 1;
    snprintf(words, sizeof(words), "base 1 has %zu bytes, the layout needs %zu", need - 1, need);
    REFUSED(INVALID_PARAM, words, SHORT(fine));
    bytes[1] = 0;
    REFUSED(INVALID_PARAM, "base 1 has 0 bytes", SHORT(fine));
    bytes[1] = SIZE_MAX;
    REFUSED(INVALID_PARAM, "base 1", SHORT(fine));
    bytes[1] = need;
    bases[1] = NULL;
    REFUSED(INVALID_PARAM, "base 1 is NULL", SHORT(fine));
    bases[1] = out.bytes;
    bad.n_bases = 1;
    REFUSED(INVALID_PARAM, "n_bases is 1, the layout has 2", SHORT(bad));
    bad.n_bases = 3;
    REFUSED(INVALID_PARAM, "n_bases is 3, the layout has 2", SHORT(bad));
    bad = fine;
    bad.base_bytes = NULL;
    REFUSED(INVALID_PARAM, "base_bytes is NULL", SHORT(bad));
    bad = fine;
    bad.bases = NULL;
    REFUSED(INVALID_PARAM, "bases is NULL", SHORT(bad));
    bad = fine;
    bad.flags = 4;
    REFUSED(INVALID_PARAM, "0x4", SHORT(bad));
    /* the caller states a sufficient length, but the kernel has less: its last page is unmapped */
    ck_assert_int_eq(munmap(pages + page, page), 0);
    bases[1] = pages + page - 16;
    REFUSED(INVALID_PARAM, "base 1", SHORT(fine));
    REFUSED(INVALID_PARAM, "not all memory", kvcl_mem_register(ctx, bases[1], need, KVCL_MEM_HOST, NULL, &out.mem));
    bases[1] = pages + page - need; /* up to the last byte of the pages */
    TAKEN(SHORT(fine)); /* nothing remains of the refused ones */
    kvcl_cache_destroy(out.cache);
    ck_assert_int_eq(munmap(pages, page), 0);
}
END_TEST

/* ---- plain memory ---- */

START_TEST(memory_refuses)
{
    const kvcl_mem_params_t unknown = {.size = sizeof(unknown), .flags = 0x100};
    const char             *path;
    char                    none[128];

    make_dir();
    snprintf(none, sizeof(none), "%s/none", dir);
    REFUSED(INVALID_PARAM, "NULL", kvcl_mem_register(NULL, plain, 64, KVCL_MEM_HOST, NULL, &out.mem));
    REFUSED(INVALID_PARAM, "NULL", kvcl_mem_register(ctx, plain, 64, KVCL_MEM_HOST, NULL, NULL));
    REFUSED(INVALID_PARAM, "addr", kvcl_mem_register(ctx, NULL, 64, KVCL_MEM_HOST, NULL, &out.mem));
    REFUSED(INVALID_PARAM, "0 bytes", kvcl_mem_register(ctx, plain, 0, KVCL_MEM_HOST, NULL, &out.mem));
    REFUSED(INVALID_PARAM, "64 bytes",
            kvcl_mem_register(ctx, (void *)(UINTPTR_MAX - 8), 64, KVCL_MEM_HOST, NULL, &out.mem));
    REFUSED(UNSUPPORTED, "kind 9", kvcl_mem_register(ctx, plain, 64, (kvcl_mem_kind_t)9, NULL, &out.mem));
    REFUSED(INVALID_PARAM, "0x100", kvcl_mem_register(ctx, plain, 64, KVCL_MEM_HOST, &unknown, &out.mem));
    REFUSED(INVALID_PARAM, "NULL", kvcl_mem_alloc(NULL, 64, NULL, &out.mem));
    REFUSED(INVALID_PARAM, "NULL", kvcl_mem_alloc(ctx, 64, NULL, NULL));
    REFUSED(INVALID_PARAM, "0 bytes", kvcl_mem_alloc(ctx, 0, NULL, &out.mem));
    REFUSED(INVALID_PARAM, "0x100", kvcl_mem_alloc(ctx, 64, &unknown, &out.mem));
    REFUSED(INVALID_PARAM, "path", kvcl_mem_file(ctx, NULL, 0, 0, &out.mem));
    REFUSED(INVALID_PARAM, "NULL", kvcl_mem_file(NULL, none, 0, 0, &out.mem));
    REFUSED(INVALID_PARAM, "page aligned", kvcl_mem_file(ctx, none, 100, 0, &out.mem));
    REFUSED(IO, none, kvcl_mem_file(ctx, none, 0, 0, &out.mem));
    REFUSED(IO, dir, kvcl_mem_file(ctx, dir, 0, 0, &out.mem));
    REFUSED(INVALID_PARAM, "/dev/null", kvcl_mem_file(ctx, "/dev/null", 0, 0, &out.mem));
    path = write_file("file", 0600, 32);
    REFUSED(OUT_OF_RANGE, path, kvcl_mem_file(ctx, path, 0, 33, &out.mem));
    REFUSED(OUT_OF_RANGE, path, kvcl_mem_file(ctx, path, 1 << 20, 0, &out.mem));
    unlink(path);
    remove_dir();
    kvcl_mem_free(NULL);
}
END_TEST

START_TEST(exports_and_imports_refuse)
{
    uint8_t desc[1024];
    size_t  len = sizeof(desc), need = 4;

    REFUSED(INVALID_PARAM, "NULL", kvcl_mem_export(NULL, KVCL_READ, out.bytes, &out.n));
    REFUSED(INVALID_PARAM, "NULL", kvcl_mem_export(mem, KVCL_READ, NULL, &out.n));
    REFUSED(INVALID_PARAM, "NULL", kvcl_mem_export(mem, KVCL_READ, out.bytes, NULL));
    REFUSED(INVALID_PARAM, "rights", kvcl_mem_export(mem, 0, out.bytes, &out.n));
    REFUSED(INVALID_PARAM, "rights", kvcl_mem_export(mem, 4, out.bytes, &out.n));
    REFUSED(TRUNCATED, "room for 4", kvcl_mem_export(mem, KVCL_READ, out.bytes, &need));
    TAKEN(kvcl_mem_export(mem, KVCL_READ, desc, &len));
    ck_assert_uint_eq(need, len);
    REFUSED(INVALID_PARAM, "communicator", kvcl_rmem_import(NULL, 0, desc, len, &out.rmem));
    REFUSED(INVALID_PARAM, "NULL", kvcl_rmem_import(world, 0, NULL, len, &out.rmem));
    REFUSED(INVALID_PARAM, "NULL", kvcl_rmem_import(world, 0, desc, len, NULL));
    REFUSED(PROTOCOL, "(0 bytes)", kvcl_rmem_import(world, 0, desc, 0, &out.rmem));
    REFUSED(PROTOCOL, "not a description", kvcl_rmem_import(world, 0, desc, len - 1, &out.rmem));
    memset(desc + len, 0, 3);
    REFUSED(PROTOCOL, "3 bytes too many", kvcl_rmem_import(world, 0, desc, len + 3, &out.rmem));
    memset(desc, 0xff, sizeof(desc));
    REFUSED(PROTOCOL, "not a description", kvcl_rmem_import(world, 0, desc, len, &out.rmem));
    kvcl_rmem_free(NULL);
}
END_TEST

START_TEST(remote_bytes_are_checked)
{
    kvcl_xfer_params_t p = KVCL_XFER_PARAMS_INIT;

    REFUSED(INVALID_PARAM, "kvcl_get_bytes", kvcl_get_bytes(NULL, 0, out.bytes, 8, NULL, &out.req));
    REFUSED(INVALID_PARAM, "kvcl_get_bytes", kvcl_get_bytes(rmem, 0, NULL, 8, NULL, &out.req));
    REFUSED(INVALID_PARAM, "0x40", kvcl_get_bytes(rmem, 0, out.bytes, 8, &flagged, &out.req));
    REFUSED(ACCESS, "right to read", kvcl_get_bytes(writable, 0, out.bytes, 8, NULL, &out.req));
    REFUSED(OUT_OF_RANGE, "4089 + 8", kvcl_get_bytes(rmem, FAR - 7, out.bytes, 8, NULL, &out.req));
    REFUSED(OUT_OF_RANGE, "of 4096", kvcl_get_bytes(rmem, UINT64_MAX, out.bytes, 8, NULL, &out.req));
    REFUSED(INVALID_PARAM, "kvcl_put_bytes", kvcl_put_bytes(NULL, 0, "12345678", 8, NULL, &out.req));
    REFUSED(INVALID_PARAM, "kvcl_put_bytes", kvcl_put_bytes(rmem, 0, NULL, 8, NULL, &out.req));
    REFUSED(INVALID_PARAM, "0x40", kvcl_put_bytes(rmem, 0, "12345678", 8, &flagged, &out.req));
    REFUSED(ACCESS, "right to write", kvcl_put_bytes(readable, 0, "12345678", 8, NULL, &out.req));
    REFUSED(OUT_OF_RANGE, "4096 + 8", kvcl_put_bytes(rmem, FAR, "12345678", 8, NULL, &out.req));
    p.signal_mem    = rmem;
    p.signal_offset = 4;
    REFUSED(INVALID_PARAM, "multiple of 8", kvcl_put_bytes(rmem, 0, "12345678", 8, &p, &out.req));
    REFUSED(INVALID_PARAM, "multiple of 8", kvcl_put(world, 0, cache, &good, &good, &p, &out.req));
    p.signal_offset = FAR;
    REFUSED(OUT_OF_RANGE, "4096", kvcl_put_bytes(rmem, 0, "12345678", 8, &p, &out.req));
    p.signal_offset = 0;
    p.signal_mem    = readable;
    REFUSED(ACCESS, "right to write", kvcl_put_bytes(rmem, 0, "12345678", 8, &p, &out.req));
    ck_assert_uint_eq(*(const uint64_t *)kvcl_mem_addr(mem), 0);
    REFUSED(INVALID_PARAM, "mem", kvcl_signal_wait(NULL, 0, 1, SECOND));
    REFUSED(OUT_OF_RANGE, "offset 4 ", kvcl_signal_wait(mem, 4, 1, SECOND));
    REFUSED(OUT_OF_RANGE, "offset 4096", kvcl_signal_wait(mem, FAR, 1, SECOND));
    REFUSED(OUT_OF_RANGE, "18446744073709551608", kvcl_signal_wait(mem, UINT64_MAX - 7, 1, SECOND));
    ck_assert_int_eq(kvcl_signal_wait(mem, FAR - 8, 1, SECOND / 100), KVCL_ERR_WAIT_TIMEOUT);
    TAKEN(kvcl_mem_revoke(mem));
    TAKEN(kvcl_get_bytes(rmem, 0, out.bytes, 8, NULL, &out.req));
    ck_assert_int_eq(final(out.req), KVCL_ERR_ACCESS);
    TAKEN(kvcl_put_bytes(rmem, 0, "12345678", 8, NULL, &out.req));
    ck_assert_int_eq(final(out.req), KVCL_ERR_ACCESS);
    ck_assert_uint_eq(*(const uint64_t *)kvcl_mem_addr(mem), 0);
}
END_TEST

/* ---- transfers of blocks ---- */

START_TEST(selections_are_checked)
{
    static const struct {
        const kvcl_sel_t *sel;
        kvcl_status_t     status;
        const char       *word;
    } rows[] = {
        {NULL, KVCL_ERR_INVALID_PARAM, "selection is NULL"},   {&no_ids, KVCL_ERR_INVALID_PARAM, "blocks is NULL"},
        {&far_block, KVCL_ERR_OUT_OF_RANGE, ": cache \"mine\": selection: blocks[1] is 8: the layout has blocks"},
        {&far_layer, KVCL_ERR_OUT_OF_RANGE, "layers end at 3"},
        {&no_head, KVCL_ERR_OUT_OF_RANGE, "heads [2, 2)"},
    };
    size_t i;

#define ROW(_call)                                                                \
    do {                                                                          \
        forget_error();                                                           \
        check_refused((_call), rows[i].status, rows[i].word, #_call, __LINE__);   \
    } while (0)
    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
        ROW(kvcl_send(world, 0, 1, cache, rows[i].sel, NULL, &out.req));
        ROW(kvcl_recv(world, 0, 1, cache, rows[i].sel, NULL, &out.req));
        ROW(kvcl_recv(world, KVCL_ANY_SOURCE, 1, cache, rows[i].sel, NULL, &out.req));
        ROW(kvcl_get(world, 0, cache, &good, rows[i].sel, NULL, &out.req));
        ROW(kvcl_put(world, 0, cache, rows[i].sel, &good, NULL, &out.req));
        ROW(kvcl_bcast(world, 0, cache, rows[i].sel, NULL, &out.req));
    }
#undef ROW
    REFUSED(OUT_OF_RANGE, "kvcl_recv: cache", kvcl_recv(world, 0, 1, cache, &far_block, NULL, &out.req));
    REFUSED(OUT_OF_RANGE, "kvcl_put: cache", kvcl_put(world, 0, cache, &far_block, &good, NULL, &out.req));
    REFUSED(INVALID_PARAM, "remote selection", kvcl_get(world, 0, cache, NULL, &good, NULL, &out.req));
    REFUSED(INVALID_PARAM, "remote selection", kvcl_put(world, 0, cache, &good, NULL, NULL, &out.req));
}
END_TEST

START_TEST(transfers_refuse)
{
    const struct {
        kvcl_comm_h               comm;
        kvcl_cache_h              cache;
        const kvcl_xfer_params_t *params;
        const char               *word;
    } rows[] = {{NULL, cache, NULL, "communicator is NULL"},
                {world, NULL, NULL, "the cache "},
                {world, theirs, NULL, "\"theirs\" belongs to another context"},
                {world, cache, &flagged, "flags 0x40"}};
    static uint64_t      words[2];
    const uint8_t *const unaligned = (const uint8_t *)words + 1;
    size_t               i;

    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
        const kvcl_comm_h               m = rows[i].comm;
        const kvcl_cache_h              c = rows[i].cache;
        const kvcl_xfer_params_t *const p = rows[i].params;
        REFUSED(INVALID_PARAM, rows[i].word, kvcl_send(m, 0, 1, c, &good, p, &out.req));
        REFUSED(INVALID_PARAM, rows[i].word, kvcl_recv(m, 0, 1, c, &good, p, &out.req));
        REFUSED(INVALID_PARAM, rows[i].word, kvcl_recv(m, KVCL_ANY_SOURCE, 1, c, &good, p, &out.req));
        REFUSED(INVALID_PARAM, rows[i].word, kvcl_get(m, 0, c, &good, &good, p, &out.req));
        REFUSED(INVALID_PARAM, rows[i].word, kvcl_put(m, 0, c, &good, &good, p, &out.req));
        REFUSED(INVALID_PARAM, rows[i].word, kvcl_bcast(m, 0, c, &good, p, &out.req));
        if ((m == NULL) || (p != NULL)) {
            REFUSED(INVALID_PARAM, rows[i].word, kvcl_send_bytes(m, 0, 1, "x", 1, p, &out.req));
            REFUSED(INVALID_PARAM, rows[i].word, kvcl_recv_bytes(m, 0, 1, out.bytes, 1, p, &out.req));
            REFUSED(INVALID_PARAM, rows[i].word, kvcl_bcast_bytes(m, 0, out.bytes, 1, p, &out.req));
            REFUSED(INVALID_PARAM, rows[i].word, kvcl_barrier(m, p, &out.req));
            REFUSED(INVALID_PARAM, rows[i].word, kvcl_allgather(m, "x", 1, out.bytes, p, &out.req));
        }
    }
    REFUSED(INVALID_PARAM, "buf", kvcl_send_bytes(world, 0, 1, NULL, 1, NULL, &out.req));
    REFUSED(INVALID_PARAM, "buf", kvcl_recv_bytes(world, 0, 1, NULL, 1, NULL, &out.req));
    REFUSED(INVALID_PARAM, "buffer", kvcl_bcast_bytes(world, 0, NULL, 1, NULL, &out.req));
    REFUSED(INVALID_PARAM, "in is NULL", kvcl_allgather(world, NULL, 1, out.bytes, NULL, &out.req));
    REFUSED(INVALID_PARAM, "out is NULL", kvcl_allgather(world, "x", 1, NULL, NULL, &out.req));
    REFUSED(INVALID_PARAM, "in and out overlap", kvcl_alltoall(world, out.bytes, 8, out.bytes, NULL, &out.req));
    REFUSED(INVALID_PARAM, "or the same one twice",
            kvcl_allreduce(world, out.bytes, out.bytes + 1, 8, KVCL_DTYPE_U8, KVCL_REDUCE_SUM, NULL, &out.req));
    REFUSED(INVALID_PARAM, "in is not aligned to its elements of 8 bytes",
            kvcl_allreduce(world, unaligned, out.bytes, 1, KVCL_DTYPE_F64, KVCL_REDUCE_SUM, NULL, &out.req));
    REFUSED(INVALID_PARAM, "77 is no type",
            kvcl_allreduce(world, "x", out.bytes, 1, (kvcl_dtype_t)77, KVCL_REDUCE_SUM, NULL, &out.req));
    REFUSED(INVALID_PARAM, "(xor) does not reduce bf16",
            kvcl_allreduce(world, "x", out.bytes, 1, KVCL_DTYPE_BF16, KVCL_REDUCE_XOR, NULL, &out.req));
}
END_TEST

START_TEST(later_failures_come_by_the_request)
{
    kvcl_xfer_params_t p = KVCL_XFER_PARAMS_INIT;
    kvcl_req_h         send, recv;
    char               longest[65], buf[4] = {1, 2, 3, 4};
    kvcl_status_t      first, second;

    memset(longest, 'n', 64);
    longest[64]    = '\0';
    p.remote_cache = longest;
    REFUSED(INVALID_PARAM, "64 bytes", kvcl_get(world, 0, cache, &good, &good, &p, &out.req));
    p.remote_cache = "";
    REFUSED(INVALID_PARAM, "0 bytes", kvcl_put(world, 0, cache, &good, &good, &p, &out.req));
    p.remote_cache = "nobody's";
    TAKEN(kvcl_get(world, 0, cache, &good, &good, &p, &recv));
    ck_assert_int_eq(final(recv), KVCL_ERR_NOT_REGISTERED);
    TAKEN(kvcl_put(world, 0, cache, &good, &good, &p, &send));
    ck_assert_int_eq(final(send), KVCL_ERR_NOT_REGISTERED);
    TAKEN(kvcl_get(world, 0, cache, &far_block, &good, NULL, &recv));
    ck_assert_int_eq(final(recv), KVCL_ERR_OUT_OF_RANGE);
    TAKEN(kvcl_put(world, 0, cache, &good, &far_block, NULL, &send));
    ck_assert_int_eq(final(send), KVCL_ERR_OUT_OF_RANGE);
    TAKEN(kvcl_recv_bytes(world, 0, 7, buf, sizeof(buf), NULL, &recv));
    TAKEN(kvcl_send_bytes(world, 0, 7, "12345678", 8, NULL, &send));
    first  = final(send);
    second = final(recv);
    ck_assert_int_eq(first, KVCL_ERR_TRUNCATED);
    ck_assert_int_eq(second, KVCL_ERR_TRUNCATED);
    ck_assert_int_eq(memcmp(buf, "\1\2\3\4", 4), 0);
    TAKEN(kvcl_recv_bytes(world, KVCL_ANY_SOURCE, 8, buf, sizeof(buf), NULL, &recv));
    kvcl_req_cancel(recv);
    ck_assert_int_eq(final(recv), KVCL_ERR_CANCELED);
    REFUSED(INVALID_PARAM, "kvcl_req_test", kvcl_req_test(NULL));
    REFUSED(INVALID_PARAM, "kvcl_req_wait", kvcl_req_wait(NULL, SECOND));
    REFUSED(INVALID_PARAM, "kvcl_req_wait_any", kvcl_req_wait_any(NULL, 1, SECOND, &out.n));
    REFUSED(INVALID_PARAM, "kvcl_req_wait_any", kvcl_req_wait_any(&out.req, 1, SECOND, NULL));
    REFUSED(INVALID_PARAM, "kvcl_req_wait_all", kvcl_req_wait_all(NULL, 1, SECOND));
    kvcl_req_cancel(NULL);
}
END_TEST

START_TEST(requests_of_two_contexts_are_not_waited_for_together)
{
    char        buf[2][8];
    kvcl_comm_h their_world;
    kvcl_req_h  reqs[3] = {NULL}, before[3];
    size_t      at = 7, i;

    TAKEN(kvcl_comm_world(other, &their_world));
    TAKEN(kvcl_recv_bytes(world, 0, 9, buf[0], sizeof(buf[0]), NULL, &reqs[1]));
    TAKEN(kvcl_recv_bytes(their_world, 0, 9, buf[1], sizeof(buf[1]), NULL, &reqs[2]));
    memcpy(before, reqs, sizeof(before));
    REFUSED(INVALID_PARAM, "request 2 of 3 belongs to another context", kvcl_req_wait_all(reqs, 3, SECOND));
    REFUSED(INVALID_PARAM, "request 2 of 3 belongs to another context", kvcl_req_wait_any(reqs, 3, SECOND, &at));
    ck_assert(memcmp(before, reqs, sizeof(before)) == 0); /* none was collected */
    ck_assert_uint_eq(at, 7);
    for (i = 1; i < 3; ++i) {
        kvcl_req_cancel(reqs[i]);
        ck_assert_int_eq(kvcl_req_wait_all(&reqs[i], 1, KVCL_WAIT_FOREVER), KVCL_ERR_CANCELED);
    }
}
END_TEST

/* ---- keys and the store ---- */

START_TEST(key_chains_refuse)
{
    static const uint32_t tokens[16];

    REFUSED(INVALID_PARAM, "tokens_per_block", kvcl_key_chain(keys, 0, tokens, 16, 0, out.keys, 4, &out.n));
    REFUSED(INVALID_PARAM, "parent", kvcl_key_chain(NULL, 0, tokens, 16, 4, out.keys, 4, &out.n));
    REFUSED(INVALID_PARAM, "tokens", kvcl_key_chain(keys, 0, NULL, 16, 4, out.keys, 4, &out.n));
    REFUSED(INVALID_PARAM, "n_p", kvcl_key_chain(keys, 0, tokens, 16, 4, out.keys, 4, NULL));
    REFUSED(INVALID_PARAM, "keys", kvcl_key_chain(keys, 0, tokens, 16, 4, NULL, 4, &out.n));
    kept.n = 4; /* the count needed, and nothing more */
    REFUSED(NO_SPACE, "4 keys", (out.n = 4, kvcl_key_chain(keys, 0, tokens, 16, 4, out.keys, 3, &out.n)));
}
END_TEST

START_TEST(store_open_refuses)
{
    const struct {
        kvcl_store_params_t p;
        const char         *word;
    } rows[] = {{{.flags = 0x20}, "0x20"},
                {{.dir_entries = UINT64_C(1) << 40}, "dir_entries"},
                {{.dram_bytes = 1048576}, "kvcl_store_open: dram_bytes is 1048576 but block_bytes is 0: set "
                 "block_bytes to a block's size (kvcl_cache_block_bytes), or block_sizes"},
                {{.dram_bytes = 4096, .block_bytes = 8192}, "blocks of 8192"},
                {{.dram_bytes = UINT64_C(1) << 40, .block_bytes = UINT64_C(1) << 33}, "8589934592"},
                {{.cache = theirs}, "another context"}};
    kvcl_store_params_t p;
    kvcl_store_h        store;
    size_t              i;

    REFUSED(INVALID_PARAM, "kvcl_store_open", kvcl_store_open(NULL, NULL, &out.store));
    REFUSED(INVALID_PARAM, "kvcl_store_open", kvcl_store_open(world, NULL, NULL));
    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
        p      = rows[i].p;
        p.size = sizeof(p);
        REFUSED(INVALID_PARAM, rows[i].word, kvcl_store_open(world, &p, &out.store));
    }
    p = (kvcl_store_params_t){.size = sizeof(p), .dir_entries = 64, .cache = cache};
    TAKEN(kvcl_store_open(world, &p, &store));
    REFUSED(BUSY, "\"mine\"", kvcl_store_open(world, &p, &out.store));
    kvcl_store_close(store);
    kvcl_store_close(NULL);
}
END_TEST

/* The calls that take keys, a cache and ids have the same refusals. */
typedef kvcl_status_t (*block_call_t)(kvcl_store_h store, const kvcl_key_t *k, size_t n, kvcl_cache_h c,
                                      const uint32_t *ids, const kvcl_xfer_params_t *params, kvcl_req_h *req_p);

static kvcl_status_t store_get(kvcl_store_h store, const kvcl_key_t *k, size_t n, kvcl_cache_h c, const uint32_t *ids,
                               const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    return kvcl_store_get(store, k, n, c, ids, (kvcl_status_t *)(void *)out.bytes, params, req_p);
}

START_TEST(store_block_calls_refuse)
{
    static const struct {
        block_call_t call;
        const char  *name;
    } calls[] = {{store_get, "kvcl_store_get"}, {kvcl_store_put, "kvcl_store_put"},
                 {kvcl_store_publish, "kvcl_store_publish"}, {kvcl_store_bcast, "kvcl_store_bcast"}};
    const kvcl_store_params_t p = {.size = sizeof(p), .dir_entries = 64, .dram_bytes = 4096, .block_bytes = 256};
    kvcl_store_h store;
    size_t       i;

    TAKEN(kvcl_store_open(world, &p, &store));
    for (i = 0; i < sizeof(calls) / sizeof(calls[0]); ++i) {
        const block_call_t call = calls[i].call;
        REFUSED(INVALID_PARAM, "store is NULL", call(NULL, keys, 2, cache, good_ids, NULL, &out.req));
        REFUSED(INVALID_PARAM, calls[i].name, call(NULL, keys, 2, cache, good_ids, NULL, &out.req));
        REFUSED(INVALID_PARAM, "array of 2", call(store, NULL, 2, cache, good_ids, NULL, &out.req));
        REFUSED(INVALID_PARAM, "cache", call(store, keys, 2, NULL, good_ids, NULL, &out.req));
        REFUSED(INVALID_PARAM, "another context", call(store, keys, 2, theirs, good_ids, NULL, &out.req));
        REFUSED(INVALID_PARAM, "blocks is NULL", call(store, keys, 2, cache, NULL, NULL, &out.req));
        REFUSED(OUT_OF_RANGE, "cache \"mine\": selection: blocks[1] is 8: the layout has blocks 0 to 7",
                call(store, keys, 2, cache, bad_ids, NULL, &out.req));
        REFUSED(OUT_OF_RANGE, calls[i].name, call(store, keys, 2, cache, bad_ids, NULL, &out.req));
        REFUSED(INVALID_PARAM, "0x40", call(store, keys, 2, cache, good_ids, &flagged, &out.req));
    }
    REFUSED(INVALID_PARAM, "store is NULL", kvcl_store_match(NULL, keys, 2, &out.n, NULL));
    REFUSED(INVALID_PARAM, "array of 2", kvcl_store_match(store, NULL, 2, &out.n, NULL));
    REFUSED(INVALID_PARAM, "hit_p", kvcl_store_match(store, keys, 2, NULL, NULL));
    REFUSED(INVALID_PARAM, "store is NULL", kvcl_store_exists(NULL, keys, 2, out.bytes, NULL));
    REFUSED(INVALID_PARAM, "array of 2", kvcl_store_exists(store, NULL, 2, out.bytes, NULL));
    REFUSED(INVALID_PARAM, "present", kvcl_store_exists(store, keys, 2, NULL, NULL));
    REFUSED(INVALID_PARAM, "store is NULL", kvcl_store_remove(NULL, keys, 2, NULL, &out.req));
    REFUSED(INVALID_PARAM, "array of 2", kvcl_store_remove(store, NULL, 2, NULL, &out.req));
    REFUSED(INVALID_PARAM, "0x40", kvcl_store_remove(store, keys, 2, &flagged, &out.req));
    REFUSED(INVALID_PARAM, "store is NULL", kvcl_store_withdraw(NULL, cache, good_ids, 2));
    REFUSED(INVALID_PARAM, "array of 2", kvcl_store_withdraw(store, cache, NULL, 2));
    REFUSED(INVALID_PARAM, "cache", kvcl_store_withdraw(store, NULL, good_ids, 2));
    REFUSED(INVALID_PARAM, "another context", kvcl_store_withdraw(store, theirs, good_ids, 2));
    REFUSED(OUT_OF_RANGE, "blocks[1] is 8", kvcl_store_withdraw(store, cache, bad_ids, 2));
    REFUSED(INVALID_PARAM, "no cache of its own", kvcl_store_alloc(store, 1, &out.id));
    REFUSED(INVALID_PARAM, "no cache of its own", kvcl_store_free(store, good_ids, 1));
    REFUSED(INVALID_PARAM, "store is NULL", kvcl_store_pin_local(NULL, keys, &out.id));
    REFUSED(INVALID_PARAM, "kvcl_store_pin_local", kvcl_store_pin_local(store, NULL, &out.id));
    REFUSED(INVALID_PARAM, "id_p", kvcl_store_pin_local(store, keys, NULL));
    REFUSED(NOT_FOUND, "kvcl_store_pin_local", kvcl_store_pin_local(store, keys, &out.id));
    kvcl_store_close(store);
}
END_TEST

START_TEST(a_managed_cache_refuses)
{
    const kvcl_store_params_t p    = {.size = sizeof(p), .dir_entries = 64, .cache = cache};
    const kvcl_store_params_t pool = {.size = sizeof(p), .dir_entries = 64, .dram_bytes = 4096, .block_bytes = 512};
    kvcl_store_h store, second;
    kvcl_req_h   req;
    uint32_t     id, twice[2];

    TAKEN(kvcl_store_open(world, &p, &store));
    TAKEN(kvcl_store_open(world, &pool, &second));
    REFUSED(INVALID_PARAM, "store is NULL", kvcl_store_alloc(NULL, 1, &out.id));
    REFUSED(INVALID_PARAM, "array of 2", kvcl_store_alloc(store, 2, NULL));
    REFUSED(NO_SPACE, "9 blocks", kvcl_store_alloc(store, BLOCKS + 1, (uint32_t *)(void *)out.bytes));
    REFUSED(INVALID_PARAM, "kvcl_store_alloc() first",
            kvcl_store_publish(store, keys, 1, cache, good_ids, NULL, &out.req));
    REFUSED(UNSUPPORTED, "has a pool", kvcl_store_put(store, keys, 1, cache, good_ids, NULL, &out.req));
    REFUSED(BAD_LAYOUT, "256 bytes, the pool's 512: open the stores with this size in block_sizes",
            kvcl_store_put(second, keys, 1, cache, good_ids, NULL, &out.req));
    REFUSED(BUSY, "another store", kvcl_store_publish(second, keys, 1, cache, good_ids, NULL, &out.req));
    TAKEN(kvcl_store_alloc(store, 1, &id));
    TAKEN(kvcl_store_publish(store, keys, 1, cache, &id, NULL, &req));
    TAKEN(final(req));
    REFUSED(BUSY, "published already", kvcl_store_publish(store, keys + 1, 1, cache, &id, NULL, &out.req));
    forget_error();
    ck_assert_int_lt(kvcl_store_free(store, &id, 1), 0);
    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "is free or published, or being put: withdraw"));
    TAKEN(kvcl_store_alloc(store, 1, twice));
    twice[1] = BLOCKS;
    forget_error();
    ck_assert_int_lt(kvcl_store_free(store, twice, 2), 0); /* the first of them still belongs to the caller */
    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "block 8"));
    TAKEN(kvcl_store_free(store, twice, 1));
    kvcl_store_close(second);
    kvcl_store_close(store);
}
END_TEST

int main(void)
{
    Suite   *suite = suite_create("errors_data");
    SRunner *runner;
    TCase   *tc;
    int      failed;

    tc = tcase_create("world");
    tcase_set_timeout(tc, 60);
    tcase_add_checked_fixture(tc, open_world, close_world);
    tcase_add_test(tc, bad_layouts_are_named);
    tcase_add_test(tc, caches_refuse);
    tcase_add_test(tc, short_memory_is_refused);
    tcase_add_test(tc, memory_refuses);
    tcase_add_test(tc, exports_and_imports_refuse);
    tcase_add_test(tc, remote_bytes_are_checked);
    tcase_add_test(tc, selections_are_checked);
    tcase_add_test(tc, transfers_refuse);
    tcase_add_test(tc, later_failures_come_by_the_request);
    tcase_add_test(tc, requests_of_two_contexts_are_not_waited_for_together);
    tcase_add_test(tc, key_chains_refuse);
    tcase_add_test(tc, store_open_refuses);
    tcase_add_test(tc, store_block_calls_refuse);
    tcase_add_test(tc, a_managed_cache_refuses);
    suite_add_tcase(suite, tc);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return (failed == 0) ? EXIT_SUCCESS : EXIT_FAILURE;
}
