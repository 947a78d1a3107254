/*
 * The frame of errors.h.
 */
#include "test/api/errors.h"

outs_t                   out, kept;
kvcl_context_h           ctx, other;
kvcl_comm_h              world;
kvcl_cache_h             cache, theirs;
kvcl_mem_h               mem;
kvcl_rmem_h              rmem, readable, writable;
char                     dir[64], plain[64];
const uint32_t           good_ids[2] = {0, 1}, bad_ids[2] = {1, BLOCKS};
const kvcl_sel_t         good        = {.blocks = good_ids, .n_blocks = 2};
const kvcl_key_t         keys[2]     = {{{1}}, {{2}}};
const kvcl_xfer_params_t flagged     = {.size = sizeof(kvcl_xfer_params_t), .flags = 0x40};
const kvcl_layout_t      shape       = {.size = sizeof(kvcl_layout_t), .layers = 2, .blocks = BLOCKS, .tokens = 4,
                                        .heads = 2, .head_dim = 4, .elem_bytes = 2};

void forget_error(void)
{
    ck_assert_int_eq(kvcl_comm_world(NULL, NULL), KVCL_ERR_INVALID_PARAM); /* leaves an error sentence of its own */
}

void check_refused(kvcl_status_t got, kvcl_status_t want, const char *word, const char *call, int line)
{
    ck_assert_msg(got == want, "line %d: %s: %s, not %s (%s)", line, call, kvcl_status_name(got),
                  kvcl_status_name(want), kvcl_last_error());
    ck_assert_msg(strstr(kvcl_last_error(), word) != NULL, "line %d: %s: \"%s\" does not name %s", line, call,
                  kvcl_last_error(), word);
    ck_assert_msg(memcmp(&out, &kept, sizeof(out)) == 0, "line %d: %s: wrote an output", line, call);
}

kvcl_status_t final(kvcl_req_h req)
{
    kvcl_status_t status = kvcl_req_wait(req, 20ull * SECOND);

    ck_assert_int_ne(status, KVCL_ERR_WAIT_TIMEOUT);
    return status;
}

kvcl_init_params_t alone(void)
{
    kvcl_init_params_t p = KVCL_INIT_PARAMS_INIT;

    p.boot = "self";
    p.path = "loop";
    return p;
}

static kvcl_rmem_h import(unsigned rights)
{
    uint8_t     desc[1024];
    size_t      len = sizeof(desc);
    kvcl_rmem_h got;

    TAKEN(kvcl_mem_export(mem, rights, desc, &len));
    TAKEN(kvcl_rmem_import(world, 0, desc, len, &got));
    return got;
}

void poison(void)
{
    memset(&out, 0x5a, sizeof(out));
    kept = out;
}

void open_world(void)
{
    kvcl_init_params_t p = alone();
    const kvcl_cache_params_t params = {.size = sizeof(params), .flags = KVCL_CACHE_WRITABLE};

    poison();
    TAKEN(kvcl_init(&p, &ctx));
    TAKEN(kvcl_init(&p, &other));
    TAKEN(kvcl_comm_world(ctx, &world));
    TAKEN(kvcl_cache_create(ctx, "mine", &shape, &params, &cache));
    TAKEN(kvcl_cache_create(other, "theirs", &shape, NULL, &theirs));
    TAKEN(kvcl_mem_alloc(ctx, FAR, NULL, &mem));
    rmem     = import(KVCL_READ_WRITE);
    readable = import(KVCL_READ);
    writable = import(KVCL_WRITE);
}

void close_world(void)
{
    kvcl_rmem_free(rmem);
    kvcl_rmem_free(readable);
    kvcl_rmem_free(writable);
    kvcl_mem_free(mem);
    kvcl_cache_destroy(cache);
    kvcl_cache_destroy(theirs);
    kvcl_finalize(other);
    kvcl_finalize(ctx);
}

void make_dir(void)
{
    poison();
    snprintf(dir, sizeof(dir), "/tmp/kvcl-errors-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
}

void remove_dir(void)
{
    ck_assert_int_eq(rmdir(dir), 0);
}

const char *write_file(const char *name, mode_t mode, size_t len)
{
    static char path[128];
    char        bytes[64] = "0123456789abcdef0123456789abcdef";
    FILE       *file;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(bytes, 1, len, file), len);
    fclose(file);
    ck_assert_int_eq(chmod(path, mode), 0);
    return path;
}
