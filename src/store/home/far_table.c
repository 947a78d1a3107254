/*
 * Lookups over the network in another rank's table (far_table.h).
 *
 * A read is the windows of its keys and the region's control word, all in flight together. A window in which an entry
 * of the key was being written is read again, TRIES times in all.
 *
 * Owns the reads: each has its own memory, holds the store (store->ops), and is freed when its last operation has
 * completed, whether or not its RPC still waits. The region is not closed before, unless the link is lost: then it is
 * closed at once, and reads that began before fail (links). Locks: the engine lock is held.
 */
#include "config.h"
#include "store/home/far_table.h"
#include "store/home/mapped.h"
#include "base/clock.h"
#include "base/log.h"
#include "store/home/ranks.h"
#include "xfer/xfer.h"

#include <stdlib.h>

enum { TRIES = 3 };

#define LEARN_AGAIN_NS (1 * KVCL_NS_PER_SEC)

typedef struct far_window {
    kvcl_xport_send_t send;
    kvcl_far_t        *far;
    bool              steady; /* locs has the key's locations */
    uint8_t           n;
    kvcl_dir_loc_t    locs[KVCL_DIR_LOCS_MAX];
} far_window_t;

struct kvcl_far {
    kvcl_store_h      store;
    uint32_t          rank;
    uint32_t          links;     /* the rank's count of lost links when the read began */
    kvcl_rpc_t        *rpc;      /* NULL: it has ended */
    void              (*ended)(kvcl_rpc_t *rpc, const void *data, size_t len);
    kvcl_xport_send_t word_send;
    uint64_t          word;      /* the region's control word */
    unsigned          in_flight; /* operations, and 1 while they are being issued */
    unsigned          tries;
    bool              failed;
    uint32_t          n;
    const kvcl_key_t  *keys;     /* the RPC's; NULL: the table's header is read */
    far_window_t      *windows;  /* n */
    char              *bytes;    /* n x KVCL_DIR_WINDOW_BYTES, aligned to 64 */
};

static void finish(kvcl_far_t *far);

static kvcl_store_rank_t *rank_of(const kvcl_far_t *far)
{
    return &far->store->ranks[far->rank];
}

/* ---- operations ---- */

static void complete(kvcl_far_t *far, kvcl_status_t status)
{
    far->failed = far->failed || (status != KVCL_OK);
    if (--far->in_flight == 0) {
        finish(far);
    }
}

static void on_word(kvcl_xport_send_t *send, kvcl_status_t status)
{
    complete(kvcl_container_of(send, kvcl_far_t, word_send), status);
}

static void on_window(kvcl_xport_send_t *send, kvcl_status_t status)
{
    complete(kvcl_container_of(send, far_window_t, send)->far, status);
}

static void get(kvcl_far_t *far, kvcl_xport_rmem_t *rmem, uint64_t offset, void *buf, size_t len,
                kvcl_xport_send_t *send)
{
    kvcl_status_t status = (rmem == NULL) ? KVCL_ERR_UNREACHABLE /* closed with a lost link */
                                          : rank_of(far)->peer->ops->get(rmem, offset, buf, len, send);

    far->in_flight += (status == KVCL_INPROGRESS);
    far->failed = far->failed || ((status != KVCL_OK) && (status != KVCL_INPROGRESS));
}

static void get_word(kvcl_far_t *far)
{
    const kvcl_rregion_t *region = &rank_of(far)->region;

    far->word           = region->epoch;
    far->word_send.done = on_word;
    if (region->ctl != NULL) {
        far->failed = far->failed || !kvcl_rregion_live(region);
    } else {
        get(far, region->ctl_rmem, region->id * sizeof(uint64_t), &far->word, sizeof(far->word), &far->word_send);
    }
}

static void get_window(kvcl_far_t *far, uint32_t i)
{
    const kvcl_store_rank_t *rank  = rank_of(far);
    char                    *bytes = far->bytes + ((size_t)i * KVCL_DIR_WINDOW_BYTES);

    if (far->keys == NULL) {
        get(far, rank->region.rmem, 0, bytes, KVCL_DIR_HEADER_BYTES, &far->windows[i].send);
    } else if (!far->windows[i].steady) {
        get(far, rank->region.rmem, kvcl_dir_far_offset(&rank->view, &far->keys[i]), bytes, KVCL_DIR_WINDOW_BYTES,
            &far->windows[i].send);
    }
}

static void issue(kvcl_far_t *far)
{
    uint32_t i;

    ++far->tries;
    far->in_flight = 1;
    get_word(far);
    for (i = 0; (i < far->n) && !far->failed; ++i) {
        get_window(far, i);
    }
    complete(far, KVCL_OK);
}

/* ---- the end ---- */

/* The region of a table that is not read any more is closed by the last read. */
static void free_far(kvcl_far_t *far)
{
    kvcl_store_rank_t *rank = rank_of(far);

    --far->store->ops;
    if ((--rank->reads == 0) && (atomic_load(&rank->view_state) == KVCL_VIEW_BY_MESSAGE)) {
        kvcl_rregion_close(&rank->region);
    }
    free(far);
}

static bool all_steady(kvcl_far_t *far)
{
    const kvcl_dir_view_t *view = &rank_of(far)->view;
    far_window_t          *window;
    bool                  all   = true;
    uint32_t              i;
    int                   n;

    for (i = 0; i < far->n; ++i) {
        window = &far->windows[i];
        if (!window->steady) {
            n = kvcl_dir_far_read(view, &far->keys[i], far->bytes + ((size_t)i * KVCL_DIR_WINDOW_BYTES), window->locs);
            window->steady = (n >= 0);
            window->n      = (n >= 0) ? (uint8_t)n : 0;
            all            = all && window->steady;
        }
    }
    return all;
}

/* As kvcl_home_on_present() answers. Returns the bytes. */
static size_t answer_present(const kvcl_far_t *far, uint8_t *flags)
{
    const far_window_t *window;
    uint32_t           i, k;

    for (i = 0; i < far->n; ++i) {
        window   = &far->windows[i];
        flags[i] = 0;
        for (k = 0; k < window->n; ++k) {
            if (kvcl_store_loc_lives(far->store, &window->locs[k])) {
                flags[i] |= KVCL_PRESENT_SOMEWHERE;
                flags[i] |= (window->locs[k].rank == far->store->me) ? KVCL_PRESENT_YOURS : 0;
            }
        }
    }
    return far->n;
}

/* As kvcl_home_on_dir() answers. */
static size_t answer_lookup(const kvcl_far_t *far, void *buf, size_t cap)
{
    kvcl_dir_reply_t reply;
    kvcl_dir_msg_t   request;
    uint32_t         i;

    if ((kvcl_dir_msg_unpack(&request, far->rpc->payload, far->rpc->len) != KVCL_OK) ||
        (kvcl_dir_reply_begin(&reply, buf, cap, &request) != KVCL_OK)) {
        return 0; /* rpc.c made the request, so it decodes */
    }
    for (i = 0; i < far->n; ++i) {
        kvcl_dir_reply_locs(&reply, i, far->windows[i].locs, far->windows[i].n);
    }
    return kvcl_dir_reply_end(&reply, kvcl_store_shards(far->store)->view, KVCL_OK);
}

static void hand_over(kvcl_far_t *far)
{
    kvcl_rpc_t *rpc = far->rpc;
    size_t     cap  = kvcl_dir_reply_bytes_max(KVCL_DIR_MSG_LOOKUP, far->n), len = 0;
    void       *buf = (far->failed || (rpc == NULL)) ? NULL : malloc(cap);

    if (rpc == NULL) {
        return;
    }
    rpc->far = NULL;
    if (buf != NULL) {
        len = (rpc->kind == KVCL_RPC_PRESENT) ? answer_present(far, buf) : answer_lookup(far, buf, cap);
    }
    far->ended(rpc, (len != 0) ? buf : NULL, len);
    free(buf);
}

/* The read of the header has ended. A valid header: the table is read natively from now on. An invalid one: it is
 * queried by message. If the read failed, perhaps because the connection for data is being made again, a later query
 * tries again. */
static void learned(kvcl_far_t *far)
{
    kvcl_store_rank_t *rank = rank_of(far);
    int               state = KVCL_VIEW_NATIVE;

    if (far->failed) {
        state = KVCL_VIEW_UNKNOWN;
        rank->learn_ns = kvcl_deadline_after(LEARN_AGAIN_NS);
    } else if (kvcl_dir_far_init(&rank->view, far->bytes, (size_t)rank->region.len) != KVCL_OK) {
        state = KVCL_VIEW_BY_MESSAGE;
    }
    kvcl_log_debug("the directory of %s: %s", rank->peer->name, (state == KVCL_VIEW_NATIVE) ? "native" : "by message");
    if (state != KVCL_VIEW_NATIVE) {
        kvcl_rregion_close(&rank->region);
    }
    atomic_store(&rank->view_state, state);
}

static void finish(kvcl_far_t *far)
{
    const kvcl_store_rank_t *rank = rank_of(far);

    far->failed = far->failed || (far->links != rank->links) || (far->word != rank->region.epoch);
    if (far->keys == NULL) {
        if ((far->links == rank->links) && (atomic_load(&rank->view_state) == KVCL_VIEW_READING)) {
            learned(far);
        }
        free_far(far);
        return;
    }
    if ((far->rpc != NULL) && !far->failed && !all_steady(far)) {
        if (far->tries < TRIES) {
            issue(far);
            return;
        }
        far->failed = true;
    }
    if (far->failed) {
        kvcl_log_debug("the directory of %s: a read failed, it is queried by message", rank->peer->name);
    }
    hand_over(far);
    free_far(far);
}

/* ---- the beginning ---- */

/* The keys of the RPC's payload: bare, or in a message of dir_wire.h. */
static const kvcl_key_t *keys_of(const kvcl_rpc_t *rpc)
{
    kvcl_dir_msg_t msg;

    if (rpc->kind == KVCL_RPC_PRESENT) {
        return (const kvcl_key_t *)rpc->payload;
    }
    return (kvcl_dir_msg_unpack(&msg, rpc->payload, rpc->len) == KVCL_OK) ? kvcl_dir_msg_key(&msg, 0) : NULL;
}

static bool pays(const kvcl_rpc_t *rpc)
{
    const kvcl_store_rank_t *rank = &rpc->store->ranks[rpc->rank];

    return ((rpc->kind == KVCL_RPC_PRESENT) || (rpc->kind == KVCL_RPC_LOOKUP)) && (rpc->n > 0) &&
           (rpc->n <= KVCL_FAR_KEYS_MAX) &&
           (atomic_load_explicit(&rank->view_state, memory_order_relaxed) == KVCL_VIEW_NATIVE) &&
           kvcl_rma_table_native(&kvcl_xfer_state(rpc->store->ctx)->rma_table, "dir", KVCL_DIR_WINDOW_BYTES, rpc->n);
}

static kvcl_far_t *far_new(kvcl_store_h store, uint32_t rank, uint32_t n)
{
    size_t     head = (sizeof(kvcl_far_t) + (n * sizeof(far_window_t)) + 63) / 64 * 64;
    kvcl_far_t *far = aligned_alloc(64, head + ((size_t)n * KVCL_DIR_WINDOW_BYTES));
    uint32_t   i;

    if (far != NULL) {
        memset(far, 0, head);
        far->store   = store;
        far->rank    = rank;
        far->links   = store->ranks[rank].links;
        far->n       = n;
        far->windows = (far_window_t *)(far + 1);
        far->bytes   = (char *)far + head;
        for (i = 0; i < n; ++i) {
            far->windows[i].far       = far;
            far->windows[i].send.done = on_window;
        }
        ++store->ops;
        ++store->ranks[rank].reads;
    }
    return far;
}

bool kvcl_far_start(kvcl_rpc_t *rpc, void (*ended)(kvcl_rpc_t *rpc, const void *data, size_t len))
{
    const kvcl_key_t *keys;
    kvcl_far_t       *far;

    kvcl_assert_locked(rpc->store->ctx);
    keys = pays(rpc) ? keys_of(rpc) : NULL;
    far  = (keys != NULL) ? far_new(rpc->store, rpc->rank, rpc->n) : NULL;
    if (far == NULL) {
        return false;
    }
    far->rpc   = rpc;
    far->keys  = keys;
    far->ended = ended;
    rpc->far   = far;
    kvcl_engine_kick(rpc->store->ctx);
    issue(far);
    return true;
}

void kvcl_far_learn(kvcl_store_h store, uint32_t rank)
{
    kvcl_far_t *far;

    kvcl_assert_locked(store->ctx);
    far = far_new(store, rank, 1);
    if (far == NULL) {
        kvcl_far_close(store, rank);
        return;
    }
    atomic_store(&store->ranks[rank].view_state, KVCL_VIEW_READING);
    kvcl_engine_kick(store->ctx);
    issue(far);
}

void kvcl_far_leave(kvcl_far_t *far)
{
    far->rpc = NULL;
}

void kvcl_far_stop(kvcl_store_h store)
{
    kvcl_peer_t *peer;
    uint32_t    i;

    kvcl_assert_locked(store->ctx);
    for (i = 0; i < store->n_ranks; ++i) {
        peer = store->ranks[i].peer;
        if ((store->ranks[i].reads != 0) && (peer->ep != NULL) && (peer->ops->rma_end != NULL)) {
            peer->ops->rma_end(peer->ep); /* they complete from progress */
            kvcl_engine_kick(store->ctx);
        }
    }
}

/* The operations in flight complete when the endpoint of the lost link ends, which waits until no region opened on it
 * is left. */
void kvcl_far_lost(kvcl_store_h store, uint32_t index)
{
    kvcl_store_rank_t *rank = &store->ranks[index];

    kvcl_assert_locked(store->ctx);
    ++rank->links;
    if (rank->region.attr.map == NULL) {
        kvcl_rregion_close(&rank->region);
        if (!store->closing) {
            atomic_store(&rank->view_state, KVCL_VIEW_UNKNOWN);
        }
    }
}

void kvcl_far_close(kvcl_store_h store, uint32_t index)
{
    kvcl_store_rank_t *rank = &store->ranks[index];

    kvcl_assert_locked(store->ctx);
    atomic_store(&rank->view_state, KVCL_VIEW_BY_MESSAGE);
    kvcl_mapped_close(rank, NULL);
    if (rank->reads == 0) {
        kvcl_rregion_close(&rank->region);
    }
}

bool kvcl_far_renew(kvcl_store_h store, uint32_t index)
{
    kvcl_assert_locked(store->ctx);
    if (store->ranks[index].reads != 0) {
        return false;
    }
    kvcl_rregion_close(&store->ranks[index].region);
    store->ranks[index].learn_ns = 0;
    atomic_store(&store->ranks[index].view_state, KVCL_VIEW_UNKNOWN);
    return true;
}
