/*
 * Requests to connect that wait for an accept (held.h).
 *
 * Owns: the requests in a list, with their members. Invariants: at most REQUESTS_MAX are in a list, at most
 * REQUESTS_PER_PEER of one peer. Locks: the engine lock, everywhere.
 */
#include "config.h"
#include "join/held.h"

#include <stdlib.h>

enum { REQUESTS_MAX = 64, REQUESTS_PER_PEER = 4 };

kvcl_status_t kvcl_held_add(kvcl_list_t *held, kvcl_peer_t *peer, uint64_t op, uint32_t n, const void *data,
                            size_t len)
{
    unsigned            all = 0, of_peer = 0;
    kvcl_held_request_t *request;
    kvcl_status_t       status;

    kvcl_list_foreach (request, held, kvcl_held_request_t, link) {
        ++all;
        of_peer += (request->peer == peer) ? 1 : 0;
    }
    request = ((all < REQUESTS_MAX) && (of_peer < REQUESTS_PER_PEER)) ? calloc(1, sizeof(*request)) : NULL;
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
