/*
 * The tier's inside: what tier.c, tier_blocks.c, tier_read.c and tier_file.c share.
 *
 * Lock: tier->lock guards all of it; kvcl_tio's own locks come after it. Callbacks that are due are collected under it
 * and called without.
 */
#ifndef KVCL_TIER_IMPL_H
#define KVCL_TIER_IMPL_H

#include "tier/tier.h"

#include <pthread.h>

enum {
    KVCL_TIER_PIECE     = 1024 * 1024, /* largest piece of a read */
    KVCL_TIER_BOUNCE    = KVCL_TIER_PIECE + 2 * KVCL_SEG_ALIGN,
    KVCL_TIER_OPS       = 128,         /* writes in flight; reads are beside them */
    KVCL_TIER_READS_MAX = 512,
    KVCL_TIER_STRIKES   = 16           /* reads refused in a row, until it holds nothing */
};

/* ---- the file (tier_file.c) ---- */

typedef struct kvcl_tier_file {
    int              fd;
    bool             direct;
    kvcl_seg_super_t super;
} kvcl_tier_file_t;

kvcl_status_t kvcl_tier_file_open(const kvcl_tier_params_t *params, kvcl_tier_file_t *file) KVCL_MUST_CHECK;
void          kvcl_tier_file_close(kvcl_tier_file_t *file);
/** A kvcl_seglog_read_t over a kvcl_tier_file_t. */
kvcl_status_t kvcl_tier_file_read(void *file, uint64_t off, uint8_t *buf, size_t len) KVCL_MUST_CHECK;

/* ---- the tier ---- */

typedef struct kvcl_tier_waiter {
    kvcl_list_t    link;
    kvcl_tier_cb_t cb;
    void           *arg;
    uint64_t       ticket;
} kvcl_tier_waiter_t;

/* A write or sync of the log's. */
typedef struct kvcl_tier_write {
    kvcl_tio_op_t    op;
    kvcl_list_t      link; /* free */
    kvcl_seglog_io_t io;
    kvcl_tier_t      *tier;
} kvcl_tier_write_t;

struct kvcl_tier {
    pthread_mutex_t        lock;
    pthread_cond_t         idle; /* for close */
    char                   *path;
    kvcl_tier_file_t       file;
    kvcl_seglog_t          log;
    kvcl_tio_t             *io;
    uint8_t                *slab; /* chunks, then bounce buffers */
    size_t                 slab_len;
    kvcl_tier_write_t      writes[KVCL_TIER_OPS];
    kvcl_list_t            free_writes;
    unsigned               n_writes; /* in flight */
    kvcl_list_t            appends, flushes; /* kvcl_tier_waiter_t, by ticket */
    kvcl_tier_evicted_cb_t gone;
    void                   *arg;
    /* Reading. */
    uint8_t             **bounces; /* free ones */
    unsigned            n_bounces;
    kvcl_list_t         starved;   /* pieces that wait for a bounce buffer */
    unsigned            n_reads;
    unsigned            strikes;
    bool                blind;     /* reads keep failing */
    bool                closing;
    /* The file's key. */
    bool                keyed;
    kvcl_tier_key_t     key;
    uint8_t             life[8];   /* random: the first half of every nonce */
    _Atomic uint64_t    n_nonces;  /* the second half */
    kvcl_tier_stats_t   stats;
};

/** A fresh nonce for a block's tail. */
void kvcl_tier_nonce(kvcl_tier_t *tier, uint8_t nonce[KVCL_TIER_NONCE]);

/** Lock held at the call, not at the return: issues the next writes, then runs the callbacks that are due. */
void kvcl_tier_go_on(kvcl_tier_t *tier);

/**
 * A short transfer continues where it stopped. @return 1: it was submitted again; 0: all was moved; else -errno.
 */
int64_t kvcl_tier_continue(kvcl_tier_t *tier, kvcl_tio_op_t *op, int64_t result);

#endif
