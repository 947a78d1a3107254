/*
 * The launcher's numbers of a job. They are kept from the first open on, because PMIx 4.2 drops the job's data when the
 * last PMIx_Finalize disconnects, and does not get it again when a later PMIx_Init connects. Any thread.
 */
#ifndef KVCL_BOOT_BOOT_PMIX_JOB_H
#define KVCL_BOOT_BOOT_PMIX_JOB_H

#include "pmix/pmix_api.h"

typedef struct kvcl_pmix_numbers {
    int           known;
    unsigned long size;
    unsigned long local_rank; /* KVCL_BOOT_RANKS_MAX: not known */
} kvcl_pmix_numbers_t;

/** Of the job of this process. */
pmix_status_t kvcl_pmix_numbers(const pmix_proc_t *self, kvcl_pmix_numbers_t *numbers);

#endif
