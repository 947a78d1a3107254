/*
 * Requests to connect that wait for an accept (held.h).
 *
 * Owns: the requests in a list, with their members. Invariants: at most REQUESTS_MAX are in a list, at most
 * REQUESTS_PER_PEER of one peer. Locks: the engine lock, everywhere.
 */
#include "config.h"
#include "join/held.h"

#include <stdlib.h>
#include <string.h>

enum { REQUESTS_MAX = 64, REQUESTS_PER_PEER = 4 };

static kvcl_held_request_t *one_more(const kvcl_list_t *held, const kvcl_peer_t *peer)
{
    unsigned            all = 0, of_peer = 0;
    kvcl_held_request_t *request;

    kvcl_list_foreach (request, held, kvcl_held_request_t, link) {
        ++all;
        of_peer += (request->peer == peer) ? 1 : 0;
    }
    return ((all < REQUESTS_MAX) && (of_peer < REQUESTS_PER_PEER)) ? calloc(1, sizeof(*request)) : NULL;
}

kvcl_status_t kvcl_held_add(kvcl_list_t *held, kvcl_peer_t *peer, uint64_t op, uint32_t n, const void *data,
                            size_t len)
{
    kvcl_held_request_t *request = one_more(held, peer);
    kvcl_status_t       status;

    if (request == NULL) {
        return KVCL_ERR_BUSY;
    }
    status = kvcl_members_take(n, data, len, peer, &request->members);
    if (status != KVCL_OK) {
        free(request);
        return status;
    }
    request->peer = peer;
    request->op   = op;
    kvcl_list_add_tail(held, &request->link);
    return KVCL_OK;
}

void kvcl_held_keep(kvcl_list_t *held, const kvcl_held_request_t *request, kvcl_members_t *members,
                    const kvcl_members_t *local)
{
    kvcl_held_request_t *kept = one_more(held, request->peer);

    if (kept == NULL) {
        return;
    }
    *kept         = *request;
    kept->members = *members;
    members->buf  = NULL;
    kvcl_sha256(local->buf, local->len, kept->by);
    kvcl_list_add_tail(held, &kept->link);
}

bool kvcl_held_confirm(kvcl_list_t *held, const kvcl_peer_t *peer, uint64_t answer)
{
    kvcl_held_request_t *request;

    kvcl_list_foreach (request, held, kvcl_held_request_t, link) {
        if ((request->peer == peer) && (request->answer == answer)) {
            request->confirmed = true;
            return true;
        }
    }
    return false;
}

kvcl_held_request_t *kvcl_held_confirmed(kvcl_list_t *held, const kvcl_members_t *local)
{
    kvcl_held_request_t *request;
    uint8_t             by[KVCL_SHA256_LEN];

    kvcl_list_foreach (request, held, kvcl_held_request_t, link) {
        if (request->confirmed) {
            kvcl_sha256(local->buf, local->len, by);
            if (memcmp(by, request->by, sizeof(by)) == 0) {
                return request;
            }
        }
    }
    return NULL;
}

void kvcl_held_drop(kvcl_held_request_t *request)
{
    kvcl_list_del(&request->link);
    free(request->members.buf);
    free(request);
}

void kvcl_held_withdraw(kvcl_list_t *held, const kvcl_peer_t *peer, uint64_t op)
{
    kvcl_held_request_t *request, *next;

    kvcl_list_foreach_safe (request, next, held, kvcl_held_request_t, link) {
        if ((request->peer == peer) && (request->op == op)) {
            kvcl_held_drop(request);
            return;
        }
    }
}

void kvcl_held_drop_all(kvcl_list_t *held, const kvcl_peer_t *peer)
{
    kvcl_held_request_t *request, *next;

    kvcl_list_foreach_safe (request, next, held, kvcl_held_request_t, link) {
        if ((peer == NULL) || (request->peer == peer)) {
            kvcl_held_drop(request);
        }
    }
}
