/*
 * The launcher's numbers of a job (boot_pmix_job.h). Owns: known, read at the first open. Locks: known_lock, a leaf.
 */
#include "config.h"
#ifndef KVCL_HAVE_PMIX
#define KVCL_HAVE_PMIX 0
#endif
#if KVCL_HAVE_PMIX
#include "boot/boot_pmix_job.h"
#include "boot/boot.h"

#include <pthread.h>
#include <stdlib.h>

static kvcl_pmix_numbers_t known;
static pthread_mutex_t     known_lock = PTHREAD_MUTEX_INITIALIZER;

/* A number that the launcher knows about the job or this process. */
static pmix_status_t get_number(const pmix_proc_t *proc, const char *key, unsigned long *number_p)
{
    pmix_value_t *value = NULL;
    pmix_info_t   info;
    pmix_status_t rc;

    kvcl_pmix_yes(&info, PMIX_OPTIONAL); /* only what is here: never ask over the network */
    rc = kvcl_pmix.PMIx_Get(proc, key, &info, 1, &value);
    if (rc != PMIX_SUCCESS) {
        return rc;
    }
    switch (value->type) {
    case PMIX_UINT16:
        *number_p = value->data.uint16;
        break;
    case PMIX_UINT32:
        *number_p = value->data.uint32;
        break;
    default:
        rc = PMIX_ERR_TYPE_MISMATCH;
        break;
    }
    free(value); /* numbers own no memory */
    return rc;
}

pmix_status_t kvcl_pmix_numbers(const pmix_proc_t *self, kvcl_pmix_numbers_t *numbers)
{
    pmix_status_t rc = PMIX_SUCCESS;
    pmix_proc_t   job;

    pthread_mutex_lock(&known_lock);
    if (!known.known) {
        kvcl_pmix_proc(&job, self->nspace, PMIX_RANK_WILDCARD);
        rc = get_number(&job, PMIX_JOB_SIZE, &known.size);
        if ((rc == PMIX_SUCCESS) && (get_number(self, PMIX_LOCAL_RANK, &known.local_rank) != PMIX_SUCCESS)) {
            known.local_rank = KVCL_BOOT_RANKS_MAX;
        }
        known.known = (rc == PMIX_SUCCESS);
    }
    *numbers = known;
    pthread_mutex_unlock(&known_lock);
    return rc;
}
#else
typedef int kvcl_boot_pmix_job_is_empty_t; /* ISO C wants a declaration */
#endif
