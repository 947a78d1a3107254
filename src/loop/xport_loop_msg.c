/*
 * Messages over the loop transport: put into the inbox of the receiver's context, delivered when that progresses.
 *
 * Owns: the messages in every inbox, and the sends that are to be reported as done. Invariants: a message is copied
 * before the lock is taken, and belongs to the inbox that it is linked in; a context that is armed is woken by the next
 * message. Locks: kvcl_loop.lock, never held while a callback runs or a message is copied.
 */
#include "config.h"
#include "loop/xport_loop_impl.h"

#include "base/error.h"
#include "weave/pieces.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct kvcl_loop_reply {
    kvcl_xport_reply_t super;
    uint64_t           to;
} loop_reply_t;

/* Lock held. A message has passed those that are held (by 1), or the receiver progresses (by 0): the ones that have
 * waited enough go behind it. */
static void release_held(loop_xport_t *to, unsigned by)
{
    loop_msg_t *msg, *next;

    kvcl_list_foreach_safe(msg, next, &to->held, loop_msg_t, link) {
        msg->behind -= (msg->behind > by) ? by : msg->behind;
        if ((msg->behind == 0) || (msg->after <= to->rounds)) {
            kvcl_list_del(&msg->link);
            msg->after = to->rounds;
            kvcl_list_add_tail(&to->inbox, &msg->link);
        }
    }
}

/* Lock held. Is it held, so that later ones overtake it? */
static bool hold(loop_xport_t *to, loop_msg_t *msg)
{
    msg->behind = msg->unordered ? (unsigned)kvcl_rand_below(&kvcl_loop.rnd, LOOP_OVERTAKES + 1) : 0;
    if (msg->behind == 0) {
        return false;
    }
    msg->after = to->rounds + LOOP_HOLD_ROUNDS;
    kvcl_list_add_tail(&to->held, &msg->link);
    return true;
}

/* Lock held. Takes the message. */
static void enqueue(loop_xport_t *to, loop_msg_t *msg)
{
    kvcl_list_t *pos = &to->inbox;
    uint64_t    skip;

    if (kvcl_loop_fault_hits(&kvcl_loop.faults.drop_nth)) {
        free(msg);
        return;
    }
    msg->after = to->rounds + kvcl_loop.faults.delay_progress;
    if (kvcl_loop.faults.reorder_seed != 0) {
        for (skip = kvcl_rand_below(&kvcl_loop.rnd, 8); (skip > 0) && (pos->prev != &to->inbox); --skip) {
            pos = pos->prev;
        }
    }
    if ((kvcl_loop.faults.overtake_seed == 0) || !hold(to, msg)) {
        kvcl_list_insert_before(pos, &msg->link);
        release_held(to, 1);
    }
    kvcl_loop_wake(to);
}

static loop_msg_t *make_msg(const void *hdr, size_t hdr_len, const kvcl_iov_t *iov, size_t n_iov)
{
    size_t     hdr_room = (hdr_len + 7) & ~(size_t)7;
    size_t     len      = 0;
    loop_msg_t *msg;
    char       *at;
    size_t     i;

    for (i = 0; i < n_iov; ++i) {
        len += iov[i].len;
    }
    msg = kvcl_loop_alloc(sizeof(*msg) + hdr_room + len);
    if (msg == NULL) {
        return NULL;
    }
    msg->hdr_len = hdr_len;
    msg->len     = len;
    at           = (char *)msg->bytes;
    kvcl_copy_bytes(at, hdr, hdr_len);
    at += hdr_room;
    for (i = 0; i < n_iov; ++i) {
        kvcl_copy_bytes(at, iov[i].buf, iov[i].len);
        at += iov[i].len;
    }
    return msg;
}

static kvcl_status_t post(uint64_t target, loop_msg_t *msg)
{
    loop_xport_t *to;

    pthread_mutex_lock(&kvcl_loop.lock);
    to = kvcl_loop_find(target);
    if (to != NULL) {
        enqueue(to, msg);
    }
    pthread_mutex_unlock(&kvcl_loop.lock);
    if (to == NULL) {
        free(msg);
        return kvcl_fail(KVCL_ERR_RANK_FAILED, "loop: the peer's context is closed");
    }
    return KVCL_OK;
}

/* Only the owner's engine touches the done list, under the engine lock. */
kvcl_status_t kvcl_loop_complete_later(loop_xport_t *x, loop_ep_t *ep, kvcl_xport_send_t *send, kvcl_status_t status)
{
    send->status  = status;
    send->priv    = ep;
    send->next    = NULL;
    *x->done_tail = send;
    x->done_tail  = &send->next;
    return KVCL_INPROGRESS;
}

static void lose(loop_xport_t *x, loop_ep_t *ep)
{
    ep->super.lost = true;
    if (!ep->broken) {
        ep->broken = true;
        kvcl_list_add_tail(&x->failed, &ep->failed_link);
        kvcl_loop_wake(x);
    }
}

/* Does the link of this endpoint fail with this message, or has it failed? */
static bool is_lost(loop_xport_t *x, loop_ep_t *ep, unsigned flags, bool *now_p)
{
    loop_xport_t *to;
    loop_ep_t    *back;
    bool         lost;

    pthread_mutex_lock(&kvcl_loop.lock);
    *now_p = !ep->super.lost && ((flags & KVCL_XPORT_REPLY) == 0) &&
             kvcl_loop_fault_hits(&kvcl_loop.faults.lose_link_nth);
    to     = (*now_p && kvcl_loop.faults.lose_both) ? kvcl_loop_find(ep->target) : NULL;
    if (*now_p) {
        lose(x, ep);
    }
    if (to != NULL) {
        kvcl_list_foreach(back, &to->eps, loop_ep_t, link) {
            if (back->target == x->id) {
                lose(to, back);
            }
        }
    }
    lost = ep->super.lost;
    pthread_mutex_unlock(&kvcl_loop.lock);
    return lost;
}

kvcl_status_t kvcl_loop_am_send(kvcl_xport_ep_t *super, const void *hdr, size_t hdr_len, const kvcl_iov_t *iov,
                                size_t n_iov, unsigned flags, kvcl_xport_send_t *send)
{
    loop_ep_t     *ep = kvcl_container_of(super, loop_ep_t, super);
    loop_xport_t  *x  = kvcl_container_of(super->xport, loop_xport_t, super);
    loop_msg_t    *msg;
    size_t        len;
    kvcl_status_t status;
    bool          later, now;

    if (hdr_len > LOOP_MAX_HDR) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "loop: a header of %zu bytes, at most %d", hdr_len, LOOP_MAX_HDR);
    }
    msg = make_msg(hdr, hdr_len, iov, n_iov);
    if (msg == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "loop: no memory for a message");
    }
    len = msg->len;
    if ((send == NULL) && (len > LOOP_INLINE_BYTES)) {
        free(msg);
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "loop: a copying send of %zu bytes, at most %d", len,
                         LOOP_INLINE_BYTES);
    }
    if (is_lost(x, ep, flags, &now)) {
        free(msg);
        return now ? KVCL_OK : kvcl_fail(KVCL_ERR_RANK_FAILED, "loop: the link is lost");
    }
    msg->from      = (flags & KVCL_XPORT_REPLY) ? x->id : 0;
    msg->unordered = (flags & KVCL_XPORT_UNORDERED) != 0;
    status         = post(ep->target, msg);
    if ((status != KVCL_OK) || (send == NULL)) {
        return status;
    }
    later = kvcl_loop.faults.async_sends || (len > LOOP_INLINE_BYTES);
    return later ? kvcl_loop_complete_later(x, NULL, send, KVCL_OK) : KVCL_OK;
}

kvcl_status_t kvcl_loop_reply(kvcl_xport_reply_t *reply, const void *hdr, size_t hdr_len)
{
    loop_reply_t *to = kvcl_container_of(reply, loop_reply_t, super);
    loop_msg_t   *msg;

    if (to->to == 0) {
        return kvcl_fail(KVCL_ERR_UNSUPPORTED, "loop: the message was sent without a reply path");
    }
    msg = (hdr_len <= LOOP_MAX_HDR) ? make_msg(hdr, hdr_len, NULL, 0) : NULL;
    return (msg == NULL) ? kvcl_fail(KVCL_ERR_NO_MEMORY, "loop: no memory for a reply") : post(to->to, msg);
}

static unsigned deliver_done(loop_xport_t *x)
{
    kvcl_xport_send_t *send = x->done_head;
    kvcl_xport_send_t *next;
    unsigned          n;

    x->done_head = NULL;
    x->done_tail = &x->done_head;
    for (n = 0; send != NULL; ++n, send = next) {
        next = send->next;
        send->done(send, send->status);
    }
    return n;
}

/* The next message that may be delivered now, unlinked, or NULL. */
static loop_msg_t *next_msg(loop_xport_t *x)
{
    loop_msg_t  *msg = NULL;
    kvcl_list_t *link;

    pthread_mutex_lock(&kvcl_loop.lock);
    link = kvcl_list_first(&x->inbox);
    if (link != NULL) {
        msg = kvcl_container_of(link, loop_msg_t, link);
        if (msg->after > x->rounds) {
            msg = NULL;
        } else {
            kvcl_list_del(link);
        }
    }
    pthread_mutex_unlock(&kvcl_loop.lock);
    return msg;
}

static unsigned deliver_failed(loop_xport_t *x)
{
    kvcl_list_t *link;
    unsigned    n = 0;

    for (;;) {
        pthread_mutex_lock(&kvcl_loop.lock);
        link = kvcl_list_pop(&x->failed);
        pthread_mutex_unlock(&kvcl_loop.lock);
        if (link == NULL) {
            return n;
        }
        x->cbs.ep_failed(x->cbs.arg, &kvcl_container_of(link, loop_ep_t, failed_link)->super, KVCL_ERR_RANK_FAILED);
        ++n;
    }
}

unsigned kvcl_loop_progress(kvcl_xport_t *xport)
{
    loop_xport_t *x = kvcl_container_of(xport, loop_xport_t, super);
    loop_reply_t reply;
    loop_msg_t   *msg;
    unsigned     n;
    char         *bytes;
    int          i;

    kvcl_loop_rma_progress(x);
    n = deliver_done(x);
    pthread_mutex_lock(&kvcl_loop.lock);
    ++x->rounds;
    release_held(x, 0);
    pthread_mutex_unlock(&kvcl_loop.lock);
    for (i = 0; (i < LOOP_BURST) && ((msg = next_msg(x)) != NULL); ++i, ++n) {
        reply    = (loop_reply_t){.super = {xport}, .to = msg->from};
        bytes    = (char *)msg->bytes;
        x->cbs.recv(x->cbs.arg, bytes, msg->hdr_len, bytes + ((msg->hdr_len + 7) & ~(size_t)7), msg->len,
                    &reply.super);
        free(msg);
    }
    return n + deliver_failed(x);
}

kvcl_status_t kvcl_loop_arm(kvcl_xport_t *xport)
{
    loop_xport_t *x = kvcl_container_of(xport, loop_xport_t, super);
    uint64_t     count;
    bool         armed;

    pthread_mutex_lock(&kvcl_loop.lock);
    if (x->signaled) {
        (void)!read(x->efd, &count, sizeof(count));
        x->signaled = false;
    }
    armed    = kvcl_list_is_empty(&x->inbox) && kvcl_list_is_empty(&x->held) && kvcl_list_is_empty(&x->failed) &&
               (x->done_head == NULL) && !x->broken;
    x->armed = armed;
    pthread_mutex_unlock(&kvcl_loop.lock);
    return armed ? KVCL_OK : KVCL_ERR_BUSY;
}

bool kvcl_loop_outstanding(kvcl_xport_t *xport)
{
    return kvcl_container_of(xport, loop_xport_t, super)->done_head != NULL;
}
