/*
 * The functions of PMIx (pmix_api.h). The library stays loaded: its threads may run until the process ends. The table
 * is filled once, under a mutex, and constant from then on.
 *
 * A function that the process exports already is taken from there: of an MPI that has PMIx of its own, or of a test.
 */
#include "config.h"
#ifndef KVCL_HAVE_PMIX
#define KVCL_HAVE_PMIX 0
#endif
#if KVCL_HAVE_PMIX
#include "pmix/pmix_api.h"
#include "base/error.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const char library[] = "libpmix.so.2";

kvcl_pmix_api_t        kvcl_pmix;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool            loaded;

static void *look_up(void *handle, const char *name)
{
    void *symbol = dlsym(RTLD_DEFAULT, name);

    return (symbol != NULL) ? symbol : dlsym(handle, name);
}

/* Under the mutex. */
static kvcl_status_t fill(void *handle)
{
    const char *missing = NULL;

#define KVCL_PMIX_LOOK_UP(_name)                                                                                       \
    *(void **)&kvcl_pmix._name = look_up(handle, #_name);                                                              \
    missing                    = (kvcl_pmix._name == NULL) ? #_name : missing;
    KVCL_PMIX_MAP(KVCL_PMIX_LOOK_UP)
#undef KVCL_PMIX_LOOK_UP
    if (missing != NULL) {
        return kvcl_fail(KVCL_ERR_UNSUPPORTED, "%s has no %s: PMIx 3.0 or newer is needed", library, missing);
    }
    loaded = true;
    return KVCL_OK;
}

/* Where configure found PMIx counts if the loader's own paths have none. */
static void *open_library(void)
{
    void *handle = dlopen(library, RTLD_NOW);
    char path[512];

    if ((handle == NULL) && (KVCL_PMIX_LIBDIR[0] != '\0')) {
        snprintf(path, sizeof(path), "%s/%s", KVCL_PMIX_LIBDIR, library);
        handle = dlopen(path, RTLD_NOW);
    }
    return handle;
}

kvcl_status_t kvcl_pmix_load(void)
{
    kvcl_status_t status = KVCL_OK;
    void          *handle;

    pthread_mutex_lock(&lock);
    if (!loaded) {
        handle = open_library();
        status = (handle != NULL) ? fill(handle)
                                  : kvcl_fail(KVCL_ERR_UNSUPPORTED, "PMIx cannot be loaded: %s", dlerror());
    }
    pthread_mutex_unlock(&lock);
    return status;
}

void kvcl_pmix_proc(pmix_proc_t *proc, const char *nspace, pmix_rank_t rank)
{
    memset(proc, 0, sizeof(*proc));
    snprintf(proc->nspace, sizeof(proc->nspace), "%s", nspace);
    proc->rank = rank;
}

void kvcl_pmix_yes(pmix_info_t *info, const char *key)
{
    memset(info, 0, sizeof(*info));
    snprintf(info->key, sizeof(info->key), "%s", key);
    info->value.type      = PMIX_BOOL;
    info->value.data.flag = true;
}
#else
typedef int kvcl_pmix_api_is_empty_t; /* ISO C wants a declaration */
#endif
