/*
 * A ring in order of leaving, whose entries are chained by bucket (ghosts.h). Invariant: an entry is in the chain of
 * its tag's bucket, or its `next` names itself. Lock: the caller's.
 */
#include "config.h"

#include "policy/ghosts.h"

#define NONE UINT32_MAX

static size_t n_buckets(uint32_t n)
{
    size_t buckets = 1;

    while (buckets < n) {
        buckets *= 2;
    }
    return buckets;
}

size_t kvcl_ghosts_bytes(uint32_t n)
{
    return ((size_t)n * sizeof(kvcl_ghost_t)) + (n_buckets(n) * sizeof(uint32_t));
}

void kvcl_ghosts_init(kvcl_ghosts_t *ghosts, uint32_t n, void *mem)
{
    const size_t buckets = n_buckets(n);
    size_t       i;

    ghosts->ring    = mem;
    ghosts->buckets = (uint32_t *)(ghosts->ring + n);
    ghosts->n       = n;
    ghosts->mask    = (uint32_t)(buckets - 1);
    ghosts->at      = 0;
    for (i = 0; i < n; ++i) {
        ghosts->ring[i].next = (uint32_t)i;
    }
    for (i = 0; i < buckets; ++i) {
        ghosts->buckets[i] = NONE;
    }
}

/* Out of its chain. `from` is what names it: the bucket, or the entry before it. */
static void forget(kvcl_ghosts_t *ghosts, uint32_t *from)
{
    const uint32_t i = *from;

    *from = ghosts->ring[i].next;
    ghosts->ring[i].next = i;
}

void kvcl_ghosts_remember(kvcl_ghosts_t *ghosts, uint32_t tag)
{
    const uint32_t i = ghosts->at;
    uint32_t       *from;

    if (ghosts->ring[i].next != i) {
        from = &ghosts->buckets[ghosts->ring[i].tag & ghosts->mask];
        while (*from != i) {
            from = &ghosts->ring[*from].next;
        }
        forget(ghosts, from);
    }
    ghosts->at      = (i + 1 == ghosts->n) ? 0 : i + 1;
    ghosts->ring[i] = (kvcl_ghost_t){.tag = tag, .next = ghosts->buckets[tag & ghosts->mask]};
    ghosts->buckets[tag & ghosts->mask] = i;
}

bool kvcl_ghosts_take(kvcl_ghosts_t *ghosts, uint32_t tag)
{
    uint32_t *from = &ghosts->buckets[tag & ghosts->mask];

    while ((*from != NONE) && (ghosts->ring[*from].tag != tag)) {
        from = &ghosts->ring[*from].next;
    }
    if (*from == NONE) {
        return false;
    }
    forget(ghosts, from);
    return true;
}
