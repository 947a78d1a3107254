/*
 * The public headers from C++17 and C++20: each of their macros, structs and flags, and a transfer of one rank with
 * itself. test/api/run_cxx.sh compiles it as both, strictly, and runs it.
 */
#include <kvcl/kvcl.h>

#include <cstdio>
#include <cstring>
#include <vector>

static int passed, failed;

static void is(bool good, const char *what)
{
    (good ? passed : failed) += 1;
    if (!good) {
        std::fprintf(stderr, "not so: %s (%s)\n", what, kvcl_last_error());
    }
}
#define IS(_cond) is((_cond), #_cond)

static const kvcl_layout_t outside = kvcl_layout_nhd(2, 8, 4, 2, 16, 2); /* no designated field: valid at any scope */

static void layouts()
{
    kvcl_layout_t nhd = kvcl_layout_nhd(2, 8, 4, 2, 16, 2), hnd = kvcl_layout_hnd(2, 8, 4, 2, 16, 2);
    kvcl_layout_t bytes = KVCL_LAYOUT_BYTES(8, 512), empty = KVCL_LAYOUT_INIT;
    uint8_t       a[32], b[32];
    size_t        n = 0;

    IS((nhd.size == sizeof(nhd)) && (nhd.order == KVCL_ORDER_NHD) && (hnd.order == KVCL_ORDER_HND));
    IS((kvcl_layout_block_bytes(&nhd, &n) == KVCL_OK) && (n == 2 * 2 * 4 * 2 * 16 * 2));
    IS((kvcl_layout_block_bytes(&bytes, &n) == KVCL_OK) && (n == 512));
    IS(kvcl_layout_block_bytes(&empty, &n) == KVCL_ERR_BAD_LAYOUT);
    IS((kvcl_layout_hash(&nhd, a) == KVCL_OK) && (kvcl_layout_hash(&outside, b) == KVCL_OK) &&
       (std::memcmp(a, b, sizeof(a)) == 0));
#if __cplusplus >= 202002L
    const uint64_t blocks = 8;
    kvcl_layout_t  fields = KVCL_LAYOUT_NHD(.layers = 2, .blocks = blocks, .tokens = 4, .heads = 2, .head_dim = 16,
                                            .elem_bytes = 2);
    IS((kvcl_layout_hash(&fields, b) == KVCL_OK) && (std::memcmp(a, b, sizeof(a)) == 0));
    fields = KVCL_LAYOUT_HND(.layers = 2, .blocks = blocks, .tokens = 4, .heads = 2, .head_dim = 16, .elem_bytes = 2);
    IS((kvcl_layout_hash(&hnd, a) == KVCL_OK) && (kvcl_layout_hash(&fields, b) == KVCL_OK) &&
       (std::memcmp(a, b, sizeof(a)) == 0));
#endif
}

/* Every _INIT macro, and flags that are enumerators. */
static void params()
{
    kvcl_init_params_t    init    = KVCL_INIT_PARAMS_INIT;
    kvcl_xfer_params_t    xfer    = KVCL_XFER_PARAMS_INIT;
    kvcl_store_params_t   store   = KVCL_STORE_PARAMS_INIT;
    kvcl_cache_params_t   cache   = KVCL_CACHE_PARAMS_INIT;
    kvcl_reshard_params_t reshard = KVCL_RESHARD_PARAMS_INIT;
    kvcl_ep_params_t      experts = KVCL_EP_PARAMS_INIT;
    kvcl_ep_open_params_t step    = KVCL_EP_OPEN_PARAMS_INIT;
    kvcl_ep_weights_t     weights = KVCL_EP_WEIGHTS_INIT;
    kvcl_store_stats_t    stats   = KVCL_STORE_STATS_INIT;
    kvcl_recv_info_t      info    = KVCL_RECV_INFO_INIT;
    kvcl_mem_params_t     mem     = KVCL_MEM_PARAMS_INIT;
    kvcl_oob_t            oob     = KVCL_OOB_INIT;
    kvcl_context_stats_t  counts  = KVCL_CONTEXT_STATS_INIT;
    unsigned              rights  = KVCL_READ | KVCL_WRITE;

    init.flags |= KVCL_INIT_NO_THREAD;
    store.flags |= KVCL_STORE_NO_CHECKSUM | KVCL_STORE_NO_EVENTS;
    xfer.flags |= KVCL_BACKGROUND | KVCL_PUT_WAIT;
    IS((init.size == sizeof(init)) && (init.rank == -1) && (xfer.size == sizeof(xfer)));
    IS((store.size == sizeof(store)) && (reshard.size == sizeof(reshard)) && (rights == KVCL_READ_WRITE));
    IS((experts.size == sizeof(experts)) && (experts.active == nullptr) && (KVCL_EP_COPIES_MAX(6, 8) == 3));
    IS((step.size == sizeof(step)) && (step.dtype == KVCL_DTYPE_BF16) && (weights.size == sizeof(weights)));
    IS((cache.size == sizeof(cache)) && (cache.kind == KVCL_MEM_HOST) && (cache.bases == nullptr));
    IS((stats.size == sizeof(stats)) && (counts.size == sizeof(counts)) && (stats.sizes[7].takes == 0));
    IS((info.size == sizeof(info)) && (mem.size == sizeof(mem)) && (oob.size == sizeof(oob)) && (oob.nranks == 0));
    IS((store.flags == 3) && (init.flags == 1) && (KVCL_RESHARD_STEPS_MAX(4, 0) == 4));
    IS((KVCL_VERSION >= KVCL_MAKE_VERSION(0, 0, 1)) && (std::strlen(kvcl_version_string()) > 0));
}

static void on_done(void *arg, kvcl_status_t status)
{
    *static_cast<kvcl_status_t *>(arg) = status;
}

static void transfer()
{
    const uint32_t     there[] = {3, 4}, here[] = {0, 1};
    kvcl_sel_t         remote = kvcl_sel_of(there, 2), local = kvcl_sel_of(here, 2);
    kvcl_layout_t      layout = KVCL_LAYOUT_BYTES(8, 512);
    kvcl_init_params_t init   = KVCL_INIT_PARAMS_INIT;
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    std::vector<char>  out(512, 'x'), in(512);
    kvcl_status_t      seen = KVCL_INPROGRESS;
    kvcl_context_h     ctx;
    kvcl_comm_h        world;
    kvcl_cache_h       cache;
    kvcl_req_h         req;

    init.boot     = "self";
    params.cb     = on_done;
    params.cb_arg = &seen;
    KVCL_TRY(kvcl_init(&init, &ctx));
    KVCL_TRY(kvcl_comm_world(ctx, &world));
    KVCL_TRY(kvcl_cache_create(ctx, "main", &layout, nullptr, &cache));
    KVCL_TRY(kvcl_cache_write_block(cache, 4, out.data(), out.size()));
    KVCL_TRY(kvcl_get(world, 0, cache, &remote, &local, &params, &req));
    IS(kvcl_req_wait(req, UINT64_C(10000000000)) == KVCL_OK);
    KVCL_TRY(kvcl_cache_read_block(cache, 1, in.data(), in.size()));
    IS(in == out);
    kvcl_cache_destroy(cache);
    kvcl_finalize(ctx); /* runs the callback if it has not run yet */
    IS(seen == KVCL_OK);
}

static void keys()
{
    kvcl_key_t a, b;

    kvcl_key_from_string("a", 1, &a);
    kvcl_key_from_string("b", 1, &b);
    IS(kvcl_key_equal(&a, &a) && !kvcl_key_equal(&a, &b) && (kvcl_key_tag(&a) != kvcl_key_tag(&b)));
    IS(std::strcmp(kvcl_status_name(KVCL_ERR_NO_SPACE), "ERR_NO_SPACE") == 0);
}

int main()
{
    layouts();
    params();
    keys();
    transfer();
    std::printf("%d passed, %d failed, 0 skipped\n", passed, failed);
    return (failed == 0) ? 0 : 1;
}
