/*
 * What fork() leaves to the child (fork.h). Owns: how many contexts there are, and the handler of pthread_atfork(3),
 * which is set with the first one. The handler runs in the child's only thread; it takes no lock and allocates nothing.
 */
#include "config.h"
#include "handle/fork.h"
#include "base/error.h"
#include "handle/handle.h"

#include <pthread.h>
#include <unistd.h>

static _Atomic unsigned contexts;
static _Atomic bool     forked;

static void in_child(void)
{
    if (atomic_load(&contexts) != 0) {
        atomic_store(&forked, true);
    }
    kvcl_handles_forget();
}

static void watch(void)
{
    (void)pthread_atfork(NULL, NULL, in_child);
}

kvcl_status_t kvcl_fork_enter(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    if (kvcl_is_forked()) {
        return kvcl_fail(KVCL_ERR_UNSUPPORTED, "kvcl_init: this process was forked from one that had a context: fork "
                         "before kvcl_init, or call exec in the child");
    }
    pthread_once(&once, watch);
    atomic_fetch_add(&contexts, 1);
    return KVCL_OK;
}

void kvcl_fork_leave(void)
{
    atomic_fetch_sub(&contexts, 1);
}

bool kvcl_is_forked(void)
{
    return atomic_load_explicit(&forked, memory_order_relaxed);
}
