/*
 * kvcl._kvcl, the C half of the Python package: the types and helpers that its files share.
 *
 * Rules that keep any Python code from crashing the process:
 *   - Every call into the library that may block, copy or take a library lock runs without the GIL. All state here is
 *     changed only with the GIL held. There are no other locks. The library calls Python only for the out-of-band
 *     store (oob.c).
 *   - An object that a running call or an operation in flight uses has users > 0 and refuses to close. An object whose
 *     memory is visible through a memoryview has exports > 0 and refuses as well. Operations hold references to their
 *     objects and to the buffers they read or write until they complete, even if their Request was dropped.
 *   - Objects die before their context: each holds a reference to it, and closing a context closes its objects first.
 */
#ifndef KVPY_EXT_H
#define KVPY_EXT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "kvcl/ext/pybuffer.h"

#include <kvcl/kvcl.h>
#include <stdbool.h>
#include <stdlib.h>

typedef struct kvpy_link {
    struct kvpy_link *prev;
    struct kvpy_link *next;
} kvpy_link_t;

static inline void kvpy_link_init(kvpy_link_t *link)
{
    link->prev = link->next = link;
}

static inline void kvpy_link_add(kvpy_link_t *list, kvpy_link_t *link) /* at the tail */
{
    link->prev       = list->prev;
    link->next       = list;
    list->prev->next = link;
    list->prev       = link;
}

static inline void kvpy_link_del(kvpy_link_t *link)
{
    link->prev->next = link->next;
    link->next->prev = link->prev;
    kvpy_link_init(link);
}

#define KVPY_OF(_link, _type, _member) ((_type *)(void *)((char *)(_link)-offsetof(_type, _member)))

/* ---- buffers (buffer.c) ---- */

enum {
    KVPY_WRITE = 1u << 0, /* the library writes the memory: a read-only buffer is refused */
    KVPY_SPAN  = 1u << 1, /* holes are allowed: the range from the first byte to the last counts */
    KVPY_CUDA  = 1u << 2  /* the memory may be a CUDA device's */
};

/* Memory of a Python object, held: by the buffer protocol; DLPack where there is none (torch); __cuda_array_interface__
 * where there is no DLPack either. */
typedef struct kvpy_buf {
    void            *ptr;
    size_t          len;
    kvcl_mem_kind_t kind;
    PyObject        *owner;   /* of the array interface; NULL: none */
    bool            has_view;
    Py_buffer       view;
    PyObject        *capsule; /* DLPack; NULL: none */
} kvpy_buf_t;

/** @return 0, or -1 with TypeError or BufferError set. *buf need not be initialised. */
int  kvpy_buf_take(PyObject *obj, unsigned how, kvpy_buf_t *buf);
void kvpy_buf_drop(kvpy_buf_t *buf); /* accepts a zeroed or dropped buf */

/* ---- objects (object.c) ---- */

typedef enum kvpy_kind {
    KVPY_NONE, /* never opened: an instance without a constructor call */
    KVPY_XFER,
    KVPY_EXPERTS,
    KVPY_STORE,
    KVPY_RMEM,
    KVPY_CACHE,
    KVPY_MEM,
    KVPY_COMM,
    KVPY_KINDS /* in the order in which a context closes them */
} kvpy_kind_t;

typedef struct kvpy_ctx {
    PyObject_HEAD
    kvcl_context_h handle;  /* NULL: closed */
    bool           closing;
    bool           threadless;
    unsigned       users;   /* running calls and operations in flight */
    kvpy_link_t    objects; /* kvpy_obj_t.link */
    kvpy_link_t    ops;     /* kvpy_op_t.link, in flight */
    kvpy_link_t    dropped; /* operations in flight whose Request is gone */
    kvcl_oob_t     oob;
    PyObject       *oob_set, *oob_get, *oob_fence; /* NULL: none */
    PyObject       *oob_error; /* first exception of the callbacks during kvcl_init */
} kvpy_ctx_t;

/* Comm, Cache, Mem, RemoteMem and Store. */
typedef struct kvpy_obj {
    PyObject_HEAD
    kvpy_kind_t kind;
    void        *handle; /* NULL: closed */
    kvpy_ctx_t  *ctx;    /* a reference until closed */
    kvpy_link_t link;
    unsigned    users;
    unsigned    exports;
    bool        closing;
    PyObject    *keeps;  /* list of kvpy_obj_t, each with one user of this object; NULL: none */
    PyObject    *views;  /* list of weak references to exported memoryviews; NULL: none */
    kvpy_buf_t  *bufs;   /* the user's memory behind the handle */
    size_t      n_bufs;
    char        name[64]; /* of a cache */
} kvpy_obj_t;

extern PyTypeObject *kvpy_context_type, *kvpy_comm_type, *kvpy_cache_type, *kvpy_mem_type, *kvpy_rmem_type,
    *kvpy_store_type, *kvpy_experts_type, *kvpy_xfer_type, *kvpy_request_type, *kvpy_region_type;

/** The name of a class, for sentences. No exception may be set. */
typedef struct kvpy_name {
    char text[64];
} kvpy_name_t;
kvpy_name_t kvpy_class_name(PyTypeObject *type);
/** The end of a tp_dealloc: frees self and drops its reference to its type. */
void kvpy_instance_free(PyObject *self);
/** A type of such objects. All arguments are constants, or static. */
PyTypeObject *kvpy_obj_type(const char *name, const char *doc, PyMethodDef *methods, PyGetSetDef *getset);
/** A new instance of a subclass that takes over handle (and frees it if out of memory). */
PyObject *kvpy_obj_new(PyTypeObject *cls, kvpy_kind_t kind, kvpy_ctx_t *ctx, void *handle);
/** @return 0, or -1 with Shutdown set if the context is closed. */
int kvpy_ctx_check(kvpy_ctx_t *ctx);
int kvpy_obj_check(kvpy_obj_t *obj);
/** Checks that arg is an open object of this type (and of ctx, unless NULL). @return it, borrowed, or NULL. */
kvpy_obj_t *kvpy_obj_arg(PyObject *arg, PyTypeObject *type, kvpy_ctx_t *ctx);
/** obj uses used until obj closes. */
int kvpy_obj_keep(kvpy_obj_t *obj, kvpy_obj_t *used);
/** Close obj; a closed one is no error. @return 0, or -1 with BufferError or Busy set and nothing changed. */
int kvpy_obj_close(kvpy_obj_t *obj);
/** Release the exported memoryviews. @return -1 with BufferError set if one of them is still in use. */
int kvpy_obj_unview(kvpy_obj_t *obj);
/** A memoryview over part of the object's memory. */
PyObject *kvpy_obj_view(kvpy_obj_t *obj, void *ptr, size_t len);
PyObject *kvpy_obj_close_py(PyObject *self, PyObject *none);
PyObject *kvpy_obj_closed_py(PyObject *self, void *closure);
void      kvpy_obj_dealloc(PyObject *self);

/* Bracket a library call without the GIL: the object cannot be closed meanwhile. */
void kvpy_enter(kvpy_obj_t *obj);
void kvpy_leave(kvpy_obj_t *obj);
#define KVPY_CALL(_obj, _status, _expr)                                                                                \
    do {                                                                                                               \
        kvpy_enter(_obj);                                                                                              \
        Py_BEGIN_ALLOW_THREADS                                                                                         \
        (_status) = (_expr);                                                                                           \
        Py_END_ALLOW_THREADS                                                                                           \
        kvpy_leave(_obj);                                                                                              \
    } while (0)

/* The same, where only the context is used. */
#define KVPY_CTX_CALL(_ctx, _result, _expr)                                                                            \
    do {                                                                                                               \
        ++(_ctx)->users;                                                                                               \
        Py_BEGIN_ALLOW_THREADS                                                                                         \
        (_result) = (_expr);                                                                                           \
        Py_END_ALLOW_THREADS                                                                                           \
        --(_ctx)->users;                                                                                               \
    } while (0)

/* ---- operations and requests (op.c, request.c) ---- */

typedef struct kvpy_request {
    PyObject_HEAD
    struct kvpy_op *op;        /* NULL: nothing was posted */
    PyObject       *queue;     /* a Queue, with tag: made in its posting() block, until posted; NULL: none */
    PyObject       *tag;
    PyObject       *callbacks; /* list, called with self on completion; NULL: none */
} kvpy_request_t;

typedef struct kvpy_op {
    kvpy_link_t      link;
    kvpy_ctx_t       *ctx;      /* a reference and one of its users, while in flight */
    kvpy_request_t   *self;     /* borrowed; NULL: dropped */
    kvcl_req_h       req;       /* the library's request, while in flight */
    kvcl_status_t    status;    /* KVCL_INPROGRESS until collected */
    const char       *what;
    bool             busy;      /* a thread is inside the library with req */
    bool             wanted;    /* another thread asks for a layer: a wait lets it, after its slice */
    bool             cancel;    /* the thread that is inside the library must cancel it */
    struct kvpy_queue *queue;   /* a reference while in flight: its drain collects req; NULL: none */
    bool             layerwise; /* a send whose layers are marked: req is collected only with the GIL held */
    kvpy_obj_t       *keeps[3]; /* references and users */
    kvpy_buf_t       bufs[2];
    kvcl_status_t    *blocks;
    size_t           n_blocks;
    uint8_t          *copies;   /* copies of a put into a store; NULL: none */
    size_t           n_copies;
    kvpy_buf_t       *values;   /* user memory of a store's values, or of an exchange's parts */
    size_t           n_values;
    kvcl_recv_info_t info;
    bool             has_info;
    PyObject         *result;   /* result of wait(); NULL: the info, or None */
    void             *out;      /* memory of results, free()d with the operation; NULL: none */
    PyObject         *(*give)(const struct kvpy_op *op); /* makes wait()'s result after completion. NULL without an
                                                            exception: the status is raised */
    char             *why;      /* the library's sentence for a failed operation, or NULL */
} kvpy_op_t;

/** Make a fresh Request carry an operation of owner; fills params. @return NULL with an exception set. */
kvpy_op_t *kvpy_op_new(PyObject *request, const char *what, kvpy_obj_t *owner, PyObject *timeout,
                       kvcl_xfer_params_t *params);
void       kvpy_op_keep(kvpy_op_t *op, kvpy_obj_t *obj);
/** Allocate n block statuses. */
int        kvpy_op_statuses(kvpy_op_t *op, size_t n, kvcl_xfer_params_t *params);
/** The notify argument of a get or put: None, or bytes. */
int        kvpy_op_notify(kvpy_op_t *op, PyObject *notify, kvcl_xfer_params_t *params);
/** The signal argument of a put: None, or (RemoteMem, offset, n); *counter_p is that memory, borrowed, or NULL. */
int        kvpy_signal(PyObject *signal, kvpy_ctx_t *ctx, kvcl_xfer_params_t *params, kvpy_obj_t **counter_p);
int        kvpy_op_signal(kvpy_op_t *op, PyObject *signal, kvcl_xfer_params_t *params);
PyObject   *kvpy_comm_notify(PyObject *self, PyObject *args);
PyObject   *kvpy_comm_notify_recv(PyObject *self, PyObject *arg);
/** Also allocates numbers of copies; replicas, tenant and wait are arguments of a put. */
int        kvpy_op_put(kvpy_op_t *op, size_t n, PyObject *replicas, PyObject *tenant, int wait,
                       kvcl_xfer_params_t *params);
/** Return the memory of values to the user. */
void       kvpy_op_drop_values(kvpy_op_t *op);
/** The posting call returned status: op->req is in flight, or op is freed and the exception set.
 * @return the Request. */
PyObject *kvpy_op_posted(kvpy_op_t *op, kvcl_status_t status);
void      kvpy_op_free(kvpy_op_t *op); /* frees an operation that was not posted */
#define KVPY_POST(_op, _status, _expr)                                                                                 \
    do {                                                                                                               \
        Py_BEGIN_ALLOW_THREADS                                                                                         \
        (_status) = (_expr);                                                                                           \
        Py_END_ALLOW_THREADS                                                                                           \
    } while (0)

enum { KVPY_NAP_NS = 1000000 }; /* sleep of a thread while another one is inside the library with its request */

uint64_t kvpy_now_ns(void);
void     kvpy_nap(uint64_t ns); /* without the GIL */
/** The library has freed op->req: releases everything and notifies the Request. Frees op if its Request was dropped. */
void kvpy_op_finish(kvpy_op_t *op, kvcl_status_t status);
/** Test once, or wait a slice. op must not be busy. @return whether it has finished; op may be freed then. */
bool kvpy_op_poll(kvpy_op_t *op);
bool kvpy_op_wait(kvpy_op_t *op, uint64_t ns);
/** kvcl_req_layer_test. op must not be busy. */
kvcl_status_t kvpy_op_layer(kvpy_op_t *op, uint32_t layer);
void kvpy_op_cancel(kvpy_op_t *op);
/** Call the Request's callbacks, once. */
void kvpy_request_report(kvpy_request_t *self);
/** wait_any(tuple of Requests, timeout): the index of one that has finished. */
PyObject *kvpy_wait_any(PyObject *module, PyObject *args);
/** Collect a dropped operation that has completed. @return whether one was found. */
bool kvpy_ops_reap(kvpy_ctx_t *ctx);
/** Cancel all operations of a context and collect them. @return the number left after some seconds. */
unsigned kvpy_ops_stop(kvpy_ctx_t *ctx);

/* ---- completion queues (wait/queue.c) ---- */

/** A Request is made: it belongs to the queue whose posting() block this thread is in, if any. */
void kvpy_queue_note(kvpy_request_t *self);
/** op is about to be posted. @return 0, or -1 with an exception set; undone by kvpy_queue_leave. */
int  kvpy_queue_join(kvpy_op_t *op, kvcl_xfer_params_t *params);
void kvpy_queue_leave(kvpy_op_t *op);
/** A thread is about to use op->req without the GIL (by 1), or has (by -1): nothing is collected meanwhile. */
void kvpy_queue_hold(kvpy_op_t *op, int by);
/** Collect what its queue has, after a wait of at most ns. @return whether op has finished; it may be freed then. */
bool kvpy_queue_wait(kvpy_op_t *op, uint64_t ns);
PyTypeObject *kvpy_make_queue(void);
extern PyTypeObject *kvpy_queue_type;

/* ---- conversions (convert.c, arrays/): 0, or -1 with an exception set ---- */

/** Raise the exception class of a status. sentence NULL: the library's, of this thread's last failing call. */
void *kvpy_raise(kvcl_status_t status, const char *sentence);
int   kvpy_set_errors(PyObject *dict);                                /* {status: class} */
int   kvpy_timeout(PyObject *arg, uint64_t *ns_p);                    /* seconds or None (0, the default) */
int   kvpy_call_timeout(PyObject *arg, uint64_t *ns_p);               /* seconds or None (KVCL_WAIT_DEFAULT) */
int   kvpy_u64(PyObject *arg, const char *what, uint64_t most, uint64_t *value_p);
int   kvpy_int(PyObject *arg, const char *what, int *value_p);
int   kvpy_u32s(PyObject *arg, const char *what, uint32_t **values_p, size_t *n_p); /* free() them */
int   kvpy_keys(PyObject *arg, kvcl_key_t **keys_p, size_t *n_p);     /* free() them */
int   kvpy_layout(PyObject *arg, kvcl_layout_t *layout);
/* reshard.c */
PyObject *kvpy_reshard_share(PyObject *module, PyObject *args);
PyObject *kvpy_reshard_plan(PyObject *module, PyObject *args);

/* ep.c */
PyObject *kvpy_ep_place(PyObject *module, PyObject *args);
PyObject *kvpy_ep_index(PyObject *module, PyObject *args);
PyObject *kvpy_ep_repair(PyObject *module, PyObject *args);
PyObject *kvpy_ep_moves(PyObject *module, PyObject *args);

/* ep/step.c, ep/restore.c */
PyTypeObject *kvpy_make_experts(void);
PyObject     *kvpy_ep_renormalise(PyObject *module, PyObject *args);
PyObject     *kvpy_ep_weights_sum(PyObject *module, PyObject *args);
PyObject     *kvpy_ep_restore(PyObject *module, PyObject *args);
PyObject     *kvpy_ep_settle(PyObject *module, PyObject *args);

/* sched/sched.c, sched/sched_index.c */
PyTypeObject *kvpy_make_index(void), *kvpy_make_sched(void);
PyObject     *kvpy_sched_root(PyObject *module, PyObject *args);
PyObject     *kvpy_sched_policies(PyObject *module, PyObject *none);
PyObject     *kvpy_sched_model(PyObject *module, PyObject *arg);
PyObject     *kvpy_sched_times(PyObject *module, PyObject *args);

/** The arguments blocks, layers (None or (first, end)), heads and tokens. Free the ids with kvpy_sel_free. */
int   kvpy_sel(PyObject *blocks, PyObject *layers, PyObject *heads, PyObject *tokens, kvcl_sel_t *sel);
void  kvpy_sel_free(kvcl_sel_t *sel);

static inline PyObject *kvpy_none(void)
{
    Py_RETURN_NONE;
}

/* ---- the out-of-band store (oob.c) ---- */
int  kvpy_oob_set(kvpy_ctx_t *ctx, PyObject *oob, int rank, int size); /* oob: (set, get, fence) */
void kvpy_oob_clear(kvpy_ctx_t *ctx);

/* ---- the parts of the module ---- */
extern PyMethodDef kvpy_query_methods[]; /* of the module */
PyTypeObject *kvpy_make_context(void), *kvpy_make_comm(void), *kvpy_make_cache(void), *kvpy_make_mem(void),
    *kvpy_make_rmem(void), *kvpy_make_store(void), *kvpy_make_xfer(void), *kvpy_make_request(void),
    *kvpy_make_region(void);
PyObject *kvpy_context_leave(PyObject *self, PyObject *timeout);
PyObject *kvpy_context_join_address(PyObject *self, PyObject *none);
extern PyMethodDef kvpy_xfer_methods[], kvpy_probe_methods[], kvpy_recover_methods[]; /* of Comm */
PyObject           *kvpy_comm_stream_done(PyObject *self, PyObject *args);
/* member/events.c: of Context */
PyObject           *kvpy_context_event(PyObject *self, PyObject *none);
PyObject           *kvpy_context_event_fd(PyObject *self, PyObject *none);
PyObject           *kvpy_context_phase(PyObject *self, PyObject *arg);
PyObject           *kvpy_comm_collective(PyObject *self, PyObject *args);
PyObject           *kvpy_comm_exchange(PyObject *self, PyObject *args);
PyObject           *kvpy_comm_exchange_parts(PyObject *self, PyObject *args);
extern PyMethodDef kvpy_store_admin_methods[], kvpy_store_value_methods[], kvpy_store_post_methods[],
    kvpy_store_part_methods[]; /* of Store */
int                kvpy_store_keys(kvpy_obj_t *store, PyObject *arg, kvcl_key_t **keys_p, size_t *n_p); /* if open */
PyObject           *kvpy_bools(const uint8_t *bytes, size_t n);
PyObject           *kvpy_store_stats_dict(const kvcl_store_stats_t *stats);
PyObject           *kvpy_store_event(const kvcl_store_event_t *event);
PyObject           *kvpy_store_item(const kvcl_store_item_t *item);
extern PyMethodDef kvpy_request_methods[];

#endif
