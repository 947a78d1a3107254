/*
 * Segments: memory of one process that other processes of the host map.
 *
 * A segment is a memfd. Its owner keeps the descriptor open while the segment exists, and a peer opens it through
 * /proc/PID/fd, which the kernel allows to processes of the same user (and to root). It needs no file system: the size
 * of /dev/shm does not matter. Its size is sealed, so bytes that a reader has mapped never disappear; with
 * KVCL_SEGMENT_READ_ONLY the kernel also refuses every writable mapping but the owner's own.
 *
 * A packed segment comes from a peer and is hostile: kvcl_segment_open() checks what the kernel says of the file
 * against what the bytes claim. No lock; any thread; nothing here is shared.
 */
#ifndef KVCL_MEM_SEGMENT_H
#define KVCL_MEM_SEGMENT_H

#include <kvcl/kvcl_status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    KVCL_SEGMENT_HUGE      = 1, /* request huge pages; a hint */
    KVCL_SEGMENT_READ_ONLY = 2, /* the kernel refuses writable mappings of other processes (Linux 5.1) */
    KVCL_SEGMENT_PRIVATE   = 4  /* anonymous memory, which no peer maps */
};

enum { KVCL_SEGMENT_ID_BYTES = 16, KVCL_SEGMENT_WIRE_BYTES = 56 };

typedef struct kvcl_segment {
    void     *addr;
    size_t   mapped; /* bytes: whole pages */
    int      fd;     /* -1: anonymous memory */
    bool     read_only;
    uint64_t inode;
    uint8_t  id[KVCL_SEGMENT_ID_BYTES]; /* random; the file's name contains it */
} kvcl_segment_t;

/* A peer's segment, mapped. */
typedef struct kvcl_segment_view {
    void   *addr; /* NULL: none */
    size_t mapped;
} kvcl_segment_view_t;

/**
 * Zeroed, page aligned, every page present: memory that runs out is an error of this call, no signal later.
 * @param flags  KVCL_SEGMENT_*. Where the kernel or a filter refuses memfds, the memory is anonymous.
 * @return KVCL_OK, KVCL_ERR_NO_MEMORY, KVCL_ERR_INVALID_PARAM (0 bytes).
 */
kvcl_status_t kvcl_segment_create(kvcl_segment_t *seg, size_t len, unsigned flags) KVCL_MUST_CHECK;
/** Unmaps and closes. Peers' mappings stay valid. Accepts a zeroed one. */
void          kvcl_segment_destroy(kvcl_segment_t *seg);
/** @return KVCL_SEGMENT_WIRE_BYTES, or 0: no peer can map it. */
size_t        kvcl_segment_pack(const kvcl_segment_t *seg, void *buf, size_t cap);

/**
 * Maps the first len bytes of a peer's segment, for reading, or for reading and writing.
 * @return KVCL_OK; KVCL_ERR_PROTOCOL: it exists and is not what the bytes claim, or they are malformed. The others mean
 *         that it cannot be mapped here, and other means may reach the bytes: KVCL_ERR_UNREACHABLE (of another host or
 *         process namespace), KVCL_ERR_NOT_FOUND (it does not exist any more, or never did), KVCL_ERR_ACCESS (/proc
 *         does not permit it), KVCL_ERR_NO_MEMORY. The sentence does not name the peer.
 */
kvcl_status_t kvcl_segment_open(const void *buf, size_t buf_len, uint64_t len, bool write, kvcl_segment_view_t *view)
    KVCL_MUST_CHECK;
/** Accepts a zeroed one. */
void          kvcl_segment_close(kvcl_segment_view_t *view);

/** Bytes that this process can still fill: of the machine and of its control groups. UINT64_MAX: not known. */
uint64_t      kvcl_segment_room(void);

#endif
