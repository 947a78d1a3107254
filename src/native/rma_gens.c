/*
 * Reads of generation words (rma_gens.h).
 *
 * Owns: the spans and words of a kvcl_rma_gens_t. Invariant: each slot that was planned lies in exactly one span, and
 * no span reaches beyond the lowest and the highest of them. No locks.
 */
#include "config.h"
#include "native/rma_gens.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>

static int compare(const void *a, const void *b)
{
    uint32_t x, y;

    memcpy(&x, a, sizeof(x));
    memcpy(&y, b, sizeof(y));
    return (x > y) - (x < y);
}

/* The spans of sorted slots. Returns how many words they have. */
static size_t make_spans(const uint32_t *slots, size_t n, kvcl_rma_gens_t *gens)
{
    kvcl_rma_span_t *span = gens->spans;
    size_t          words = 1, i;

    *span = (kvcl_rma_span_t){.first = slots[0], .n = 1};
    for (i = 1; i < n; ++i) {
        uint32_t last = span->first + span->n - 1;
        uint32_t more = slots[i] - last;
        if ((more <= KVCL_RMA_GENS_GAP + 1) && (more <= KVCL_RMA_GENS_SPAN - span->n)) {
            span->n += more;
            words   += more;
        } else {
            *++span = (kvcl_rma_span_t){.first = slots[i], .n = 1, .at = words};
            ++words;
        }
    }
    gens->n_spans = (size_t)(span - gens->spans) + 1;
    return words;
}

kvcl_status_t kvcl_rma_gens_plan(const uint32_t *slots, size_t n, kvcl_rma_gens_t *gens)
{
    uint32_t *sorted = malloc(n * sizeof(*sorted));

    gens->spans = malloc(n * sizeof(*gens->spans));
    if ((sorted != NULL) && (gens->spans != NULL)) {
        memcpy(sorted, slots, n * sizeof(*sorted));
        qsort(sorted, n, sizeof(*sorted), compare);
        gens->words = calloc(make_spans(sorted, n, gens), sizeof(*gens->words));
    }
    free(sorted);
    if (gens->words == NULL) {
        kvcl_rma_gens_clear(gens);
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for %zu generations", n);
    }
    return KVCL_OK;
}

uint32_t kvcl_rma_gens_word(const kvcl_rma_gens_t *gens, uint32_t slot)
{
    size_t low = 0, high = gens->n_spans, mid;

    while (high - low > 1) {
        mid = low + ((high - low) / 2);
        if (gens->spans[mid].first <= slot) {
            low = mid;
        } else {
            high = mid;
        }
    }
    return gens->words[gens->spans[low].at + (slot - gens->spans[low].first)];
}

void kvcl_rma_gens_clear(kvcl_rma_gens_t *gens)
{
    free(gens->spans);
    free(gens->words);
    memset(gens, 0, sizeof(*gens));
}
