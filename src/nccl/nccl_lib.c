/*
 * NCCL's functions (nccl_api.h): dlopen and the table.
 *
 * The library stays loaded once it was opened. The table is filled once, under a mutex, and immutable from then on. A
 * failure is kept as well: a program does not look for a missing library again and again.
 */
#include "config.h"
#include "nccl/nccl_api.h"
#include "base/error.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

enum { OLDEST = 21400 }; /* the first with communicators whose calls do not block */

static const char library[] = "libnccl.so.2";

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static kvcl_nccl_lib_t real;
static enum { UNTRIED, LOADED, MISSING } state;
static char            why[KVCL_ERROR_MAX / 2];

#if KVCL_HAVE_NCCL_H
#define SAME(_member, _name, _params)                                                                                  \
    _Static_assert(__builtin_types_compatible_p(__typeof__(&_name), __typeof__(real._member)), #_name);
KVCL_NCCL_MAP(SAME)
#undef SAME
#endif

/* `lock` is held. False: why says what is missing. */
static bool fill(void *handle)
{
    const char *missing = NULL;

#define LOOK_UP(_member, _name, _params)                                                                               \
    *(void **)&real._member = dlsym(handle, #_name);                                                                   \
    missing                 = (real._member == NULL) ? #_name : missing;
    KVCL_NCCL_MAP(LOOK_UP)
#undef LOOK_UP
    *(void **)&real.error_string = dlsym(handle, "ncclGetErrorString");
    missing                      = (real.error_string == NULL) ? "ncclGetErrorString" : missing;
    if ((real.version != NULL) && ((real.version(&real.code) != ncclSuccess) || (real.code < OLDEST))) {
        snprintf(why, sizeof(why), "%s has the version code %d: NCCL 2.14 or newer is needed", library, real.code);
        return false;
    }
    if (missing != NULL) {
        snprintf(why, sizeof(why), "%s has no %s: NCCL 2.14 or newer is needed", library, missing);
    }
    return missing == NULL;
}

/* `lock` is held. */
static bool load(void)
{
    void *handle = dlopen(library, RTLD_NOW);

    if (handle == NULL) {
        snprintf(why, sizeof(why), "%s", dlerror());
        return false;
    }
    if (!fill(handle)) {
        (void)dlclose(handle);
        return false;
    }
    return true; /* the handle is kept */
}

const kvcl_nccl_lib_t *kvcl_nccl_lib(void)
{
    bool loaded;

    pthread_mutex_lock(&lock);
    if (state == UNTRIED) {
        state = load() ? LOADED : MISSING;
    }
    loaded = (state == LOADED);
    pthread_mutex_unlock(&lock);
    if (!loaded) {
        (void)kvcl_fail(KVCL_ERR_UNSUPPORTED, "%s", why);
    }
    return loaded ? &real : NULL;
}
