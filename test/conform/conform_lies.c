/*
 * A rank that has proven the secret lies about its address and its memory: lengths, addresses, inode, process,
 * descriptor, flags, keys and shapes, in exports and in descriptions of caches; it truncates its segments; and it
 * writes where it may only read. Every lie is harmless, or an error that names the rank. Half of the descriptions have
 * a right MAC, as a rank of the job can make it; an export that was changed without it is never opened.
 * TEST_RING=night: 10,000 lies of each kind.
 */
#include "config.h"
#include "conform.h"
#include "boot/boot.h"
#include "cache/cache.h"
#include "core/comm.h"
#include "mem/rmem.h"
#include "wire/address.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { REGION = 8192, BLOCKS = 8, BLOCK = 512, LIAR = 1, DESC_MAX = 8192 };

static unsigned lies(void)
{
    const char *ring = getenv("TEST_RING");

    return ((ring != NULL) && (strcmp(ring, "night") == 0)) ? 10000 : 400;
}

/* One to three changes: a bit, or a field of 4 or 8 bytes that gets a value a liar would choose. */
static void lie(kvcl_rand_t *rnd, uint8_t *desc, size_t len)
{
    unsigned n = 1 + (unsigned)kvcl_rand_below(rnd, 3);
    uint64_t value;
    size_t   at;

    while (n-- > 0) {
        at = kvcl_rand_below(rnd, len);
        if ((kvcl_rand_below(rnd, 4) == 0) || (at + 8 > len)) {
            desc[at] ^= (uint8_t)(1u << kvcl_rand_below(rnd, 8));
            continue;
        }
        memcpy(&value, desc + at, sizeof(value));
        switch (kvcl_rand_below(rnd, 6)) {
        case 0:
            value = 0;
            break;
        case 1:
            value = UINT64_MAX;
            break;
        case 2:
            value += UINT64_C(1) << (kvcl_rand_below(rnd, 47));
            break;
        case 3:
            value -= UINT64_C(1) << (kvcl_rand_below(rnd, 47));
            break;
        case 4:
            value = UINT64_C(1) << (kvcl_rand_below(rnd, 64));
            break;
        default:
            value = kvcl_rand_next(rnd);
            break;
        }
        memcpy(desc + at, &value, (kvcl_rand_below(rnd, 2) == 0) ? 8 : 4);
    }
}

static void named(cf_t *cf, const char *what)
{
    if (strstr(kvcl_last_error(), "rank 1") == NULL) {
        cf_fail(cf, __FILE__, __LINE__, what, kvcl_last_error());
    }
}

/* As the liar seals it, which knows the secret. */
static void seal(kvcl_peer_t *peer, uint8_t *desc, size_t len)
{
    kvcl_region_mac(peer->ctx->secret, peer->uuid, desc, len - KVCL_REGION_MAC_BYTES,
                    desc + len - KVCL_REGION_MAC_BYTES);
}

/* ---- addresses ---- */

static struct {
    kvcl_rand_t          *rnd;
    const kvcl_boot_ops_t *real;
} publisher;

enum { AT_UUID = 8, AFTER_UUID = 24 }; /* in an address (wire/address.h): another uuid is another peer */

static kvcl_status_t get_lie(kvcl_boot_t *boot, int rank, const void **blob_p, size_t *len_p)
{
    static uint8_t bad[KVCL_ADDRESS_MAX];
    const void     *truth;
    size_t         len;
    kvcl_status_t  status = publisher.real->get(boot, rank, &truth, &len);

    if ((status != KVCL_OK) || (len > sizeof(bad))) {
        return status;
    }
    memcpy(bad, truth, len);
    lie(publisher.rnd, bad, len);
    memcpy(bad + AT_UUID, (const uint8_t *)truth + AT_UUID, AFTER_UUID - AT_UUID);
    *len_p  = (kvcl_rand_below(publisher.rnd, 4) == 0) ? kvcl_rand_below(publisher.rnd, len) : len;
    *blob_p = bad;
    return KVCL_OK;
}

static void addresses(cf_t *cf)
{
    unsigned        i, n = lies(), refused = 0;
    kvcl_boot_ops_t lying;
    kvcl_peer_t     *truth, *peer;

    CF_OK(cf, kvcl_comm_peer(cf->world, LIAR, &truth));
    publisher.rnd  = &cf->rnd;
    publisher.real = cf->ctx->boot->ops;
    lying          = *publisher.real;
    lying.get      = get_lie;
    for (i = 0; (cf->rank != LIAR) && (i < n); ++i) {
        cf->ctx->boot->ops = &lying;
        atomic_store(&cf->world->peers[LIAR], NULL);
        if (kvcl_comm_peer(cf->world, LIAR, &peer) != KVCL_OK) {
            named(cf, "the address's error names the rank");
            ++refused;
        } else {
            CF_CHECK(cf, peer == truth);
        }
        cf->ctx->boot->ops = publisher.real;
        cf_alive(cf);
    }
    atomic_store(&cf->world->peers[LIAR], truth);
    CF_CHECK(cf, (cf->rank == LIAR) || (refused > n / 20));
    cf_fence(cf);
}

/* ---- exports ---- */

/* @return whether the liar's bytes were read. */
static bool import_and_read(cf_t *cf, const uint8_t *desc, size_t len)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    char               buf[64];
    kvcl_rmem_h        rmem;
    kvcl_req_h         req;
    kvcl_status_t      status = kvcl_rmem_import(cf->world, LIAR, desc, len, &rmem);
    uint64_t           size, n, end;

    params.timeout_ns = 10 * KVCL_NS_PER_SEC;
    if (status != KVCL_OK) {
        named(cf, "the import's error names the rank");
        return false;
    }
    size = kvcl_rmem_len(rmem);
    n    = (size < sizeof(buf)) ? size : sizeof(buf);
    for (end = 0; (end < 2) && (status == KVCL_OK) && (rmem->rregion.rights & KVCL_READ); ++end) {
        status = kvcl_get_bytes(rmem, (end == 0) ? 0 : size - n, buf, n, &params, &req);
        status = (status == KVCL_OK) ? cf_end(cf, req) : status;
        if (status != KVCL_OK) {
            named(cf, "the get's error names the rank");
        }
    }
    kvcl_rmem_free(rmem);
    return (status == KVCL_OK) && (end == 2);
}

/* Offsets in a description (mem/region.c) and in the packed segment in it. */
enum { AT_LEN = 40, AT_SEGMENT_BYTES = 64 + 2 + 32 };

/* Both lengths say 1 TiB: without a look at the file, reading the end of it would crash. */
static void claim_more(cf_t *cf, kvcl_peer_t *peer, const uint8_t *truth, size_t len)
{
    uint64_t more = UINT64_C(1) << 40;
    uint8_t  bad[CF_BLOB_MAX];

    memcpy(bad, truth, len);
    memcpy(bad + AT_LEN, &more, sizeof(more));
    CF_CHECK(cf, !import_and_read(cf, bad, len));
    CF_CHECK(cf, strstr(kvcl_last_error(), "MAC") != NULL);
    seal(peer, bad, len);
    CF_CHECK(cf, !import_and_read(cf, bad, len));
    memcpy(bad + AT_SEGMENT_BYTES, &more, sizeof(more));
    seal(peer, bad, len);
    CF_CHECK(cf, !import_and_read(cf, bad, len));
    CF_CHECK(cf, (strcmp(cf->path, "tcp") == 0) || (strstr(kvcl_last_error(), "the segment has 8192") != NULL));
}

static void see_decision(void *arg, const kvcl_memory_info_t *info)
{
    snprintf(arg, 160, "%s: %s", info->get_path, info->why);
}

/* The segment of the region (0), or of the control page (1), is of a process that does not exist: its owner serves the
 * bytes, or the kernel copies them, and the query says why. */
static void without_segment(cf_t *cf, kvcl_peer_t *peer, const uint8_t *truth, size_t len, unsigned which)
{
    static const uint8_t magic[] = {0x47, 0x53, 0x56, 0x4b};
    uint8_t              bad[CF_BLOB_MAX];
    char                 text[160] = "";
    uint32_t             pid = 0x7ffffff0;
    kvcl_rmem_h          rmem;
    size_t               at, n = 0;

    memcpy(bad, truth, len);
    for (at = 0; (at + 8 < len) && ((memcmp(bad + at, magic, 4) != 0) || (n++ < which)); ++at) {
    }
    if (strcmp(cf->path, "tcp") == 0) {
        CF_CHECK(cf, n == 0); /* private memory */
        return;
    }
    CF_CHECK(cf, n == which + 1);
    memcpy(bad + at + 4, &pid, sizeof(pid));
    seal(peer, bad, len);
    CF_OK(cf, kvcl_rmem_import(cf->world, LIAR, bad, len, &rmem));
    CF_OK(cf, kvcl_query_memory(cf->world, LIAR, see_decision, text));
    kvcl_rmem_free(rmem);
    if (which == 1) {
        CF_CHECK(cf, strcmp(text, "served: its control word cannot be read") == 0);
    } else {
        CF_CHECK(cf, (strcmp(text, "native: cma") == 0) || (strcmp(text, "served: its owner has freed it") == 0));
    }
    CF_CHECK(cf, import_and_read(cf, bad, len));
}

/* Another rank's description is not one of the liar's, whatever it says. */
static void of_another(cf_t *cf, kvcl_mem_h mem)
{
    uint8_t     desc[CF_BLOB_MAX];
    size_t      len = sizeof(desc);
    kvcl_rmem_h rmem;

    CF_OK(cf, kvcl_mem_export(mem, KVCL_READ, desc, &len));
    CF_IS(cf, kvcl_rmem_import(cf->world, LIAR, desc, len, &rmem), KVCL_ERR_PROTOCOL);
    named(cf, "the import's error names the rank");
    CF_CHECK(cf, strstr(kvcl_last_error(), "MAC") != NULL);
}

/* Changed on the way, by a process that does not know the secret: no byte of it is used. */
static void changed(cf_t *cf, const uint8_t *desc, const uint8_t *truth, size_t len, size_t cut)
{
    kvcl_rmem_h rmem;

    if ((cut == len) && (memcmp(desc, truth, len) == 0)) {
        return;
    }
    CF_IS(cf, kvcl_rmem_import(cf->world, LIAR, desc, cut, &rmem), KVCL_ERR_PROTOCOL);
    named(cf, "the import's error names the rank");
}

static void exports(cf_t *cf)
{
    uint8_t     desc[CF_BLOB_MAX], bad[CF_BLOB_MAX];
    size_t      len = sizeof(desc);
    unsigned    i, n = lies(), read = 0;
    kvcl_peer_t *peer;
    kvcl_mem_h  mem;
    const void  *truth;

    CF_OK(cf, kvcl_mem_alloc(cf->ctx, REGION, NULL, &mem));
    CF_OK(cf, kvcl_mem_export(mem, (cf->rank % 2 == 0) ? KVCL_READ : KVCL_READ_WRITE, desc, &len));
    cf_give(cf, desc, len);
    cf_fence(cf);
    truth = cf_blob(cf, LIAR, &len);
    CF_OK(cf, kvcl_comm_peer(cf->world, LIAR, &peer));
    if (cf->rank != LIAR) {
        claim_more(cf, peer, truth, len);
        without_segment(cf, peer, truth, len, 0);
        without_segment(cf, peer, truth, len, 1);
        of_another(cf, mem);
    }
    for (i = 0; (cf->rank != LIAR) && (i < n); ++i) {
        memcpy(bad, truth, len);
        lie(&cf->rnd, bad, len);
        changed(cf, bad, truth, len, (i % 8 == 0) ? kvcl_rand_below(&cf->rnd, len) : len);
        seal(peer, bad, len);
        read += import_and_read(cf, bad, len) ? 1 : 0;
        cf_alive(cf);
    }
    CF_CHECK(cf, (cf->rank == LIAR) || import_and_read(cf, truth, len));
    if (cf->rank == 0) {
        printf("%u of %u changed exports with a right MAC were harmless, the others refused\n", read, n);
    }
    cf_fence(cf);
    kvcl_mem_free(mem);
}

/* ---- descriptions of caches ---- */

static struct {
    kvcl_rand_t        *rnd;
    kvcl_msg_handler_t real;
} liar;

/* All regions that the true description contains, where they are in the changed one. */
static void seal_all(kvcl_peer_t *peer, const kvcl_msg_description_t *hdr, const uint8_t *truth, uint8_t *bad,
                     size_t len)
{
    size_t         at = KVCL_SHAPE_WIRE_BYTES + (12ul * hdr->n_bases), used;
    kvcl_rregion_t region;

    while ((at < len) && (kvcl_region_parse(truth + at, len - at, &region, &used) == KVCL_OK)) {
        seal(peer, bad + at, used);
        at += used;
    }
}

/* Stands between the message and its handler; the engine's thread, lock held. */
static void on_description(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len,
                           const void *data, size_t len)
{
    static uint64_t        bad[DESC_MAX / 8];
    kvcl_msg_description_t hdr;

    if ((len > sizeof(bad)) || (len == 0)) {
        liar.real.fn(ctx, peer, msg, hdr_len, data, len);
        return;
    }
    memcpy(&hdr, msg, sizeof(hdr));
    memcpy(bad, data, len);
    lie(liar.rnd, (uint8_t *)bad, len);
    if (kvcl_rand_below(liar.rnd, 2) == 0) {
        seal_all(peer, &hdr, data, (uint8_t *)bad, len);
    }
    if (kvcl_rand_below(liar.rnd, 16) == 0) {
        len = kvcl_rand_below(liar.rnd, len);
    }
    liar.real.fn(ctx, peer, &hdr.msg, hdr_len, bad, len);
}

static kvcl_status_t get_one(cf_t *cf, kvcl_cache_h cache, uint32_t block)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_sel_t         sel    = cf_sel(&block, 1);
    kvcl_status_t      status;
    kvcl_req_h         req;

    params.timeout_ns = 10 * KVCL_NS_PER_SEC;
    status            = kvcl_get(cf->world, LIAR, cache, &sel, &sel, &params, &req);
    return (status == KVCL_OK) ? cf_end(cf, req) : status;
}

/* The next get requests the description again. */
static void forget(cf_t *cf, kvcl_peer_t *peer, const char *name)
{
    kvcl_rcache_t *rcache;

    kvcl_lock(cf->ctx);
    rcache = kvcl_rcache_ready(peer, kvcl_cache_name_key(name));
    if (rcache != NULL) {
        kvcl_rcache_stale(rcache);
    }
    kvcl_unlock(cf->ctx);
}

static void tell_lies(cf_t *cf, kvcl_cache_h cache)
{
    unsigned    i, n = lies(), read = 0;
    kvcl_peer_t *peer;

    CF_OK(cf, kvcl_comm_peer(cf->world, LIAR, &peer));
    kvcl_lock(cf->ctx);
    liar.real = cf->ctx->handlers[KVCL_MSG_DESCRIPTION];
    liar.rnd  = &cf->rnd;
    cf->ctx->handlers[KVCL_MSG_DESCRIPTION].fn = on_description;
    kvcl_unlock(cf->ctx);
    for (i = 0; i < n; ++i) {
        if (get_one(cf, cache, i % BLOCKS) == KVCL_OK) {
            ++read;
        } else {
            named(cf, "the get's error names the rank");
        }
        forget(cf, peer, "lies");
        cf_alive(cf);
    }
    kvcl_lock(cf->ctx);
    cf->ctx->handlers[KVCL_MSG_DESCRIPTION] = liar.real;
    kvcl_unlock(cf->ctx);
    CF_OK(cf, get_one(cf, cache, 1));
    cf_block_is(cf, cache, 1, 100 + LIAR, 1);
    if (cf->rank == 0) {
        printf("%u of %u changed descriptions were harmless, the others refused\n", read, n);
    }
}

static void caches_of(cf_t *cf, bool ours)
{
    kvcl_layout_t layout = KVCL_LAYOUT_BYTES(BLOCKS, BLOCK);
    cf_cache_t    cache  = cf_cache(cf, "lies", &layout, ours);

    cf_fill(cf, cache.h, 100 + (uint64_t)cf->rank);
    cf_fence(cf);
    if (cf->rank != LIAR) {
        tell_lies(cf, cache.h);
    }
    cf_fence(cf);
    cf_cache_end(&cache);
}

static void caches(cf_t *cf)
{
    caches_of(cf, true);
}

/* The caller's memory: read natively, or served. */
static void caches_of_the_user(cf_t *cf)
{
    caches_of(cf, false);
}

/* ---- a cache that peers may only read ---- */

/* lies: this rank does not ask whether it may write. */
static void put_is_refused(cf_t *cf, kvcl_cache_h cache, bool lies)
{
    const uint32_t id  = 1;
    kvcl_sel_t     sel = cf_sel(&id, 1);
    kvcl_peer_t    *peer;
    kvcl_rcache_t  *rcache;
    kvcl_req_h     req;

    CF_OK(cf, get_one(cf, cache, 0)); /* described */
    CF_OK(cf, kvcl_comm_peer(cf->world, LIAR, &peer));
    kvcl_lock(cf->ctx);
    rcache = kvcl_rcache_ready(peer, kvcl_cache_name_key("kept"));
    CF_CHECK(cf, (rcache != NULL) && !rcache->writable);
    rcache->writable = lies;
    kvcl_unlock(cf->ctx);
    if (rcache->regions[0].view.addr != NULL) { /* the kernel says no as well */
        CF_CHECK(cf, mprotect(rcache->regions[0].view.addr, 4096, PROT_READ | PROT_WRITE) != 0);
    }
    CF_OK(cf, kvcl_put(cf->world, LIAR, cache, &sel, &sel, NULL, &req));
    CF_IS(cf, cf_end(cf, req), KVCL_ERR_ACCESS);
    named(cf, "the put's error names the rank");
    CF_CHECK(cf, lies || (strstr(kvcl_last_error(), "KVCL_CACHE_WRITABLE") != NULL));
    kvcl_lock(cf->ctx);
    rcache->writable = false;
    kvcl_unlock(cf->ctx);
}

/* The library's memory and the caller's; small puts, which travel with the message, and large ones. */
static void only_read(cf_t *cf)
{
    const uint32_t      sizes[] = {4096, 100000};
    kvcl_cache_params_t params  = KVCL_CACHE_PARAMS_INIT;
    char                *bytes  = malloc((size_t)BLOCKS * sizes[1]);
    void                *bases[] = {bytes};
    unsigned            i;

    for (i = 0; i < 4; ++i) {
        kvcl_layout_t layout = KVCL_LAYOUT_BYTES(BLOCKS, sizes[i / 2]);
        size_t        length = (size_t)BLOCKS * sizes[i / 2];
        kvcl_cache_h  cache;
        bool          ours = (i % 2) == 0;
        params.n_bases    = ours ? 0 : 1;
        params.bases      = ours ? NULL : bases;
        params.base_bytes = ours ? NULL : &length;
        CF_OK(cf, kvcl_cache_create(cf->ctx, "kept", &layout, &params, &cache));
        cf_fill(cf, cache, 7);
        cf_fence(cf);
        if (cf->rank != LIAR) {
            put_is_refused(cf, cache, false);
            if (!ours || (strcmp(cf->path, "tcp") == 0)) { /* a lie about mapped memory ends this process */
                put_is_refused(cf, cache, true);
            }
        }
        cf_fence(cf);
        cf_block_is(cf, cache, 1, 7, 1);
        kvcl_cache_destroy(cache);
        cf_fence(cf);
    }
    free(bytes);
}

/* ---- a segment is truncated under its readers ---- */

static unsigned truncate_all(void)
{
    DIR           *dir = opendir("/proc/self/fd");
    struct dirent *entry;
    char          path[300], target[300];
    unsigned      n = 0;
    ssize_t       len;

    while ((dir != NULL) && ((entry = readdir(dir)) != NULL)) {
        snprintf(path, sizeof(path), "/proc/self/fd/%s", entry->d_name);
        len = readlink(path, target, sizeof(target) - 1);
        target[(len > 0) ? len : 0] = '\0';
        if (strstr(target, "memfd:kvcl-") != NULL) {
            ++n;
            (void)!ftruncate(atoi(entry->d_name), 0);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return n;
}

static void truncated(cf_t *cf)
{
    kvcl_layout_t layout = KVCL_LAYOUT_BYTES(BLOCKS, BLOCK);
    cf_cache_t    cache  = cf_cache(cf, "cut", &layout, true);
    uint32_t      i;

    cf_fill(cf, cache.h, 100 + (uint64_t)cf->rank);
    cf_fence(cf);
    if (cf->rank != LIAR) {
        CF_OK(cf, get_one(cf, cache.h, 0)); /* mapped */
    }
    cf_fence(cf);
    CF_CHECK(cf, (cf->rank != LIAR) || (truncate_all() > 0) || (strcmp(cf->path, "tcp") == 0));
    cf_fence(cf);
    for (i = 0; (cf->rank != LIAR) && (i < BLOCKS); ++i) {
        if (get_one(cf, cache.h, i) == KVCL_OK) {
            cf_block_is(cf, cache.h, i, 100 + LIAR, i);
        } else {
            named(cf, "the get's error names the rank");
        }
    }
    cf_fence(cf);
    cf_cache_end(&cache);
}

static const cf_case_t cases[] = {
    {"addresses", addresses, CF_PROCS},
    {"exports", exports, CF_PROCS},
    {"caches", caches, CF_PROCS},
    {"caches_of_the_user", caches_of_the_user, CF_PROCS},
    {"only_read", only_read, CF_PROCS},
    {"truncated", truncated, CF_PROCS | CF_DIES},
    {NULL, NULL, 0},
};

static const cf_config_t configs[] = {
    {"shm", true, 2, 0}, {"shm", true, 2, KVCL_INIT_NO_THREAD}, {"tcp", true, 2, 0}, {NULL, false, 0, 0},
};

int main(int argc, char **argv)
{
    return cf_main(argc, argv, configs, cases);
}
