/*
 * The choice of the pair of a local transport and a part of the peer's address by which a peer is reached. If a
 * handshake does not get through, peer_handshake.c takes the next pair; if a link is lost, link/link.c tries in turn
 * those that are left.
 *
 * Order of pairs: loop in one process, ucx (shared memory), rdma, tcp. Over RDMA, each local port is first paired with
 * the peer's port of the same number, which is the same network where hosts are cabled alike. With UCX's own TCP
 * (KVCL_WIRE=ucx), which is ucx too, a peer of another host is first tried over RDMA.
 *
 * A pair of RDMA gets at most one endpoint in the life of a peer (spent), and that stays open until the peer has
 * answered over it or it has failed (settled); until then it is kept aside where another one is used, and is used again
 * when its turn comes. UCX needs both: it matches the endpoints of two workers by the number of endpoints that each has
 * made, and if one side closes its own during the wire-up, the other gets two partners, and UCX 1.13 ends the process.
 *
 * Owns: peer->ep until the peer is ready, peer->kept, peer->spent. Invariants: at first contact each pair is tried once
 * for a peer; a pair that carried a PROOF is used without a try. Locks: the engine lock.
 */
#include "config.h"
#include "core/peer.h"
#include "base/error.h"
#include "core/context.h"
#include "wire/address.h"

#include <string.h>

typedef struct pair {
    kvcl_xport_t *xport;
    unsigned     part; /* of the peer's address */
} pair_t;

enum { PAIRS_MAX = KVCL_ENGINE_XPORTS - KVCL_RDMA_PORTS + KVCL_RDMA_PAIRS };

static bool is_port(unsigned part)
{
    return part >= KVCL_ADDRESS_RDMA;
}

static kvcl_status_t unpack(const kvcl_peer_t *peer, kvcl_address_t *to)
{
    return kvcl_address_unpack(peer->address, peer->address_len, to);
}

/* The pairs of RDMA, appended. */
static unsigned add_ports(const kvcl_engine_t *eng, const kvcl_address_t *to, pair_t *pairs, unsigned n)
{
    unsigned theirs = 0, turn, i;

    while ((theirs < KVCL_RDMA_PORTS) && (to->part[KVCL_ADDRESS_RDMA + theirs].buf != NULL)) {
        ++theirs;
    }
    for (turn = 0; turn < theirs; ++turn) {
        for (i = 0; i < eng->n_xports; ++i) {
            if (is_port(eng->xports[i]->part)) {
                pairs[n].xport  = eng->xports[i];
                pairs[n++].part = KVCL_ADDRESS_RDMA + (eng->xports[i]->part - KVCL_ADDRESS_RDMA + turn) % theirs;
            }
        }
    }
    return n;
}

static unsigned list_pairs(const kvcl_context_h ctx, const kvcl_address_t *to, pair_t pairs[PAIRS_MAX])
{
    const kvcl_engine_t *eng = &ctx->engine;
    unsigned            n = 0, i;
    kvcl_address_t      own;
    bool                added = false;

    if ((ctx->config.wire == KVCL_WIRE_UCX) &&
        (kvcl_address_unpack(ctx->address, ctx->address_len, &own) == KVCL_OK) &&
        (memcmp(own.host, to->host, sizeof(own.host)) != 0)) {
        n     = add_ports(eng, to, pairs, 0);
        added = true;
    }
    for (i = 0; i < eng->n_xports; ++i) {
        if (is_port(eng->xports[i]->part)) {
            n     = added ? n : add_ports(eng, to, pairs, n);
            added = true;
        } else if (to->part[eng->xports[i]->part].buf != NULL) {
            pairs[n++] = (pair_t){eng->xports[i], eng->xports[i]->part};
        }
    }
    return n;
}

/* own: the peer's address has a part for KVCL's own TCP connections. tried: a transport has set a sentence. */
static kvcl_status_t explain_no_ep(const struct kvcl_context *ctx, bool own, kvcl_status_t status, bool tried)
{
    const kvcl_config_t *config = &ctx->config;
    bool                by_net  = (ctx->net.interfaces[0] != '\0');

    if ((status == KVCL_ERR_UNREACHABLE) && by_net && own && (config->wire == KVCL_WIRE_UCX)) {
        return kvcl_fail(status, "that rank uses KVCL's own TCP connections, and this rank has KVCL_WIRE=ucx: "
                         "KVCL_WIRE differs: give all ranks the same kind");
    }
    if ((status == KVCL_ERR_UNREACHABLE) && by_net && !own && (config->wire != KVCL_WIRE_UCX)) {
        return kvcl_fail(status, "that rank does not use KVCL's own TCP connections, and this rank has KVCL_WIRE=%s: "
                         "either KVCL_WIRE differs: give all ranks the same kind; or KVCL_NET is not set there: set "
                         "it for all ranks", kvcl_wire_name(config->wire));
    }
    if ((status == KVCL_ERR_UNREACHABLE) && (config->net == NULL) && (config->path == KVCL_PATH_AUTO)) {
        return kvcl_fail(status, "that rank is not reached over shared memory: it runs on another host, or in a "
                         "container with process ids of its own. Set KVCL_NET to the network interface (for example "
                         "eth0) that leads there, in every rank");
    }
    if ((status == KVCL_ERR_UNREACHABLE) && (ctx->net.n_ports > 0) && !by_net) {
        return kvcl_fail(status, "that rank is not reached over RDMA (KVCL_NET=%s): it has no RDMA port, or no packet "
                         "gets through to it; KVCL_NET may name an interface for TCP besides", config->net);
    }
    return tried ? status : kvcl_fail(status, "no transport of KVCL_PATH=%s leads to that rank",
                                      kvcl_path_name(config->path));
}

/* The place of a pair of RDMA in peer->spent and peer->kept; KVCL_RDMA_PAIRS: another pair. */
static unsigned place(const kvcl_xport_t *xport, unsigned part)
{
    return (is_port(xport->part) && is_port(part))
               ? (xport->part - KVCL_ADDRESS_RDMA) * KVCL_RDMA_PORTS + part - KVCL_ADDRESS_RDMA : KVCL_RDMA_PAIRS;
}

/* A new endpoint, or the one that was kept. */
static kvcl_status_t take_ep(kvcl_peer_t *peer, const pair_t *pair, const kvcl_address_t *to, kvcl_xport_ep_t **ep_p)
{
    unsigned at = place(pair->xport, pair->part);

    if (at < KVCL_RDMA_PAIRS) {
        *ep_p             = peer->kept[at].ep;
        peer->kept[at].ep = NULL;
        if (*ep_p != NULL) {
            return KVCL_OK;
        }
        if ((peer->spent & (1u << at)) != 0) {
            return kvcl_fail(KVCL_ERR_UNREACHABLE, "%s: this pair of RDMA ports was used before", peer->name);
        }
        peer->spent |= 1u << at;
    }
    return pair->xport->ops->ep_create(pair->xport, to->part[pair->part].buf, to->part[pair->part].len, ep_p);
}

/* The endpoint replaces the peer's present one, if there is one; if there is none for this pair, that one stays. */
static kvcl_status_t open_pair(kvcl_peer_t *peer, const pair_t *pair, const kvcl_address_t *to)
{
    kvcl_xport_ep_t *ep    = NULL;
    kvcl_status_t   status = take_ep(peer, pair, to, &ep);

    if (status != KVCL_OK) {
        return status;
    }
    kvcl_peer_drop_ep(peer);
    peer->ep      = ep;
    peer->ep->arg = peer;
    peer->ops     = pair->xport->ops;
    peer->part    = pair->part;
    peer->ops->query(pair->xport, &peer->attr);
    return KVCL_OK;
}

kvcl_status_t kvcl_peer_make_ep(kvcl_peer_t *peer)
{
    pair_t         pairs[PAIRS_MAX];
    kvcl_status_t  status;
    kvcl_address_t to;
    unsigned       n;
    bool           tried = false;

    status = unpack(peer, &to);
    if (status != KVCL_OK) {
        return status;
    }
    n      = list_pairs(peer->ctx, &to, pairs);
    status = KVCL_ERR_UNREACHABLE;
    while (peer->pairs_tried < n) {
        status = open_pair(peer, &pairs[peer->pairs_tried++], &to);
        if (status == KVCL_OK) {
            kvcl_sentence_free(&peer->why_unreachable);
            return KVCL_OK;
        }
        tried = true;
    }
    status = explain_no_ep(peer->ctx, to.part[KVCL_ADDRESS_TCP].buf != NULL, status, tried);
    kvcl_sentence_keep(&peer->why_unreachable); /* another thread may meet the failure */
    return kvcl_fail(status, "%s: %s", peer->name, kvcl_last_error());
}

/* May a peer whose link was lost be reached by it? Every context has a part for loop, which leads to a peer of this
 * process alone. */
static bool is_left(const kvcl_peer_t *peer, const pair_t *pair)
{
    unsigned at = place(pair->xport, pair->part);

    if (at < KVCL_RDMA_PAIRS) {
        return ((peer->spent & (1u << at)) == 0) || (peer->kept[at].ep != NULL);
    }
    if (peer->anew) { /* by another queue in shared memory */
        return pair->part == KVCL_ADDRESS_UCX;
    }
    return (pair->part == KVCL_ADDRESS_TCP) ||
           ((pair->part == KVCL_ADDRESS_LOOP) && (peer->part == KVCL_ADDRESS_LOOP));
}

/* Does it share a port with a pair of RDMA that was used up? Its port may be the one that failed. UCX may then block in
 * the driver for seconds, while the address is resolved over the dead wire. */
static bool is_doubtful(const kvcl_peer_t *peer, const pair_t *pair)
{
    unsigned at = place(pair->xport, pair->part), i;

    for (i = 0; (i < KVCL_RDMA_PAIRS) && (at < KVCL_RDMA_PAIRS); ++i) {
        if ((i != at) && ((peer->spent & (1u << i)) != 0) && (peer->kept[i].ep == NULL) &&
            ((i / KVCL_RDMA_PORTS == at / KVCL_RDMA_PORTS) || (i % KVCL_RDMA_PORTS == at % KVCL_RDMA_PORTS))) {
            return true;
        }
    }
    return false;
}

unsigned kvcl_peer_pairs_left(const kvcl_peer_t *peer, bool doubtful)
{
    pair_t         pairs[PAIRS_MAX];
    kvcl_address_t to;
    unsigned       n, i, left = 0;

    if (unpack(peer, &to) != KVCL_OK) {
        return 0;
    }
    n = list_pairs(peer->ctx, &to, pairs);
    for (i = 0; i < n; ++i) {
        left += is_left(peer, &pairs[i]) && (doubtful || !is_doubtful(peer, &pairs[i]));
    }
    return left;
}

/* The next one of this round, doubtful ones last; n: this round has tried all. */
static unsigned pick(const kvcl_peer_t *peer, const pair_t *pairs, unsigned n)
{
    unsigned doubtful, i;

    for (doubtful = 0; doubtful < 2; ++doubtful) {
        for (i = 0; i < n; ++i) {
            if (((peer->round_tried & (1u << i)) == 0) && is_left(peer, &pairs[i]) &&
                (is_doubtful(peer, &pairs[i]) == (doubtful != 0))) {
                return i;
            }
        }
    }
    return n;
}

kvcl_status_t kvcl_peer_next_ep(kvcl_peer_t *peer)
{
    pair_t         pairs[PAIRS_MAX];
    kvcl_address_t to;
    kvcl_status_t  status = unpack(peer, &to);
    unsigned       n      = (status == KVCL_OK) ? list_pairs(peer->ctx, &to, pairs) : 0, i = pick(peer, pairs, n);

    if (i == n) { /* the next round */
        peer->round_tried = 0;
        i                 = pick(peer, pairs, n);
    }
    if (i == n) {
        return KVCL_ERR_UNREACHABLE;
    }
    peer->round_tried |= 1u << i;
    return open_pair(peer, &pairs[i], &to);
}

static kvcl_status_t check_pair(const kvcl_address_t *to, const kvcl_xport_t *xport, unsigned part)
{
    if ((part >= KVCL_ADDRESS_PARTS) || (to->part[part].buf == NULL) ||
        (is_port(part) ? !is_port(xport->part) : (part != xport->part))) {
        return kvcl_fail(KVCL_ERR_PROTOCOL, "it names part %u of its address", part);
    }
    return KVCL_OK;
}

kvcl_status_t kvcl_peer_check_pair(const kvcl_peer_t *peer, const kvcl_xport_t *xport, unsigned part)
{
    kvcl_address_t to;
    kvcl_status_t  status = unpack(peer, &to);

    return (status == KVCL_OK) ? check_pair(&to, xport, part) : status;
}

kvcl_status_t kvcl_peer_make_ep_back(kvcl_peer_t *peer, kvcl_xport_t *xport, unsigned part, bool stay)
{
    kvcl_address_t to;
    kvcl_status_t  status = unpack(peer, &to);
    pair_t         pair   = {xport, part};

    if (status != KVCL_OK) {
        return status;
    }
    if (peer->state == KVCL_PEER_READY) {
        return KVCL_OK;
    }
    if (!peer->met && ((to.part[KVCL_ADDRESS_RDMA].buf == NULL) || (peer->ctx->net.n_ports == 0))) {
        return (peer->ep == NULL) ? kvcl_peer_make_ep(peer) : KVCL_OK; /* the first pair that can be opened works */
    }
    status = check_pair(&to, xport, part);
    if (status != KVCL_OK) {
        return status;
    }
    if ((peer->ep != NULL) && peer->ep->settled && stay) {
        return KVCL_OK;
    }
    if ((peer->ep == NULL) || (peer->ep->xport != xport) || (peer->part != part)) {
        status = open_pair(peer, &pair, &to);
    }
    if (status == KVCL_OK) {
        peer->ep->settled = true;
    }
    return status;
}

static void close_ep(kvcl_xport_ep_t *ep)
{
    ep->arg = NULL;
    ep->xport->ops->ep_close(ep);
}

void kvcl_peer_drop_ep(kvcl_peer_t *peer)
{
    kvcl_xport_ep_t *ep = peer->ep;
    unsigned        at  = (ep != NULL) ? place(ep->xport, peer->part) : 0;

    kvcl_assert_locked(peer->ctx);
    peer->ep = NULL;
    if ((ep != NULL) && !ep->settled && (at < KVCL_RDMA_PAIRS)) {
        peer->kept[at].ep = ep;
        memcpy(peer->kept[at].nonce, peer->nonce, sizeof(peer->nonce));
    } else if (ep != NULL) {
        close_ep(ep);
    }
}

/* The place of the endpoint over which this HELLO was sent; KVCL_RDMA_PAIRS: none. */
static unsigned find_kept(const kvcl_peer_t *peer, const uint8_t nonce[16])
{
    unsigned i = 0;

    while ((i < KVCL_RDMA_PAIRS) &&
           ((peer->kept[i].ep == NULL) || (memcmp(peer->kept[i].nonce, nonce, sizeof(peer->nonce)) != 0))) {
        ++i;
    }
    return i;
}

bool kvcl_peer_is_kept(const kvcl_peer_t *peer, const uint8_t nonce[16])
{
    return find_kept(peer, nonce) < KVCL_RDMA_PAIRS;
}

kvcl_status_t kvcl_peer_take_back(kvcl_peer_t *peer, const uint8_t nonce[16])
{
    unsigned       at     = find_kept(peer, nonce);
    pair_t         pair   = {peer->kept[at].ep->xport, KVCL_ADDRESS_RDMA + at % KVCL_RDMA_PORTS};
    kvcl_address_t to;
    kvcl_status_t  status = unpack(peer, &to);

    if (status == KVCL_OK) {
        status = open_pair(peer, &pair, &to);
    }
    if (status == KVCL_OK) {
        memcpy(peer->nonce, nonce, sizeof(peer->nonce));
    }
    return status;
}

void kvcl_peer_close_kept(kvcl_peer_t *peer, const kvcl_xport_ep_t *only)
{
    kvcl_xport_ep_t *ep;
    unsigned        i;

    kvcl_assert_locked(peer->ctx);
    for (i = 0; i < KVCL_RDMA_PAIRS; ++i) {
        ep = peer->kept[i].ep;
        if ((ep != NULL) && ((only == NULL) || (ep == only))) {
            peer->kept[i].ep = NULL;
            close_ep(ep);
        }
    }
}
