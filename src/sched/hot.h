/*
 * How popular prefixes are: for some depths of each prompt (1 to 8 blocks, then four an octave) the hits of its first
 * blocks, which halve every minute, and the copies made of them of late. A table of a fixed size, four places for a
 * prefix; the least popular one gives way, so that no stream of keys can take more. Pure.
 */
#ifndef KVCL_SCHED_HOT_H
#define KVCL_SCHED_HOT_H

#include <kvcl/kvcl_key.h>

#include <stdint.h>

enum { KVCL_HOT_ENTRIES = 8192, KVCL_HOT_WAYS = 4, KVCL_HOT_DEPTHS = 64 };

typedef struct kvcl_hot_entry {
    uint64_t key;    /* of the prefix's last block; 0: free */
    double   hits;   /* at `at` */
    double   copies; /* at `at` */
    double   at;
    double   wait;   /* no copies are planned before this */
} kvcl_hot_entry_t;

typedef struct kvcl_hot {
    kvcl_hot_entry_t *entry; /* [KVCL_HOT_ENTRIES] */
} kvcl_hot_t;

kvcl_status_t kvcl_hot_init(kvcl_hot_t *hot) KVCL_MUST_CHECK;
void          kvcl_hot_fini(kvcl_hot_t *hot);

/** The depths that are counted of a prompt of so many blocks. @return how many. */
uint32_t kvcl_hot_depths(uint32_t blocks, uint32_t depth[KVCL_HOT_DEPTHS]);

/** A request has these keys. */
void kvcl_hot_count(kvcl_hot_t *hot, const kvcl_key_t *keys, uint32_t blocks, double now_s);

/** The prefix that ends with a block; NULL: not known. */
kvcl_hot_entry_t *kvcl_hot_find(const kvcl_hot_t *hot, const kvcl_key_t *key);

/** Hits a second, and copies of the last minute or so. */
double kvcl_hot_rate(const kvcl_hot_entry_t *entry, double now_s);
double kvcl_hot_copies(const kvcl_hot_entry_t *entry, double now_s);

/** So many copies are being made, which takes until wait_s. */
void kvcl_hot_copied(kvcl_hot_entry_t *entry, double now_s, double copies, double wait_s);

#endif
