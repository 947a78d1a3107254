/*
 * PMIx as a table of its functions, filled by dlopen("libpmix.so.2") when a rank first meets others by PMIx: the
 * library links no part of PMIx, so a program or a Python wheel starts where it is not installed. Only these functions
 * are called, and none of pmix.h's macros, which call others in each version of PMIx.
 */
#ifndef KVCL_PMIX_PMIX_API_H
#define KVCL_PMIX_PMIX_API_H

#include <kvcl/kvcl_status.h>

#include <pmix.h>

#define KVCL_PMIX_MAP(X)                                                                                               \
    X(PMIx_Init)                                                                                                       \
    X(PMIx_Finalize)                                                                                                   \
    X(PMIx_Put)                                                                                                        \
    X(PMIx_Commit)                                                                                                     \
    X(PMIx_Fence_nb)                                                                                                   \
    X(PMIx_Get)                                                                                                        \
    X(PMIx_Get_nb)                                                                                                     \
    X(PMIx_Error_string)

typedef struct kvcl_pmix_api {
#define KVCL_PMIX_MEMBER(_name) __typeof__(&_name) _name;
    KVCL_PMIX_MAP(KVCL_PMIX_MEMBER)
#undef KVCL_PMIX_MEMBER
} kvcl_pmix_api_t;

/** Fills kvcl_pmix; idempotent, any thread. @return KVCL_ERR_UNSUPPORTED: no libpmix.so.2, or too old a one. */
kvcl_status_t kvcl_pmix_load(void) KVCL_MUST_CHECK;

/** Constant once kvcl_pmix_load has succeeded. */
extern kvcl_pmix_api_t kvcl_pmix;

/** A process of a job, and the value true under a key; neither owns memory. */
void kvcl_pmix_proc(pmix_proc_t *proc, const char *nspace, pmix_rank_t rank);
void kvcl_pmix_yes(pmix_info_t *info, const char *key);

#endif
