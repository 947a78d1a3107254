/*
 * What the ranks of a run share (conform_shared.c): a mapping of one machine, or a file that machines share.
 */
#ifndef KVCL_TEST_CONFORM_SHARED_H
#define KVCL_TEST_CONFORM_SHARED_H

#include "conform.h"

#include <stdatomic.h>

enum { CF_KEYS_MAX = 16, CF_KEY_MAX = 64, CF_VAL_MAX = 8192, CF_WORDS = 64 };

/* What a rank has put into boot's store. It alone writes. */
typedef struct cf_entries {
    _Atomic unsigned n;
    struct {
        char   key[CF_KEY_MAX];
        size_t len;
        char   val[CF_VAL_MAX];
    } of[CF_KEYS_MAX];
} cf_entries_t;

struct cf_shared {
    _Atomic uint64_t opened;             /* the number of the run, by the first machine */
    _Atomic uint64_t left[CF_RANKS_MAX]; /* the run that each machine has left */
    /* Zero when a run begins. */
    _Atomic uint64_t arrived[CF_RANKS_MAX]; /* the fence: how often each rank has reached it */
    _Atomic uint64_t changes;               /* of the running case: a rank has made progress */
    _Atomic int      at;                    /* its index */
    _Atomic int      passed;
    _Atomic int      failed;                /* a rank has: the other machines end theirs */
    _Atomic int      signal[CF_RANKS_MAX];  /* to be sent to this rank by its machine */
    uint64_t         seed;
    size_t           blob_len[CF_RANKS_MAX];
    char             blob[CF_RANKS_MAX][CF_BLOB_MAX];
    pid_t            pid[CF_RANKS_MAX];
    _Atomic uint64_t words[CF_WORDS];
    cf_entries_t     entries[CF_RANKS_MAX];
};

/* Machines that share a file; rank r is on machine r % n. n 1, file NULL: this one alone. */
typedef struct cf_hosts {
    int        me, n;
    const char *file;
} cf_hosts_t;

/* A run begins on all machines; seed: the first one's counts. */
cf_shared_t *cf_shared_open(const cf_hosts_t *hosts, uint64_t seed);
void        cf_shared_close(const cf_hosts_t *hosts, cf_shared_t *sh);
/* Boot's store (kvcl_oob_t); arg is the cf_t. */
kvcl_status_t cf_store_set(void *arg, const char *key, const void *val, size_t len);
kvcl_status_t cf_store_get(void *arg, const char *key, void *buf, size_t cap, size_t *len_p);
kvcl_status_t cf_store_fence(void *arg);

#endif
