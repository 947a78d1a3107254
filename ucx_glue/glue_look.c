/*
 * Are the pages of another process present? A copy of an absent page waits until that process's memory has it: for a
 * page of userfaultfd, or of a file on a server that does not answer, without a bound. So near reads (near/near_ops.h)
 * copy present pages only. The kernel's page map of the process says which are: PAGEMAP_SCAN finds the first absent one
 * (Linux 6.7 and later; 1% of the copy's time); before, each page's entry is read (6%), so an address range whose pages
 * were present once is not looked at again. Memory of the process that was never touched, or is swapped out, is absent.
 *
 * A page may become absent between look and copy, by the process's madvise or by the kernel: such a copy waits. Where
 * the page map cannot be opened, all pages count as present. An address that is not mapped may count as either.
 *
 * Owns: an endpoint's open page map. Invariant: it is the one of the process with that cookie, as far as the peer's
 * word goes. Locks: the engine lock.
 */
#include "config.h"
#include "ucx_glue/glue.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* linux/fs.h, which may be older than the kernel */
typedef struct scan {
    uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
    uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
} scan_t;

typedef struct scan_region {
    uint64_t start, end, categories;
} scan_region_t;

#define SCAN         _IOWR('f', 16, scan_t)
#define SCAN_PRESENT UINT64_C(8)
#define PRESENT      (UINT64_C(1) << 63) /* in a page's entry */

enum { ENTRIES = 512 };

static glue_look_t *look_at(glue_ep_t *ep, const glue_process_t *process)
{
    glue_look_t *look = ep->look;
    char        path[40];

    if ((look != NULL) && (memcmp(&look->process, process, sizeof(*process)) == 0)) {
        return look;
    }
    kvcl_glue_look_end(ep);
    look = calloc(1, sizeof(*look));
    if (look != NULL) {
        snprintf(path, sizeof(path), "/proc/%d/pagemap", (int)process->pid);
        look->process = *process;
        look->scans   = true;
        look->fd      = open(path, O_RDONLY | O_CLOEXEC);
    }
    ep->look = look;
    return look;
}

void kvcl_glue_look_end(glue_ep_t *ep)
{
    if ((ep->look != NULL) && (ep->look->fd >= 0)) {
        close(ep->look->fd);
    }
    free(ep->look);
    ep->look = NULL;
}

/* Errors, of a process that has ended or of addresses beyond its memory, are the copy's to tell. */
static bool scan(glue_look_t *look, uint64_t from, uint64_t end)
{
    scan_region_t absent;
    scan_t        arg = {.size              = sizeof(arg),
                         .start             = from,
                         .end               = end,
                         .vec               = (uintptr_t)&absent,
                         .vec_len           = 1,
                         .max_pages         = 1,
                         .category_inverted = SCAN_PRESENT,
                         .category_mask     = SCAN_PRESENT,
                         .return_mask       = SCAN_PRESENT};
    int           found = ioctl(look->fd, SCAN, &arg);

    look->scans = (found >= 0) || (errno != ENOTTY);
    return found <= 0;
}

static bool read_entries(const glue_look_t *look, uint64_t first, uint64_t n)
{
    uint64_t entries[ENTRIES], all = PRESENT, i;
    ssize_t  got;

    for (; (n != 0) && (all & PRESENT); n -= (uint64_t)got / sizeof(entries[0])) {
        got = pread(look->fd, entries, ((n < ENTRIES) ? n : ENTRIES) * sizeof(entries[0]),
                    (off_t)(first * sizeof(entries[0])));
        if (got < (ssize_t)sizeof(entries[0])) {
            break;
        }
        for (i = 0; i < (uint64_t)got / sizeof(entries[0]); ++i) {
            all &= entries[i];
        }
        first += i;
    }
    return all & PRESENT;
}

bool kvcl_glue_look(glue_ep_t *ep, const glue_process_t *process, uint64_t addr, size_t len)
{
    const uint64_t page  = (uint64_t)sysconf(_SC_PAGESIZE);
    const uint64_t first = addr / page, n = (addr + (len - 1)) / page - first + 1; /* len: not 0 */
    glue_look_t    *look = look_at(ep, process);
    size_t         at;

    if ((look == NULL) || (look->fd < 0)) {
        return true;
    }
    if (look->scans) {
        const bool present = scan(look, first * page, (first + n) * page);

        if (look->scans) {
            return present;
        }
    }
    at = (addr >> 20) % (sizeof(look->seen) / sizeof(look->seen[0]));
    if ((look->seen[at].first == first) && (look->seen[at].n >= n)) {
        return true;
    }
    if (!read_entries(look, first, n)) {
        return false;
    }
    look->seen[at].first = first;
    look->seen[at].n     = n;
    return true;
}
