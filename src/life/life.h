/*
 * Early signs that a process of this host ends.
 *
 * A process that is killed frees its memory first and closes its sockets afterwards, which takes a second where it has
 * registered many GiB. The kernel marks the robust futexes of its threads before it does either. So a thread of each
 * process holds one for its whole life, in a page that it passes to the others (life_page.c). They sleep until the
 * kernel marks a word of theirs (life_watch.c). A mark says that one thread is gone, and a page is another process's
 * word: a sign, no proof. Proof is that all threads of the process are exiting, so that none returns to its own code
 * (exiting.c). The kernel wakes one of the sleepers, which wakes the others; if that one ends or is stopped in the same
 * moment, the others see the mark when they look (kvcl_life_look).
 *
 * Source: robust_futex(2), futex_waitv(2) (Linux 5.16).
 */
#ifndef KVCL_LIFE_LIFE_H
#define KVCL_LIFE_LIFE_H

#include <kvcl/kvcl_status.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define KVCL_LIFE_NONE UINT32_MAX

/* ---- the page of this process ---- */

typedef struct kvcl_life_page {
    int      fd;   /* a memfd to pass to others; -1: there is none */
    uint32_t word; /* the offset of the futex in it, in bytes */
    void     *map;
} kvcl_life_page_t;

/** The calling thread is the one whose end is marked; it closes the page before it ends otherwise. KVCL_ERR_IO: fd is
 * -1. */
kvcl_status_t kvcl_life_page_open(kvcl_life_page_t *page) KVCL_MUST_CHECK;
void          kvcl_life_page_close(kvcl_life_page_t *page);

/* ---- the pages of others: one thread uses an object ---- */

typedef struct kvcl_life kvcl_life_t;

/** @a n: processes at most, by number. KVCL_ERR_UNSUPPORTED: the kernel has no futex_waitv. KVCL_ERR_NO_MEMORY,
 * KVCL_ERR_IO. */
kvcl_status_t kvcl_life_open(uint32_t n, kvcl_life_t **life_p) KVCL_MUST_CHECK;
void          kvcl_life_close(kvcl_life_t *life); /* NULL: nothing */

/** Watches the process of this number by its page, in place of the one before. The page is hostile: it is only read,
 * and must not be able to shrink. fd stays the caller's. @return false: it is no such page, or no room is left. */
bool kvcl_life_watch(kvcl_life_t *life, uint32_t number, int fd, uint32_t word);
void kvcl_life_forget(kvcl_life_t *life, uint32_t number);

/** A look at all words, to be taken now and then: if one has changed, and nobody has woken the thread, it is woken. */
void kvcl_life_look(kvcl_life_t *life);

/** Polls readable when kvcl_life_take() may have something to say. */
int kvcl_life_fd(const kvcl_life_t *life);

/** A process whose page was marked, each once; KVCL_LIFE_NONE: no other one. It is watched no more. */
uint32_t kvcl_life_take(kvcl_life_t *life);

/* ---- proof ---- */

/** Pure but for /proc. Whether all threads of this process are exiting. False also if that cannot be seen here. The
 * caller makes sure that the number is still that process's afterwards. */
bool kvcl_life_is_exiting(pid_t pid);

/* ---- what is left ---- */

/** Removes the queues of UCX that killed processes of this user have left in a folder: files that no process has open,
 * written 2 s ago or earlier. Two calls at once may leave some to each other. @return how many were removed. */
unsigned kvcl_life_clean(const char *path);

#endif
