/*
 * The pages of other processes: a thread sleeps until the kernel marks a word of theirs (life.h).
 *
 * Owns: the mappings, which are read-only, and the thread. The lock guards all but the words; the thread drops it
 * while it sleeps. A word changes once: the kernel marks it, or its owner releases it. The thread looks at that change
 * and drops the word, so a process that changes its word again and again wakes nobody. The kernel wakes one sleeper,
 * which wakes the others; if that one is stopped, kvcl_life_look() sees the change.
 */
#include "config.h"
#include "base/error.h"
#include "base/thread.h"
#include "life/life.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#define HUGETLBFS 0x958458f6 /* statfs(2) */

enum { WORDS_MAX = 128, TURN = 0 }; /* of one call of futex_waitv; the first is life->turn */

/* futex_waitv(2), for headers older than the kernel. */
enum { SYS_WAITV = 449, WORD_32 = 2, WORD_PRIVATE = 128 };
typedef struct word {
    uint64_t val, addr;
    uint32_t flags, reserved;
} word_t;

typedef struct seen {
    void             *map; /* NULL: not watched */
    _Atomic uint32_t *word;
    uint32_t         value; /* while the thread holds it */
    bool             marked;
} seen_t;

struct kvcl_life {
    pthread_mutex_t  lock;
    pthread_t        thread;
    bool             has_thread, stop;
    int              event_fd;
    _Atomic uint32_t turn; /* changed, and waked, when the thread is to look again */
    uint32_t         n, n_watched;
    seen_t           seen[]; /* by number */
};

static size_t page_size(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

static long wait_words(word_t *words, unsigned n)
{
    return syscall(SYS_WAITV, words, n, 0, NULL, 0);
}

static void wake(_Atomic uint32_t *word, bool shared)
{
    (void)syscall(SYS_futex, word, shared ? FUTEX_WAKE : FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* ---- the thread ---- */

static void drop(kvcl_life_t *life, seen_t *seen)
{
    if (seen->map != NULL) {
        (void)munmap(seen->map, page_size());
        seen->map = NULL;
        --life->n_watched;
    }
}

/* The word has changed. */
static void look(kvcl_life_t *life, seen_t *seen, uint32_t value)
{
    const uint64_t one = 1;

    if (value & FUTEX_OWNER_DIED) {
        seen->marked = true;
        wake(seen->word, true);
        (void)!write(life->event_fd, &one, sizeof(one)); /* full: readable all the same */
    }
    drop(life, seen);
}

static unsigned gather(kvcl_life_t *life, word_t *words)
{
    unsigned n = TURN + 1;
    uint32_t i, value;

    words[TURN] = (word_t){.val = atomic_load(&life->turn), .addr = (uintptr_t)&life->turn,
                           .flags = WORD_32 | WORD_PRIVATE};
    for (i = 0; (i < life->n) && (n < WORDS_MAX); ++i) {
        seen_t *seen = &life->seen[i];

        if (seen->map == NULL) {
            continue;
        }
        value = atomic_load(seen->word);
        if (value != seen->value) {
            look(life, seen, value);
        } else {
            words[n++] = (word_t){.val = value, .addr = (uintptr_t)seen->word, .flags = WORD_32};
        }
    }
    return n;
}

static void *run(void *arg)
{
    kvcl_life_t *life = arg;
    word_t      words[WORDS_MAX];
    unsigned    n;

    pthread_mutex_lock(&life->lock);
    while (!life->stop) {
        n = gather(life, words);
        pthread_mutex_unlock(&life->lock);
        (void)wait_words(words, n); /* whatever it returns, gather() sees what has changed */
        pthread_mutex_lock(&life->lock);
    }
    pthread_mutex_unlock(&life->lock);
    return NULL;
}

/* The thread looks again. */
static void turn(kvcl_life_t *life)
{
    atomic_fetch_add(&life->turn, 1);
    wake(&life->turn, false);
}

/* ---- the calls ---- */

kvcl_status_t kvcl_life_open(uint32_t n, kvcl_life_t **life_p)
{
    kvcl_life_t *life;

    if ((wait_words(NULL, 0) != 0) && (errno != EINVAL)) { /* EINVAL: no words */
        return kvcl_fail(KVCL_ERR_UNSUPPORTED, "this kernel has no futex_waitv");
    }
    life = calloc(1, sizeof(*life) + (n * sizeof(life->seen[0])));
    if (life == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory to watch %u processes", (unsigned)n);
    }
    life->n        = n;
    life->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pthread_mutex_init(&life->lock, NULL);
    if (life->event_fd < 0) {
        kvcl_status_t status = kvcl_fail_errno(KVCL_ERR_IO, errno, "cannot make the descriptor that tells of the end "
                                               "of processes");

        kvcl_life_close(life);
        return status;
    }
    *life_p = life;
    return KVCL_OK;
}

void kvcl_life_close(kvcl_life_t *life)
{
    uint32_t i;

    if (life == NULL) {
        return;
    }
    if (life->has_thread) {
        pthread_mutex_lock(&life->lock);
        life->stop = true;
        turn(life);
        pthread_mutex_unlock(&life->lock);
        pthread_join(life->thread, NULL);
    }
    for (i = 0; i < life->n; ++i) {
        drop(life, &life->seen[i]);
    }
    if (life->event_fd >= 0) {
        close(life->event_fd);
    }
    pthread_mutex_destroy(&life->lock);
    free(life);
}

/* A page that could shrink would end this process when it is read; a huge one could not be unmapped by the size of a
 * page. NULL: it is none of ours. */
static void *map_page(int fd, uint32_t word)
{
    const int     seals = fcntl(fd, F_GET_SEALS);
    struct statfs fs;
    struct stat   st;
    void          *map;

    if ((seals < 0) || !(seals & F_SEAL_SHRINK) || (fstat(fd, &st) != 0) || (st.st_size < (off_t)page_size()) ||
        (fstatfs(fd, &fs) != 0) || (fs.f_type == HUGETLBFS) || (word % sizeof(uint32_t) != 0) ||
        (word >= page_size())) {
        return NULL;
    }
    map = mmap(NULL, page_size(), PROT_READ, MAP_SHARED, fd, 0);
    return (map != MAP_FAILED) ? map : NULL;
}

bool kvcl_life_watch(kvcl_life_t *life, uint32_t number, int fd, uint32_t word)
{
    seen_t *seen = &life->seen[number];
    void   *map  = map_page(fd, word);
    bool   done  = false;

    pthread_mutex_lock(&life->lock);
    drop(life, seen);
    seen->marked = false;
    if ((map != NULL) && (life->n_watched < WORDS_MAX - 1)) {
        life->has_thread = life->has_thread || (kvcl_thread_start(&life->thread, "kvcl-life", run, life) == 0);
        done             = life->has_thread;
    }
    if (done) {
        seen->map   = map;
        seen->word  = (_Atomic uint32_t *)(void *)((char *)map + word);
        seen->value = atomic_load(seen->word) & ~FUTEX_OWNER_DIED;
        ++life->n_watched;
        turn(life);
    } else if (map != NULL) {
        (void)munmap(map, page_size());
    }
    pthread_mutex_unlock(&life->lock);
    return done;
}

void kvcl_life_forget(kvcl_life_t *life, uint32_t number)
{
    pthread_mutex_lock(&life->lock);
    drop(life, &life->seen[number]);
    life->seen[number].marked = false;
    turn(life);
    pthread_mutex_unlock(&life->lock);
}

void kvcl_life_look(kvcl_life_t *life)
{
    uint32_t i;

    pthread_mutex_lock(&life->lock);
    for (i = 0; (i < life->n) && ((life->seen[i].map == NULL) ||
                                  (atomic_load(life->seen[i].word) == life->seen[i].value)); ++i) {
    }
    if (i < life->n) {
        turn(life);
    }
    pthread_mutex_unlock(&life->lock);
}

int kvcl_life_fd(const kvcl_life_t *life)
{
    return life->event_fd;
}

uint32_t kvcl_life_take(kvcl_life_t *life)
{
    uint64_t count;
    uint32_t i;

    pthread_mutex_lock(&life->lock);
    for (i = 0; (i < life->n) && !life->seen[i].marked; ++i) {
    }
    if (i < life->n) {
        life->seen[i].marked = false;
    } else {
        (void)!read(life->event_fd, &count, sizeof(count)); /* it polls readable no more */
        i = KVCL_LIFE_NONE;
    }
    pthread_mutex_unlock(&life->lock);
    return i;
}
