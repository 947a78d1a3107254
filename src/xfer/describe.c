/*
 * The sentences of describe.h. No state.
 */
#include "config.h"
#include "xfer/describe.h"
#include "core/comm.h"

#include <stdarg.h>
#include <stdio.h>

enum { IDS = 4 };

/* Append, cut at cap. */
__attribute__((format(printf, 4, 5))) static void add(char *buf, size_t cap, size_t *used, const char *fmt, ...)
{
    va_list ap;
    int     n;

    if (*used + 1 >= cap) {
        return;
    }
    va_start(ap, fmt);
    n = vsnprintf(buf + *used, cap - *used, fmt, ap);
    va_end(ap);
    *used = ((n > 0) && ((size_t)n < cap - *used)) ? *used + (size_t)n : cap - 1;
}

static void add_range(char *buf, size_t cap, size_t *used, const char *what, kvcl_range_t range)
{
    if (range.end != 0) {
        add(buf, cap, used, ", %s %u to %u", what, range.first, range.end - 1);
    }
}

const char *kvcl_describe_sel(const kvcl_sel_t *sel, char *buf, size_t cap)
{
    size_t used = 0, i;

    add(buf, cap, &used, "%zu block%s", sel->n_blocks, (sel->n_blocks == 1) ? "" : "s");
    for (i = 0; (sel->blocks != NULL) && (i < sel->n_blocks) && (i < IDS); ++i) {
        add(buf, cap, &used, "%s%u", (i == 0) ? " (" : ", ", sel->blocks[i]);
    }
    if ((sel->blocks != NULL) && (sel->n_blocks > 0)) {
        add(buf, cap, &used, "%s", (sel->n_blocks > IDS) ? ", ...)" : ")");
    }
    add_range(buf, cap, &used, "layers", sel->layers);
    add_range(buf, cap, &used, "heads", sel->heads);
    add_range(buf, cap, &used, "tokens", sel->tokens);
    return buf;
}

const char *kvcl_describe_peer(const kvcl_peer_t *peer, char *buf, size_t cap)
{
    if (peer != NULL) {
        return kvcl_comm_peer_name(peer, buf, cap);
    }
    snprintf(buf, cap, "any rank");
    return buf;
}

const char *kvcl_describe_transfer(const kvcl_transfer_words_t *words, char *buf, size_t cap)
{
    char   who[48], there[120], here[120];
    size_t used = 0;

    kvcl_describe_peer(words->peer, who, sizeof(who));
    kvcl_describe_sel(words->remote, there, sizeof(there));
    kvcl_describe_sel(words->local, here, sizeof(here));
    if (words->push) {
        add(buf, cap, &used, "kvcl_put of %s of \"%s\" into %s's cache \"%s\", %s", here, words->cache->name, who,
            words->name, there);
    } else {
        add(buf, cap, &used, "kvcl_get of %s of %s's cache \"%s\"", there, who, words->name);
        if (words->cache != NULL) {
            add(buf, cap, &used, " into %s of \"%s\"", here, words->cache->name);
        }
    }
    return buf;
}

void kvcl_describe_bytes(bool push, const kvcl_peer_t *peer, const kvcl_pieces_t *pieces, uint64_t bytes,
                         uint64_t offset, char *buf, size_t cap)
{
    const char *verb = push ? "put" : "get", *where = push ? "into" : "of";
    char       who[48];

    kvcl_assert_locked(peer->ctx);
    kvcl_describe_peer(peer, who, sizeof(who));
    if (pieces != NULL) {
        snprintf(buf, cap, "kvcl_%s_vec of %zu pieces, %llu bytes, %s memory of %s", verb, pieces->given,
                 (unsigned long long)bytes, where, who);
    } else {
        snprintf(buf, cap, "kvcl_%s_bytes of %llu bytes at %llu %s memory of %s", verb, (unsigned long long)bytes,
                 (unsigned long long)offset, where, who);
    }
}

bool kvcl_explain_transfer(const kvcl_transfer_words_t *words, kvcl_status_t status, char *buf, size_t cap)
{
    char who[48];

    kvcl_describe_peer(words->peer, who, sizeof(who));
    switch (status) {
    case KVCL_ERR_NOT_REGISTERED:
        snprintf(buf, cap, "%s has no cache \"%s\": create it there before, or name another in params.remote_cache",
                 who, words->name);
        return true;
    case KVCL_ERR_STALE:
        snprintf(buf, cap, "%s destroyed its cache \"%s\" meanwhile: the bytes received are not valid", who,
                 words->name);
        return true;
    case KVCL_ERR_OUT_OF_RANGE:
        snprintf(buf, cap, "a block, layer or head is out of range in %s's cache \"%s\"", who, words->name);
        return true;
    case KVCL_ERR_TRUNCATED:
        snprintf(buf, cap, "the selection of %s's cache \"%s\" has another number of bytes than the local one", who,
                 words->name);
        return true;
    default:
        return false;
    }
}

bool kvcl_explain_access(const kvcl_peer_t *peer, kvcl_status_t status, char *buf, size_t cap)
{
    char who[48];

    kvcl_describe_peer(peer, who, sizeof(who));
    switch (status) {
    case KVCL_ERR_ACCESS:
    case KVCL_ERR_STALE:
        snprintf(buf, cap, "%s revoked or freed the memory, or did not export it with that right: import a new export",
                 who);
        return true;
    case KVCL_ERR_OUT_OF_RANGE:
        snprintf(buf, cap, "the bytes, or the signal's counter, lie beyond the memory of %s", who);
        return true;
    case KVCL_ERR_UNSUPPORTED:
        snprintf(buf, cap, "device memory of %s holds no signals: use host memory for params.signal_mem", who);
        return true;
    default:
        return false;
    }
}
