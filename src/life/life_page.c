/*
 * The page of this process: a robust mutex that one of its threads holds (life.h).
 *
 * Owns: the memfd and its mapping. The C library enters the mutex into the robust list of the thread; the kernel marks
 * the word of it that has the thread's number. That word always says that somebody waits, or the kernel would wake
 * nobody. Others cannot write to the page: it is sealed once this process has mapped it.
 */
#include "config.h"
#include "base/error.h"
#include "life/life.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010 /* Linux 5.1 */
#endif

static bool make_memory(kvcl_life_page_t *page)
{
    const size_t size = (size_t)sysconf(_SC_PAGESIZE);

    page->fd = memfd_create("kvcl-life", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if ((page->fd < 0) || (ftruncate(page->fd, (off_t)size) != 0)) {
        return false;
    }
    page->map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, page->fd, 0);
    if (page->map == MAP_FAILED) {
        page->map = NULL;
        return false;
    }
    (void)fcntl(page->fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE); /* an older kernel has no such seal */
    return fcntl(page->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0;
}

/* The word of the locked mutex that has this thread's number; false: there is none. */
static bool find_word(kvcl_life_page_t *page)
{
    const uint32_t   me     = (uint32_t)syscall(SYS_gettid);
    _Atomic uint32_t *words = page->map;
    uint32_t         i;

    for (i = 0; i < sizeof(pthread_mutex_t) / sizeof(words[0]); ++i) {
        if ((atomic_load(&words[i]) & FUTEX_TID_MASK) == me) {
            atomic_fetch_or(&words[i], FUTEX_WAITERS);
            page->word = i * (uint32_t)sizeof(words[0]);
            return true;
        }
    }
    return false;
}

static int hold(kvcl_life_page_t *page)
{
    pthread_mutexattr_t attr;
    int                 err = pthread_mutexattr_init(&attr);

    if (err != 0) {
        return err;
    }
    err = pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    err = (err == 0) ? pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST) : err;
    err = (err == 0) ? pthread_mutex_init(page->map, &attr) : err;
    err = (err == 0) ? pthread_mutex_lock(page->map) : err;
    (void)pthread_mutexattr_destroy(&attr);
    return err;
}

static void drop_memory(kvcl_life_page_t *page)
{
    if (page->map != NULL) {
        (void)munmap(page->map, (size_t)sysconf(_SC_PAGESIZE));
    }
    if (page->fd >= 0) {
        close(page->fd);
    }
    *page = (kvcl_life_page_t){.fd = -1};
}

kvcl_status_t kvcl_life_page_open(kvcl_life_page_t *page)
{
    int err;

    *page = (kvcl_life_page_t){.fd = -1};
    if (!make_memory(page)) {
        err = errno;
        drop_memory(page);
        return kvcl_fail_errno(KVCL_ERR_IO, err, "cannot make the page by which others see the end of this process");
    }
    err = hold(page);
    if (err != 0) {
        drop_memory(page);
        return kvcl_fail_errno(KVCL_ERR_IO, err, "cannot hold the robust mutex by which others see the end of this "
                               "process");
    }
    if (!find_word(page)) {
        kvcl_life_page_close(page);
        return kvcl_fail(KVCL_ERR_UNSUPPORTED, "this C library's mutexes do not name the thread that holds them");
    }
    return KVCL_OK;
}

void kvcl_life_page_close(kvcl_life_page_t *page)
{
    if (page->map != NULL) {
        (void)pthread_mutex_unlock(page->map);
        (void)pthread_mutex_destroy(page->map);
    }
    drop_memory(page);
}
