/*
 * The arguments of the functions about experts: counts as a tuple, arrays as buffers whose lengths are compared with
 * the counts.
 */
#ifndef KVPY_EXT_EP_H
#define KVPY_EXT_EP_H

#include "kvcl/ext/ext.h"

typedef struct kvpy_ep_args {
    kvcl_ep_params_t params;
    kvpy_buf_t       active;
    kvpy_buf_t       bufs[4];
} kvpy_ep_args_t;

/** (flags, layers, experts, slots, ranks, hosts, groups, min_ranks, min_hosts, active or None). @return 0, or -1 with
 * an exception set; kvpy_ep_drop() in both cases. */
int  kvpy_ep_params(PyObject *arg, kvpy_ep_args_t *a);
void kvpy_ep_drop(kvpy_ep_args_t *a);
/** A buffer of so many entries. @return as kvpy_buf_take. */
int  kvpy_ep_array(PyObject *obj, const char *what, unsigned how, uint64_t entries, size_t bytes, kvpy_buf_t *buf);

static inline uint64_t kvpy_ep_layers(const kvpy_ep_args_t *a)
{
    return (a->params.layers == 0) ? 1 : a->params.layers;
}

#endif
