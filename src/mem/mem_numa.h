/*
 * Places memory that KVCL allocates on the NUMA nodes that topo/numa.h chooses, or that the caller names.
 *
 * Some transports touch every page before they return memory, others none. So the allocating thread has the policy
 * during the allocation, and the range has it afterwards. All of it is a hint: where the system refuses it (the filters
 * of containers), the kernel places the memory by its default, and the log says so.
 * Any thread, several at once, no lock held; a mutex for reading the topology, once a context and only if needed.
 */
#ifndef KVCL_MEM_MEM_NUMA_H
#define KVCL_MEM_MEM_NUMA_H

#include "topo/numa.h"
#include <kvcl/kvcl_mem.h>

#include <pthread.h>

typedef struct kvcl_mem_numa {
    kvcl_numa_mode_t mode;
    pthread_mutex_t  lock; /* of those below */
    bool             read; /* or tried to */
    kvcl_topo_t      *topo;
} kvcl_mem_numa_t;

/* An allocation under way. */
typedef struct kvcl_placing {
    bool             on; /* the thread has the policy */
    int              level; /* of the log line of a failed placement */
    const char       *why;
    kvcl_mempolicy_t policy;
    kvcl_mempolicy_t before; /* of the thread */
} kvcl_placing_t;

/** 0 or an errno. */
int  kvcl_mem_numa_init(kvcl_mem_numa_t *numa, kvcl_numa_mode_t mode);
void kvcl_mem_numa_fini(kvcl_mem_numa_t *numa);

/** Before memory is allocated by the calling thread; params may be NULL. kvcl_mem_numa_end() must follow. */
void kvcl_mem_numa_begin(kvcl_mem_numa_t *numa, const kvcl_mem_params_t *params, kvcl_placing_t *placing);
/** addr NULL: there is none. */
void kvcl_mem_numa_end(kvcl_placing_t *placing, void *addr, size_t len);

#endif
