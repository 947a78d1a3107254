/*
 * Messages of engines and of Mooncake (kvcl_sched_index_feed). Owns nothing. Locks: takes the index's.
 *
 * A message's number counts as seen whatever it contains. All its bytes are walked over before the first event is
 * applied. A message or event that cannot be read is counted, and the source is DEGRADED: its view may be wrong.
 */
#include "config.h"

#include "sched/events/ev_apply.h"
#include "sched/events/ev_json.h"

#include "base/error.h"
#include "handle/handle.h"

#include <stdlib.h>
#include <string.h>

#define END_NUMBER UINT64_MAX

typedef struct message {
    uint64_t      number;
    bool          numbered; /* otherwise its events are, by event_id */
    bool          replayed;
    const uint8_t *payload;
    size_t        len;
} message_t;

static kvcl_status_t unreadable(kvcl_idx_source_t *source, kvcl_status_t status)
{
    ++source->info.malformed;
    source->lossy = true;
    return status;
}

/* Mooncake's event_id, counted for each medium. @return whether to apply the event. */
static bool event_number(kvcl_sched_index_h index, kvcl_idx_source_t *source, const kvcl_ev_t *ev, uint32_t tiers)
{
    unsigned which = ((tiers & (tiers - 1)) != 0) ? KVCL_IDX_TIERS - 1u : (unsigned)__builtin_ctz(tiers);
    uint64_t next  = source->event_id[which];

    if (!ev->has_event_id || (ev->event_id == UINT64_MAX)) {
        return true;
    }
    if ((next != 0) && (ev->event_id < next)) {
        if (ev->event_id > 1) {
            ++source->info.repeated;
            return false;
        }
        kvcl_idx_begin_anew(index, source);
        ++source->info.restarts;
    } else if (ev->event_id > ((next != 0) ? next : 1)) {
        ++source->info.gaps;
        source->lossy = true;
    }
    source->event_id[which] = ev->event_id + 1;
    return true;
}

static void apply(kvcl_sched_index_h index, kvcl_idx_source_t *source, const message_t *message, const kvcl_ev_t *ev)
{
    uint32_t tiers = kvcl_ev_tiers(source, ev);
    bool     ok    = true;

    if (ev->kind == KVCL_EV_UNKNOWN) {
        ++source->info.unknown;
        return;
    }
    if ((tiers == 0) || !kvcl_ev_is_ours(source, ev)) {
        ++source->info.others;
        return;
    }
    if (!message->numbered && !event_number(index, source, ev, tiers)) {
        return;
    }
    if (ev->kind == KVCL_EV_CLEARED) {
        kvcl_idx_let_all_go(index, source, tiers);
        ++source->info.cleared;
        if (tiers == source->params.tiers) {
            kvcl_idx_sequence_cleared(source, message->numbered ? message->number : UINT64_MAX,
                                      message->replayed || !message->numbered);
        }
    } else if (ev->kind == KVCL_EV_STORED) {
        ok = kvcl_ev_stored(index, source, ev, tiers);
    } else {
        ok = kvcl_ev_removed(index, source, ev, tiers);
    }
    if (!ok) {
        (void)unreadable(source, KVCL_ERR_PROTOCOL);
    }
}

static kvcl_status_t apply_all(kvcl_sched_index_h index, kvcl_idx_source_t *source, const message_t *message,
                               kvcl_ev_batch_t *batch)
{
    const kvcl_sched_source_params_t *p = &source->params;
    uint64_t                         bad = source->info.malformed;
    kvcl_ev_t                        ev;

    ++source->info.messages;
    if (((p->flags & KVCL_SCHED_SOURCE_DP_RANK) != 0) && batch->has_dp_rank && (batch->dp_rank != p->dp_rank)) {
        source->info.others += batch->events.n;
        return KVCL_OK;
    }
    while (batch->events.n > 0) {
        if (kvcl_ev_next(&batch->events, &ev)) {
            apply(index, source, message, &ev);
        } else {
            (void)unreadable(source, KVCL_ERR_PROTOCOL);
        }
    }
    bad = source->info.malformed - bad;
    return (bad == 0) ? KVCL_OK
                      : kvcl_fail(KVCL_ERR_PROTOCOL, "source \"%s\": %llu events of message %llu cannot be read",
                                  p->name, (unsigned long long)bad, (unsigned long long)message->number);
}

/* JSON becomes MessagePack in the index's scratch. */
static kvcl_status_t from_json(kvcl_sched_index_h index, message_t *message)
{
    size_t        room = KVCL_EV_JSON_ROOM(message->len);
    uint8_t       *larger;
    kvcl_status_t status;

    if (index->text_cap < room) {
        larger = realloc(index->text, room);
        if (larger == NULL) {
            return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a message of %zu bytes", message->len);
        }
        index->text     = larger;
        index->text_cap = room;
    }
    status           = kvcl_ev_json(message->payload, message->len, index->text, &room);
    message->payload = index->text;
    message->len     = room;
    return status;
}

static kvcl_status_t read_message(kvcl_sched_index_h index, kvcl_idx_source_t *source, message_t *message)
{
    bool            json = (message->len > 0) && ((message->payload[0] == '{') || (message->payload[0] == '['));
    kvcl_ev_batch_t batch;
    kvcl_status_t   status = KVCL_OK;
    size_t          at;

    if (message->replayed && message->numbered && ((message->number == END_NUMBER) || (message->len == 0))) {
        kvcl_idx_sequence_end(source);
        return KVCL_OK;
    }
    if (message->numbered && (message->number == END_NUMBER)) {
        return unreadable(source, kvcl_fail(KVCL_ERR_PROTOCOL, "source \"%s\": the end of a replay in a live message",
                                            source->params.name));
    }
    if (message->numbered && !kvcl_idx_sequence(index, source, message->number, message->replayed)) {
        return KVCL_OK;
    }
    if (json && (source->params.feed == KVCL_SCHED_FEED_MOONCAKE)) {
        status = from_json(index, message);
    }
    if (status != KVCL_OK) {
        return unreadable(source, status);
    }
    if (!kvcl_ev_batch(message->payload, message->len, !message->numbered || json, &batch, &at)) {
        status = kvcl_fail(KVCL_ERR_PROTOCOL, "source \"%s\": message %llu of %zu bytes is no batch of events, at byte "
                           "%zu", source->params.name, (unsigned long long)message->number, message->len, at);
        return unreadable(source, status);
    }
    return apply_all(index, source, message, &batch);
}

static kvcl_status_t frames_take(const kvcl_idx_source_t *source, const kvcl_sched_frame_t *frames, size_t n,
                                 message_t *message)
{
    const uint8_t *number;
    unsigned      i;

    message->payload = frames[n - 1].data;
    message->len     = frames[n - 1].len;
    if (n == 1) {
        return (source->params.feed == KVCL_SCHED_FEED_MOONCAKE)
                   ? KVCL_OK
                   : kvcl_fail(KVCL_ERR_INVALID_PARAM, "source \"%s\": a message has a number and a payload; this is "
                               "one frame", source->params.name);
    }
    if (frames[n - 2].len != 8) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "source \"%s\": the frame before the payload has %zu bytes; a number "
                         "has 8", source->params.name, frames[n - 2].len);
    }
    number            = frames[n - 2].data;
    message->numbered = true;
    for (i = 0; i < 8; ++i) {
        message->number = message->number << 8 | number[i];
    }
    return KVCL_OK;
}

static kvcl_status_t feed_check(const kvcl_sched_frame_t *frames, size_t n, uint64_t flags)
{
    size_t i;

    if ((frames == NULL) || (n == 0) || ((flags & ~(uint64_t)KVCL_SCHED_REPLAYED) != 0)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_sched_index_feed: no frames, or flags 0x%llx are not known",
                         (unsigned long long)flags);
    }
    for (i = 0; i < n; ++i) {
        if ((frames[i].data == NULL) && (frames[i].len > 0)) {
            return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_sched_index_feed: frame %zu is NULL", i);
        }
    }
    return KVCL_OK;
}

kvcl_status_t kvcl_sched_index_feed(kvcl_sched_index_h index, uint32_t source, uint64_t flags,
                                    const kvcl_sched_frame_t *frames, size_t n, uint32_t *state_p)
{
    kvcl_status_t     status  = kvcl_handle_check(index, KVCL_KIND_SCHED_INDEX, "kvcl_sched_index_feed");
    message_t         message = {.replayed = (flags & KVCL_SCHED_REPLAYED) != 0};
    kvcl_idx_source_t *from;

    status = (status == KVCL_OK) ? feed_check(frames, n, flags) : status;
    if (status != KVCL_OK) {
        return status;
    }
    (void)pthread_mutex_lock(&index->lock);
    from = kvcl_idx_source(index, source);
    if (from == NULL) {
        status = KVCL_ERR_NOT_FOUND;
    } else if (!from->by_hash) {
        status = kvcl_fail(KVCL_ERR_INVALID_PARAM, "source \"%s\" is not an engine or Mooncake", from->params.name);
    } else {
        status = frames_take(from, frames, n, &message);
        status = (status == KVCL_OK) ? read_message(index, from, &message) : status;
        if (state_p != NULL) {
            *state_p = kvcl_idx_state(from);
        }
    }
    (void)pthread_mutex_unlock(&index->lock);
    return status;
}

kvcl_status_t kvcl_sched_index_replay(kvcl_sched_index_h index, uint32_t source, uint8_t request[8])
{
    kvcl_status_t     status = kvcl_handle_check(index, KVCL_KIND_SCHED_INDEX, "kvcl_sched_index_replay");
    kvcl_idx_source_t *from;
    unsigned          i;

    if (status != KVCL_OK) {
        return status;
    }
    if (request == NULL) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_sched_index_replay: request is NULL");
    }
    (void)pthread_mutex_lock(&index->lock);
    from = kvcl_idx_source(index, source);
    for (i = 0; (from != NULL) && (i < 8); ++i) {
        request[i] = (uint8_t)(from->next >> (56 - 8 * i));
    }
    (void)pthread_mutex_unlock(&index->lock);
    return (from != NULL) ? KVCL_OK : KVCL_ERR_NOT_FOUND;
}
