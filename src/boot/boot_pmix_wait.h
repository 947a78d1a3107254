/*
 * Waiting for an answer of PMIx with a deadline, and the sentence of a failed call.
 */
#ifndef KVCL_BOOT_PMIX_WAIT_H
#define KVCL_BOOT_PMIX_WAIT_H

#include "pmix/pmix_api.h"

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

typedef struct kvcl_pmix_wait {
    pthread_mutex_t lock;
    pthread_cond_t  cond;
    int             refs;
    int             done;
    pmix_status_t   status;
    void           *bytes; /* of a get: the value, malloc'ed */
    size_t          len;
} kvcl_pmix_wait_t;

/** @return the KVCL status of a PMIx status; the sentence says what failed. */
kvcl_status_t    kvcl_pmix_fail(pmix_status_t rc, const char *what);

/** With two references, the caller's and the callback's. NULL: no memory, with a sentence. */
kvcl_pmix_wait_t *kvcl_pmix_wait_new(void);
/** Drop references: 2 where PMIx refused the call and there is no callback. */
void             kvcl_pmix_wait_put(kvcl_pmix_wait_t *wait, int refs);
/** Waits for the callback or the deadline. The caller keeps its reference. */
kvcl_status_t    kvcl_pmix_wait_until(kvcl_pmix_wait_t *wait, uint64_t deadline_ns, const char *what) KVCL_MUST_CHECK;

/* The callbacks of PMIx_Fence_nb and PMIx_Get_nb; arg: the wait. */
void kvcl_pmix_on_fence(pmix_status_t rc, void *arg);
void kvcl_pmix_on_value(pmix_status_t rc, pmix_value_t *value, void *arg);

#endif
