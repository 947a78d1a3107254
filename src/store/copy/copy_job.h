/*
 * A copy job in progress (copy/copy_jobs.c), the check of its request (copy/copy_rpc.c), and the choice of the blocks
 * that the pool keeps (copy/copy_keep.c).
 */
#ifndef KVCL_STORE_COPY_COPY_JOB_H
#define KVCL_STORE_COPY_COPY_JOB_H

#include "store/pool/pool.h"

/* A block that the pool holds under the key, but with other bytes than the requested ones. */
typedef struct kvcl_copy_other {
    uint32_t slot, gen; /* gen 0: none */
    bool     left;      /* the key was removed meanwhile: the bytes that arrive are not kept */
} kvcl_copy_other_t;

typedef struct kvcl_copy_pin {
    uint32_t slot, gen;
} kvcl_copy_pin_t;

typedef struct kvcl_copy_job {
    kvcl_list_t            link;    /* in store->copies */
    kvcl_store_h           store;
    kvcl_owner_t           *pool;   /* the class */
    kvcl_peer_t            *peer;   /* the requester; NULL: no rank waits for an answer */
    kvcl_msg_dir_request_t request; /* its header */
    kvcl_copy_head_t       head;
    kvcl_req_t             *get;    /* while it runs */
    uint32_t               n;       /* blocks requested */
    uint32_t               n_todo;  /* of them not in the pool */
    kvcl_store_rec_t       *recs;   /* n: as requested; then this rank's copies */
    kvcl_store_rec_t       *todo;   /* n_todo: as requested; then the last n_new are this rank's new copies */
    uint32_t               n_new;
    uint32_t               n_again; /* were in the pool and are listed again; after the n_todo */
    uint32_t               *slots;  /* n_todo */
    kvcl_copy_other_t      *others; /* n_todo, in the requested order */
    kvcl_status_t          *got;    /* n_todo, in the requested order */
    kvcl_dir_loc_t         *from;   /* n_todo: the locations that the bytes were fetched from */
    uint32_t               source;  /* a tag, used instead of those of from; 0: none */
    uint32_t               *order;  /* n: blocks that the next rank of the chain fetches */
    kvcl_copy_pin_t        *pins;   /* n_pins <= n: this rank's copies, pinned until the job has answered */
    uint32_t               n_pins;
    uint8_t                *made;   /* n: copies from this rank on */
} kvcl_copy_job_t;

/** Pure. The whole request is hostile. This accepts blocks of the class's size, at ranks of the store; a key may occur
 * twice. */
bool kvcl_copy_check(const kvcl_owner_t *pool, const kvcl_copy_head_t *head, const kvcl_store_rec_t *recs, uint32_t n);
/** Lock held. Does the pool hold other bytes under the key than recs[i] names? Without checksums this is unknown:
 * false. node: the pool's block of the key, or NULL. */
bool kvcl_copy_is_other(const kvcl_copy_job_t *job, uint32_t i, const kvcl_owner_node_t *node);
/** Lock held. The get has ended: publish and pin the blocks that arrived, and free the slots of the others. Those
 * published are the last n_new of todo afterwards. */
void kvcl_copy_keep(kvcl_copy_job_t *job);
/** Lock held. Pin a published block until kvcl_copy_unpin, at most once for each of the job's n blocks. */
void kvcl_copy_pin(kvcl_copy_job_t *job, uint32_t slot);
/** Lock held. Drop the job's pins. */
void kvcl_copy_unpin(kvcl_copy_job_t *job);

#endif
