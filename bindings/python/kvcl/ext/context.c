/*
 * Context: kvcl_init, kvcl_finalize, and per-process state.
 */
#include "kvcl/ext/ext.h"

#include <string.h>
#include <time.h>

PyTypeObject *kvpy_context_type;

/* Raise the exception of a failed kvcl_init; a store callback's exception, if any, becomes its cause. */
static void raise_init(kvpy_ctx_t *ctx, kvcl_status_t status)
{
    PyObject *type, *value, *tb;

    (void)kvpy_raise(status, NULL);
    if (ctx->oob_error == NULL) {
        return;
    }
    PyErr_Fetch(&type, &value, &tb);
    PyErr_NormalizeException(&type, &value, &tb);
    if (value != NULL) {
        PyException_SetCause(value, ctx->oob_error); /* takes the reference */
        ctx->oob_error = NULL;
    }
    PyErr_Restore(type, value, tb);
}

static PyObject *context_open(PyObject *cls, PyObject *args)
{
    kvcl_init_params_t params = KVCL_INIT_PARAMS_INIT;
    kvcl_status_t      status;
    PyObject           *oob;
    kvpy_ctx_t         *ctx;
    kvcl_context_h     handle = NULL;
    int                thread;

    if (!PyArg_ParseTuple(args, "zziizzpO:_open", &params.boot, &params.rendezvous, &params.rank, &params.nranks,
                          &params.secret_file, &params.path, &thread, &oob)) {
        return NULL;
    }
    ctx = (kvpy_ctx_t *)PyType_GenericAlloc((PyTypeObject *)cls, 0);
    if (ctx == NULL) {
        return NULL;
    }
    kvpy_link_init(&ctx->objects);
    kvpy_link_init(&ctx->ops);
    kvpy_link_init(&ctx->dropped);
    ctx->threadless = !thread;
    params.flags    = thread ? 0 : KVCL_INIT_NO_THREAD;
    params.flags   |= ((params.rank != -1) && (params.nranks == 0)) ? KVCL_INIT_RANK : 0;
    if (oob != Py_None) {
        if (kvpy_oob_set(ctx, oob, params.rank, params.nranks) != 0) {
            Py_DECREF(ctx);
            return NULL;
        }
        params.oob    = &ctx->oob;
        params.rank   = -1;
        params.nranks = 0;
    }
    Py_BEGIN_ALLOW_THREADS
    status = kvcl_init(&params, &handle);
    Py_END_ALLOW_THREADS
    if (status != KVCL_OK) {
        raise_init(ctx, status);
        Py_DECREF(ctx);
        return NULL;
    }
    ctx->handle = handle;
    Py_CLEAR(ctx->oob_error);
    return (PyObject *)ctx;
}

/* ---- closing ---- */

/* Cancel and collects operations in flight, and wait for calls of other threads, which may still post. @return how many
 * are left. */
static unsigned settle(kvpy_ctx_t *ctx)
{
    struct timespec nap  = {0, 1000000};
    unsigned        left = kvpy_ops_stop(ctx);
    int             i;

    for (i = 0; (i < 3000) && (left == 0) && (ctx->users > 0); ++i) {
        Py_BEGIN_ALLOW_THREADS
        nanosleep(&nap, NULL);
        Py_END_ALLOW_THREADS
        left = kvpy_ops_stop(ctx);
    }
    return (ctx->users > left) ? ctx->users : left;
}

static int check_views(kvpy_ctx_t *ctx)
{
    kvpy_link_t *link;
    kvpy_obj_t  *obj;

again:
    for (link = ctx->objects.next; link != &ctx->objects; link = link->next) {
        obj = KVPY_OF(link, kvpy_obj_t, link);
        if (obj->exports > 0) {
            Py_INCREF(obj);
            if (kvpy_obj_unview(obj) != 0) {
                Py_DECREF(obj);
                return -1;
            }
            Py_DECREF(obj);
            goto again; /* the list may have changed */
        }
    }
    return 0;
}

/* The newest open object of this kind (a tenant goes before its store), or NULL. */
static kvpy_obj_t *find_object(kvpy_ctx_t *ctx, kvpy_kind_t kind)
{
    kvpy_link_t *link;

    for (link = ctx->objects.prev; link != &ctx->objects; link = link->prev) {
        kvpy_obj_t *obj = KVPY_OF(link, kvpy_obj_t, link);
        if ((obj->kind == kind) && !obj->closing) {
            return obj;
        }
    }
    return NULL;
}

static int close_objects(kvpy_ctx_t *ctx)
{
    kvpy_obj_t *obj;
    int        kind, failed = 0;

    for (kind = KVPY_NONE + 1; (kind < KVPY_KINDS) && !failed; ++kind) {
        while (!failed && ((obj = find_object(ctx, (kvpy_kind_t)kind)) != NULL)) {
            Py_INCREF(obj);
            failed = kvpy_obj_close(obj);
            Py_DECREF(obj);
        }
    }
    return failed;
}

static void finalize(kvpy_ctx_t *ctx)
{
    kvcl_context_h handle = ctx->handle;

    ctx->closing = true;
    ctx->handle  = NULL;
    Py_BEGIN_ALLOW_THREADS
    kvcl_finalize(handle);
    Py_END_ALLOW_THREADS
    kvpy_oob_clear(ctx);
}

static int context_close(kvpy_ctx_t *ctx)
{
    char     text[120];
    unsigned left;

    if ((ctx->handle == NULL) || ctx->closing) {
        return 0;
    }
    if (check_views(ctx) != 0) {
        return -1;
    }
    ctx->closing = true; /* no new calls */
    left         = settle(ctx);
    if (left > 0) {
        ctx->closing = false;
        (void)PyOS_snprintf(text, sizeof(text), "the context is in use: %u calls or requests do not end", left);
        (void)kvpy_raise(KVCL_ERR_BUSY, text);
        return -1;
    }
    if (close_objects(ctx) != 0) {
        ctx->closing = false;
        return -1;
    }
    finalize(ctx);
    return 0;
}

static PyObject *context_close_py(PyObject *self, PyObject *none)
{
    (void)none;
    if (context_close((kvpy_ctx_t *)self) != 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* At exit: leaves the job whatever is still in use. Memoryviews over the library's memory are dead afterwards. */
static PyObject *context_abandon(PyObject *self, PyObject *none)
{
    kvpy_ctx_t *ctx = (kvpy_ctx_t *)self;

    (void)none;
    if (context_close(ctx) != 0) {
        PyErr_Clear();
        if ((ctx->handle != NULL) && !ctx->closing && (ctx->users == 0)) {
            /* The objects' handles are freed with the context. */
            kvpy_link_t *link;
            for (link = ctx->objects.next; link != &ctx->objects; link = link->next) {
                KVPY_OF(link, kvpy_obj_t, link)->handle = NULL;
            }
            finalize(ctx);
        }
    }
    Py_RETURN_NONE;
}

static void context_dealloc(PyObject *self)
{
    kvpy_ctx_t *ctx = (kvpy_ctx_t *)self;
    PyObject   *et, *ev, *tb;

    PyErr_Fetch(&et, &ev, &tb);
    if (ctx->handle != NULL) { /* no reference: no object, no operation */
        finalize(ctx);
    }
    kvpy_oob_clear(ctx);
    PyErr_Restore(et, ev, tb);
    kvpy_instance_free(self);
}

/* ---- the rest ---- */

static PyObject *context_address(PyObject *self, PyObject *none)
{
    kvpy_ctx_t    *ctx = (kvpy_ctx_t *)self;
    kvcl_status_t status = KVCL_ERR_TRUNCATED;
    PyObject      *text  = NULL;
    size_t        cap    = 4096, len = 0;
    char          *buf;

    (void)none;
    if (kvpy_ctx_check(ctx) != 0) {
        return NULL;
    }
    while (status == KVCL_ERR_TRUNCATED) {
        buf = calloc(1, cap + 1);
        if (buf == NULL) {
            return PyErr_NoMemory();
        }
        status = kvcl_context_address(ctx->handle, buf, cap, &len);
        if (status != KVCL_ERR_TRUNCATED) {
            text = (status == KVCL_OK) ? PyUnicode_FromString(buf) : kvpy_raise(status, NULL);
        }
        cap = len;
        free(buf);
    }
    return text;
}

static PyObject *context_fileno(PyObject *self, PyObject *none)
{
    kvpy_ctx_t    *ctx = (kvpy_ctx_t *)self;
    kvcl_status_t status;
    int           fd = -1;

    (void)none;
    if (kvpy_ctx_check(ctx) != 0) {
        return NULL;
    }
    KVPY_CTX_CALL(ctx, status, kvcl_context_eventfd(ctx->handle, &fd));
    return (status == KVCL_OK) ? PyLong_FromLong(fd) : kvpy_raise(status, NULL);
}

static PyObject *context_arm(PyObject *self, PyObject *none)
{
    kvpy_ctx_t    *ctx = (kvpy_ctx_t *)self;
    kvcl_status_t status;

    (void)none;
    if (kvpy_ctx_check(ctx) != 0) {
        return NULL;
    }
    KVPY_CTX_CALL(ctx, status, kvcl_context_arm(ctx->handle));
    return (status >= 0) ? PyBool_FromLong(status == KVCL_OK) : kvpy_raise(status, NULL);
}

static PyObject *context_progress(PyObject *self, PyObject *none)
{
    kvpy_ctx_t *ctx = (kvpy_ctx_t *)self;
    unsigned   n;

    (void)none;
    if (kvpy_ctx_check(ctx) != 0) {
        return NULL;
    }
    KVPY_CTX_CALL(ctx, n, kvcl_progress(ctx->handle));
    (void)kvpy_ops_reap(ctx);
    return PyLong_FromUnsignedLong(n);
}

static PyObject *context_stats(PyObject *self, PyObject *none)
{
    kvpy_ctx_t           *ctx = (kvpy_ctx_t *)self;
    kvcl_context_stats_t s    = KVCL_CONTEXT_STATS_INIT;
    kvcl_status_t        status;

    (void)none;
    if (kvpy_ctx_check(ctx) != 0) {
        return NULL;
    }
    KVPY_CTX_CALL(ctx, status, kvcl_context_stats(ctx->handle, &s));
    if (status != KVCL_OK) {
        return kvpy_raise(status, NULL);
    }
    return Py_BuildValue("{sKsKsKsKsKsKsKsKsK}", "bytes_out", (unsigned long long)s.bytes_out, "bytes_in",
                         (unsigned long long)s.bytes_in, "bytes_served", (unsigned long long)s.bytes_served, "ops",
                         (unsigned long long)s.ops, "strangers", (unsigned long long)s.strangers, "malformed",
                         (unsigned long long)s.malformed, "late", (unsigned long long)s.late,
                         "refused", (unsigned long long)s.refused, "bytes_native",
                         (unsigned long long)s.bytes_native);
}

/* Called inside kvcl_query_latency with the GIL held, since context_latency keeps it. */
static void add_latency(void *arg, const kvcl_latency_info_t *info)
{
    PyObject **dict_p = arg, *buckets, *pair, *key, *item = NULL;
    size_t   i;

    if (*dict_p == NULL) {
        return;
    }
    buckets = PyList_New(0);
    for (i = 0; (buckets != NULL) && (i < info->n_buckets); ++i) {
        if (info->counts[i] == 0) {
            continue;
        }
        pair = Py_BuildValue("(KK)", (unsigned long long)info->bounds_ns[i], (unsigned long long)info->counts[i]);
        if ((pair == NULL) || (PyList_Append(buckets, pair) != 0)) {
            Py_CLEAR(buckets);
        }
        Py_XDECREF(pair);
    }
    key = Py_BuildValue("(ss)", info->op, info->path);
    if (buckets != NULL) {
        item = Py_BuildValue("{sKsKsN}", "count", (unsigned long long)info->count, "sum_ns",
                             (unsigned long long)info->sum_ns, "buckets", buckets);
    }
    if ((key == NULL) || (item == NULL) || (PyDict_SetItem(*dict_p, key, item) != 0)) {
        Py_CLEAR(*dict_p);
    }
    Py_XDECREF(key);
    Py_XDECREF(item);
}

static PyObject *context_latency(PyObject *self, PyObject *none)
{
    kvpy_ctx_t    *ctx = (kvpy_ctx_t *)self;
    PyObject      *dict;
    kvcl_status_t status;

    (void)none;
    if (kvpy_ctx_check(ctx) != 0) {
        return NULL;
    }
    dict = PyDict_New();
    if (dict == NULL) {
        return NULL;
    }
    ++ctx->users;
    status = kvcl_query_latency(ctx->handle, add_latency, &dict);
    --ctx->users;
    if (status != KVCL_OK) {
        Py_XDECREF(dict);
        return kvpy_raise(status, NULL);
    }
    return dict;
}

static PyObject *context_closed(PyObject *self, void *closure)
{
    (void)closure;
    return PyBool_FromLong(((kvpy_ctx_t *)self)->handle == NULL);
}

static PyObject *context_threadless(PyObject *self, void *closure)
{
    (void)closure;
    return PyBool_FromLong(((kvpy_ctx_t *)self)->threadless);
}

static PyMethodDef methods[] = {
    {"_open", context_open, METH_VARARGS | METH_CLASS,
     "_open(boot, rendezvous, rank, nranks, secret_file, path, thread, oob): join the job."},
    {"_close", context_close_py, METH_NOARGS, "Leave the job."},
    {"_leave", kvpy_context_leave, METH_O, "_leave(timeout)"},
    {"_join_address", kvpy_context_join_address, METH_NOARGS, "_join_address(): str or None"},
    {"_abandon", context_abandon, METH_NOARGS, "Leave the job whatever is still used; at exit."},
    {"_address", context_address, METH_NOARGS, "This context's address as text."},
    {"fileno", context_fileno, METH_NOARGS,
     "A descriptor, readable when a request has completed, or, without a progress thread, when there is something "
     "to do; await does what is needed."},
    {"_arm", context_arm, METH_NOARGS,
     "Before sleeping on fileno(): whether nothing is left to do; if not, look at requests and call it again."},
    {"progress", context_progress, METH_NOARGS,
     "Move everything that can move; how many requests completed. Needed only with progress_thread=False."},
    {"stats", context_stats, METH_NOARGS, "Counters of this context, a dict."},
    {"latency", context_latency, METH_NOARGS,
     "How long calls have taken, see kvcl_query_latency: {(op, path): {\"count\", \"sum_ns\", \"buckets\"}}. A bucket\n"
     "is (its longest time in ns, how many calls), those without a call left out."},
    {"_event", kvpy_context_event, METH_NOARGS, "_event(): (type, ranks, view, view_id, time_ns, lost) or None."},
    {"_event_fd", kvpy_context_event_fd, METH_NOARGS, "_event_fd(): readable while there is an event."},
    {"_phase", kvpy_context_phase, METH_O, "_phase(warm_up)"},
    {NULL, NULL, 0, NULL}};

PyTypeObject *kvpy_make_context(void)
{
    static PyGetSetDef getset[] = {
        {"closed", context_closed, NULL, "Whether it was closed.", NULL},
        {"_threadless", context_threadless, NULL, "Whether it has no progress thread.", NULL},
        {NULL, NULL, NULL, NULL, NULL}};
    static PyType_Slot slots[] = {
        {Py_tp_doc, (void *)(uintptr_t)"This process's membership in a job."},
        {Py_tp_dealloc, (void *)context_dealloc},
        {Py_tp_methods, methods},
        {Py_tp_getset, getset},
        {0, NULL}};
    static PyType_Spec spec = {"kvcl._kvcl.Context", sizeof(kvpy_ctx_t), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};

    return (PyTypeObject *)PyType_FromSpec(&spec);
}
