/*
 * The context: kvcl_init in the order settings, transports, boot, rooms, world; kvcl_finalize in reverse. Transports
 * are opened before boot, so that a rank whose settings they refuse fails at once, and not at the others' timeout.
 */
#include "config.h"
#include "core/context.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/crypto.h"
#include "base/error.h"
#include "base/log.h"
#include "base/rand.h"
#include "base/structs.h"
#include "weave/bulk.h"
#include "core/comm.h"
#include "handle/fork.h"
#include "handle/handle.h"
#include "req/callback.h"
#include "req/req.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { JOIN_TRIES = 32 };

static kvcl_status_t process_uuid(uint8_t out[16])
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static uint8_t         uuid[16];
    static bool            made;
    kvcl_status_t          status = KVCL_OK;

    pthread_mutex_lock(&lock);
    if (!made) {
        status = kvcl_random_bytes(uuid, sizeof(uuid));
        made   = (status == KVCL_OK);
    }
    memcpy(out, uuid, sizeof(uuid));
    pthread_mutex_unlock(&lock);
    return status;
}

static kvcl_status_t open_boot(kvcl_context_h ctx, const kvcl_init_params_t *params)
{
    kvcl_boot_params_t boot = KVCL_BOOT_PARAMS_INIT;

    boot.which       = ctx->config.boot;
    boot.rendezvous  = ctx->config.rendezvous;
    boot.join        = ctx->config.join;
    boot.wire_version = KVCL_WIRE_VERSION;
    boot.rank        = (int)ctx->config.rank;
    boot.size        = (int)ctx->config.size;
    boot.secret_file = ctx->config.secret_file;
    boot.timeout_ns  = ctx->config.boot_timeout_ns;
    boot.net         = (ctx->config.net != NULL) ? ctx->config.net : "";
    boot.oob         = (params != NULL) ? params->oob : NULL;
    boot.user_secret = (params != NULL) && ((params->flags & KVCL_INIT_USER_SECRET) != 0);
    return kvcl_boot_open(&boot, &ctx->boot);
}

static kvcl_status_t make_address(kvcl_context_h ctx)
{
    kvcl_address_t address;
    kvcl_status_t  status;
    unsigned       i;

    memset(&address, 0, sizeof(address));
    if (((status = kvcl_random_bytes(ctx->uuid, sizeof(ctx->uuid))) != KVCL_OK) ||
        ((status = kvcl_random_bytes(ctx->cookie, sizeof(ctx->cookie))) != KVCL_OK) ||
        ((status = process_uuid(address.process)) != KVCL_OK)) {
        return status;
    }
    kvcl_host_id(address.host);
    memcpy(address.uuid, ctx->uuid, sizeof(address.uuid));
    for (i = 0; i < ctx->engine.n_xports; ++i) {
        kvcl_xport_t *xport = ctx->engine.xports[i];
        xport->ops->address(xport, &address.part[xport->part].buf, &address.part[xport->part].len);
    }
    ctx->address = malloc(KVCL_ADDRESS_MAX);
    if (ctx->address == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for an address");
    }
    ctx->address_len = kvcl_address_pack(&address, ctx->address, KVCL_ADDRESS_MAX);
    return (ctx->address_len > 0) ? KVCL_OK : kvcl_fail(KVCL_ERR_INTERNAL, "the transports' addresses are too long");
}

static kvcl_status_t open_rooms(kvcl_context_h ctx)
{
    const kvcl_msg_handler_t *handler;
    kvcl_status_t            status;
    unsigned                 i;

    for (i = 0; i < KVCL_ROOMS; ++i) {
        if (kvcl_rooms[i]->init != NULL) {
            status = kvcl_rooms[i]->init(ctx, &ctx->rooms[i]);
            if (status != KVCL_OK) {
                return status;
            }
        }
        ctx->n_rooms = i + 1;
        for (handler = kvcl_rooms[i]->handlers; (handler != NULL) && (handler->type != 0); ++handler) {
            ctx->handlers[handler->type] = *handler;
        }
    }
    return KVCL_OK;
}

/* Ranks spin only where each can have a core of its own. A launcher that binds a rank to one core has given it one, so
 * the number of the host's cores counts, not of those that this process may use. */
static uint64_t spin_ns(kvcl_context_h ctx)
{
    size_t i;

    for (i = 0; kvcl_config_table[i].name != NULL; ++i) {
        if ((strcmp(kvcl_config_table[i].name, "KVCL_SPIN") == 0) && (ctx->sources[i] != KVCL_SOURCE_DEFAULT)) {
            return ctx->config.spin_ns;
        }
    }
    return (ctx->boot->size > sysconf(_SC_NPROCESSORS_ONLN)) ? 0 : ctx->config.spin_ns;
}

static kvcl_status_t open_all(kvcl_context_h ctx, const kvcl_init_params_t *params)
{
    kvcl_status_t status;
    unsigned      i;

    if (((status = kvcl_config_load(&ctx->config, params, ctx->sources)) != KVCL_OK) ||
        ((status = kvcl_xports_open(ctx)) != KVCL_OK) || ((status = open_boot(ctx, params)) != KVCL_OK) ||
        ((status = kvcl_rank_slots_open(ctx)) != KVCL_OK) || ((status = make_address(ctx)) != KVCL_OK) ||
        ((status = open_rooms(ctx)) != KVCL_OK) ||
        ((status = kvcl_comm_make(ctx, 1, ctx->boot->rank, ctx->slots.n, &ctx->world)) != KVCL_OK) ||
        ((status = kvcl_boot_exchange(ctx->boot, ctx->address, ctx->address_len)) != KVCL_OK) ||
        ((status = kvcl_xports_secure(ctx)) != KVCL_OK)) {
        return status;
    }
    kvcl_bulk_configure(ctx->config.copy, ctx->config.copy_large);
    ctx->engine.thread_spin.most_ns = ctx->engine.waiter_spin.most_ns = spin_ns(ctx);
    ctx->engine.one_core            = (kvcl_online_cores() == 1);
    status = kvcl_engine_start(ctx, (params == NULL) || !(params->flags & KVCL_INIT_NO_THREAD));
    for (i = 0; (status == KVCL_OK) && (i < KVCL_ROOMS); ++i) {
        status = (kvcl_rooms[i]->start != NULL) ? kvcl_rooms[i]->start(ctx, ctx->rooms[i]) : KVCL_OK;
    }
    return status;
}

static bool quiet(void *arg)
{
    kvcl_context_h ctx = arg;
    unsigned       i;

    for (i = 0; i < ctx->engine.n_xports; ++i) {
        kvcl_xport_t *xport = ctx->engine.xports[i];
        if ((xport->ops->outstanding != NULL) && xport->ops->outstanding(xport)) {
            return false;
        }
    }
    return kvcl_peers_parted(ctx);
}

static void free_comms(kvcl_context_h ctx)
{
    kvcl_comm_h world = ctx->world, comm;

    ctx->world = NULL; /* otherwise it could not be freed */
    while (!kvcl_list_is_empty(&ctx->comms)) {
        comm = kvcl_list_head(&ctx->comms, struct kvcl_comm, link);
        if (comm != world) {
            kvcl_log_warn("a communicator of %d ranks was not freed before kvcl_finalize", comm->size);
        }
        kvcl_comm_free(comm);
    }
}

static bool is_closing(kvcl_context_h ctx)
{
    bool     closing = false;
    unsigned i;

    kvcl_lock(ctx); /* the thread of views may still take messages */
    for (i = 0; i < ctx->engine.n_xports; ++i) {
        kvcl_xport_t *xport = ctx->engine.xports[i];
        closing = closing || ((xport->ops->closing != NULL) && xport->ops->closing(xport));
    }
    kvcl_unlock_quietly(ctx);
    return closing;
}

/* Stopped operations complete and closed endpoints release their sends; only then are memory and rooms freed. */
static void settle(kvcl_context_h ctx)
{
    uint64_t deadline = kvcl_deadline_after(KVCL_NS_PER_SEC);
    unsigned i;

    for (i = 0; (i < 64) || (is_closing(ctx) && !kvcl_deadline_passed(deadline)); ++i) {
        (void)kvcl_engine_pass(ctx);
    }
    if (is_closing(ctx)) {
        kvcl_log_error("a transport still holds buffers of a closed context; they are not freed");
    }
}

/* Accepts a half-built context. */
static void close_all(kvcl_context_h ctx)
{
    kvcl_engine_t *eng = &ctx->engine;

    kvcl_lock(ctx);
    kvcl_peers_goodbye(ctx);
    kvcl_unlock(ctx);
    if ((ctx->peers.count > 0) && !kvcl_engine_wait(ctx, quiet, ctx, kvcl_deadline_after(2 * KVCL_NS_PER_SEC))) {
        kvcl_log_info("a context is closed before all peers have confirmed its BYE");
    }
    kvcl_engine_stop(ctx);
    kvcl_lock(ctx);
    while (!kvcl_list_is_empty(&eng->live)) {
        kvcl_list_t *link = kvcl_list_first(&eng->live);
        kvcl_req_t  *req  = kvcl_container_of(link, kvcl_req_t, live_link);
        kvcl_list_del(link);
        req->cls->stop(req, KVCL_ERR_CANCELED);
    }
    ctx->closing = true;
    kvcl_peers_close(ctx);
    kvcl_unlock(ctx);
    settle(ctx);
    while (ctx->n_rooms > 0) {
        --ctx->n_rooms;
        if (kvcl_rooms[ctx->n_rooms]->fini != NULL) {
            kvcl_rooms[ctx->n_rooms]->fini(ctx, ctx->rooms[ctx->n_rooms]);
        }
    }
    free_comms(ctx);
    while (eng->n_xports > 0) {
        kvcl_xport_t *xport = eng->xports[--eng->n_xports];
        xport->ops->fini(xport);
    }
    kvcl_peers_fini(ctx);
    kvcl_map_fini(&ctx->comm_ids);
    kvcl_rank_slots_close(ctx);
    kvcl_boot_close(ctx->boot);
    kvcl_engine_fini(ctx);
    kvcl_config_free(&ctx->config);
    ctx->secret = NULL; /* wiped by the boot */
    pthread_mutex_destroy(&ctx->boot_lock);
    free(ctx->address);
    kvcl_object_free(ctx);
    kvcl_fork_leave();
}

/* The caller's struct may be of an older or a newer version: members that it lacks have their defaults. */
static kvcl_status_t take_params(const kvcl_init_params_t *params, kvcl_init_params_t *out)
{
    static const kvcl_init_params_t defaults = KVCL_INIT_PARAMS_INIT;
    kvcl_status_t                   status;

    *out = defaults;
    if (params == NULL) {
        return KVCL_OK;
    }
    status = kvcl_struct_in(out, params, KVCL_UP_TO(kvcl_init_params_t, flags), sizeof(*out), "kvcl_init_params_t");
    if (status == KVCL_OK) {
        if ((out->flags & ~(uint64_t)(KVCL_INIT_NO_THREAD | KVCL_INIT_USER_SECRET | KVCL_INIT_RANK)) != 0) {
            status = kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_init: unknown flags 0x%llx",
                               (unsigned long long)out->flags);
        }
    }
    return status;
}

/* again_p: it joins a job, in any slot, and another process has taken the one that it was given. */
static kvcl_status_t make_context(const kvcl_init_params_t *params, kvcl_context_h *ctx_p, bool *again_p)
{
    kvcl_context_h ctx;
    kvcl_status_t  status = kvcl_fork_enter();

    *again_p = false;
    if (status != KVCL_OK) {
        return status;
    }
    ctx = kvcl_object_alloc(KVCL_KIND_CONTEXT, sizeof(*ctx));
    if (ctx == NULL) {
        kvcl_fork_leave();
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a context");
    }
    pthread_mutex_init(&ctx->boot_lock, NULL);
    kvcl_map_init(&ctx->peers.by_uuid);
    kvcl_list_init(&ctx->peers.ended);
    kvcl_map_init(&ctx->comm_ids);
    kvcl_list_init(&ctx->comms);
    status = kvcl_engine_init(ctx);
    status = (status == KVCL_OK) ? open_all(ctx, params) : status;
    if (status != KVCL_OK) {
        *again_p = (status == KVCL_ERR_BUSY) && (ctx->config.rank < 0) && atomic_load(&ctx->slots.quiet);
        close_all(ctx);
        return status;
    }
    *ctx_p = ctx;
    return KVCL_OK;
}

kvcl_status_t kvcl_init(const kvcl_init_params_t *user_params, kvcl_context_h *ctx_p)
{
    kvcl_init_params_t params;
    kvcl_status_t      status;
    bool               again = true;
    int                i; /* tries */

    if (ctx_p == NULL) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_init: ctx_p is NULL");
    }
    status = take_params(user_params, &params);
    for (i = 0; again && (i < JOIN_TRIES) && ((status == KVCL_OK) || (status == KVCL_ERR_BUSY)); ++i) {
        status = make_context(&params, ctx_p, &again);
    }
    return status;
}

void kvcl_finalize(kvcl_context_h ctx)
{
    if (!kvcl_handle_may_free(ctx, KVCL_KIND_CONTEXT, "kvcl_finalize")) {
        return;
    }
    if (kvcl_callback_inside(ctx)) {
        (void)kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_finalize: called from a callback of the context, which stays "
                        "open: call it from another thread");
        kvcl_log_error("%s", kvcl_last_error());
        return;
    }
    close_all(ctx);
}

size_t kvcl_context_frame(kvcl_context_h ctx, const kvcl_peer_t *peer)
{
    return (ctx->config.frame != 0) ? ctx->config.frame : peer->ep->frame_bytes;
}
