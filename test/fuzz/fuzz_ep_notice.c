/*
 * Notices of a step of experts, from a hostile rank: whatever is accepted gets places inside the inbox, no place twice,
 * and the ranges that are told describe just these places. Several ranks send in turn.
 */
#include "config.h"

#include "ep/ep_step.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { RANKS = 3, LOCAL = 4, TOKENS = 5, TOP_K = 3, ROWS = RANKS * TOKENS };

static void need(int cond)
{
    if (!cond) {
        abort();
    }
}

static void check_places(const kvcl_ep_inbox_t *inbox, const kvcl_ep_dims_t *dims, uint32_t rank, uint8_t *taken)
{
    const uint32_t *blocks = kvcl_ep_inbox_blocks(inbox, dims, rank);
    uint32_t       i, e, n = 0;
    int64_t        range;

    need(inbox->n_from[rank] <= dims->most);
    for (i = 0; i < inbox->n_from[rank]; ++i) {
        need((blocks[i] < LOCAL * ROWS) && (taken[blocks[i]] == 0));
        taken[blocks[i]] = 1;
    }
    for (e = 0; e < LOCAL; ++e) {
        range = inbox->ranges[(e * RANKS) + rank];
        need(((uint32_t)range <= TOKENS) && ((range >> 32) + (uint32_t)range <= inbox->counts[e]));
        n += (uint32_t)range;
    }
    need(n == inbox->n_from[rank]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    kvcl_ep_open_params_t p              = KVCL_EP_OPEN_PARAMS_INIT;
    uint8_t               taken[LOCAL * ROWS] = {0};
    uint32_t              counts[LOCAL], rank;
    kvcl_ep_notice_t      notice;
    kvcl_ep_dims_t        dims;
    kvcl_ep_inbox_t       inbox;
    size_t                len;
    char                  *exact;

    p.slots      = RANKS * LOCAL;
    p.max_tokens = TOKENS;
    p.top_k      = TOP_K;
    p.hidden     = 8;
    need((kvcl_ep_dims_take(&p, RANKS, 1, &dims) == KVCL_OK) && (kvcl_ep_inbox_init(&inbox, &dims) == KVCL_OK));
    for (rank = 0; (rank < RANKS) && (size != 0); ++rank) {
        len = (data[0] < 200) ? kvcl_ep_notice_bytes(&dims) : data[0] % 64u; /* mostly the right length */
        ++data;
        --size;
        len   = (len < size) ? len : size;
        exact = malloc(len + 1);
        need(exact != NULL);
        memcpy(exact, data, len);
        if (len >= sizeof(notice)) { /* past the first comparisons, half of the time */
            memcpy(&notice, exact, sizeof(notice));
            if ((notice.rows & 1) != 0) {
                notice.magic   = KVCL_EP_MAGIC;
                notice.version = KVCL_EP_VERSION;
                notice.local   = LOCAL;
                notice.rows    = (notice.rows >> 8) % (TOKENS * TOP_K + 2);
                memcpy(exact, &notice, sizeof(notice));
            }
        }
        if (kvcl_ep_notice_read(exact, len, &dims, &notice, counts) == KVCL_OK) {
            kvcl_ep_inbox_place(&inbox, &dims, rank, counts);
            need(notice.rows == inbox.n_from[rank]);
            check_places(&inbox, &dims, rank, taken);
        }
        free(exact);
        data += len;
        size -= len;
    }
    kvcl_ep_inbox_fini(&inbox);
    return 0;
}
