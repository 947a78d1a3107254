/*
 * Lists of packed addresses (members.h).
 *
 * Owns: nothing. Invariant: a list from a peer is read only after all of it was compared with its length and count.
 * Locks: none.
 */
#include "config.h"
#include "join/members.h"
#include "base/error.h"
#include "wire/address.h"

#include <stdlib.h>
#include <string.h>

kvcl_status_t kvcl_members_next(const kvcl_members_t *members, size_t *at_p, const void **addr_p, size_t *len_p)
{
    const char *buf = members->buf;
    uint32_t   len;

    if (members->len - *at_p < sizeof(len)) {
        return kvcl_fail(KVCL_ERR_PROTOCOL, "a list of addresses is cut off");
    }
    memcpy(&len, buf + *at_p, sizeof(len));
    if ((len == 0) || (len > members->len - *at_p - sizeof(len))) {
        return kvcl_fail(KVCL_ERR_PROTOCOL, "a list of addresses is cut off");
    }
    *addr_p = buf + *at_p + sizeof(len);
    *len_p  = len;
    *at_p  += sizeof(len) + len;
    return KVCL_OK;
}

/* n addresses and nothing else, the first of them the sender's own. */
static kvcl_status_t check_members(const kvcl_members_t *members, const kvcl_peer_t *peer)
{
    kvcl_status_t  status = KVCL_OK;
    kvcl_address_t address;
    const void     *addr = NULL;
    size_t         at = 0, len = 0;
    uint32_t       i;

    if ((members->n == 0) || (members->n > KVCL_MEMBERS_MAX)) {
        return kvcl_fail(KVCL_ERR_PROTOCOL, "a job of %u ranks", members->n);
    }
    for (i = 0; (status == KVCL_OK) && (i < members->n); ++i) {
        status = kvcl_members_next(members, &at, &addr, &len);
        if (status == KVCL_OK) {
            status = kvcl_address_unpack(addr, len, &address);
        }
        if ((status == KVCL_OK) && (i == 0) && (memcmp(address.uuid, peer->uuid, sizeof(address.uuid)) != 0)) {
            status = kvcl_fail(KVCL_ERR_PROTOCOL, "the sender is not rank 0 of its list");
        }
    }
    if ((status == KVCL_OK) && (at != members->len)) {
        status = kvcl_fail(KVCL_ERR_PROTOCOL, "a list of addresses is too long");
    }
    return status;
}

kvcl_status_t kvcl_members_take(uint32_t n, const void *data, size_t len, const kvcl_peer_t *peer,
                                kvcl_members_t *members)
{
    kvcl_members_t lent = {(void *)(uintptr_t)data, len, n};
    kvcl_status_t  status;

    status = (len > KVCL_MEMBERS_BYTES_MAX) ? kvcl_fail(KVCL_ERR_PROTOCOL, "%zu bytes of addresses", len)
                                            : check_members(&lent, peer);
    if (status != KVCL_OK) {
        return status;
    }
    lent.buf = malloc(len);
    if (lent.buf == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for %u addresses", n);
    }
    memcpy(lent.buf, data, len);
    *members = lent;
    return KVCL_OK;
}
