/*
 * The prefix index (kvcl_sched_index.h) in Python: kvcl.sched.Index is a subclass. Calls run without the GIL; a running
 * call counts itself in users, so that no other thread closes the index under it.
 */
#include "kvcl/ext/sched/sched.h"

#include <string.h>

typedef struct kvpy_index {
    PyObject_HEAD
    kvcl_sched_index_h handle; /* NULL: closed */
    unsigned           users;
} kvpy_index_t;

#define CALL(_index, _status, _expr)                                                                                   \
    do {                                                                                                               \
        ++(_index)->users;                                                                                             \
        Py_BEGIN_ALLOW_THREADS                                                                                         \
        (_status) = (_expr);                                                                                           \
        Py_END_ALLOW_THREADS                                                                                           \
        --(_index)->users;                                                                                             \
    } while (0)

static kvpy_index_t *open_index(PyObject *self)
{
    kvpy_index_t *index = (kvpy_index_t *)self;

    return (index->handle != NULL) ? index : kvpy_raise(KVCL_ERR_SHUTDOWN, "the index is closed");
}

static PyObject *none_or_raise(kvcl_status_t status)
{
    return (status == KVCL_OK) ? kvpy_none() : kvpy_raise(status, NULL);
}

static int source_arg(PyObject *arg, uint32_t *source)
{
    uint64_t value;

    if (kvpy_u64(arg, "source", UINT32_MAX, &value) != 0) {
        return -1;
    }
    *source = (uint32_t)value;
    return 0;
}

/* (max_instances, max_blocks, predict_ns) */
static PyObject *index_new(PyTypeObject *cls, PyObject *args, PyObject *kwargs)
{
    static const kvpy_field_t fields[] = {KVPY_FIELD(kvcl_sched_index_params_t, max_instances, KVPY_U32),
                                          KVPY_FIELD(kvcl_sched_index_params_t, max_blocks, KVPY_U64),
                                          KVPY_FIELD(kvcl_sched_index_params_t, predict_ns, KVPY_U64)};
    kvcl_sched_index_params_t params   = KVCL_SCHED_INDEX_PARAMS_INIT;
    allocfunc                 alloc    = (allocfunc)PyType_GetSlot(cls, Py_tp_alloc);
    kvpy_index_t              *index;
    kvcl_status_t             status;

    (void)kwargs;
    if (kvpy_fields_in(args, fields, 3, &params) != 0) {
        return NULL;
    }
    index = (kvpy_index_t *)alloc(cls, 0);
    if (index != NULL) {
        status = kvcl_sched_index_create(&params, &index->handle);
        if (status != KVCL_OK) {
            Py_DECREF(index);
            return kvpy_raise(status, NULL);
        }
    }
    return (PyObject *)index;
}

static PyObject *index_close(PyObject *self, PyObject *none)
{
    kvpy_index_t *index = (kvpy_index_t *)self;

    (void)none;
    if (index->users != 0) {
        return kvpy_raise(KVCL_ERR_BUSY, "another thread is in a call of the index");
    }
    kvcl_sched_index_destroy(index->handle);
    index->handle = NULL;
    Py_RETURN_NONE;
}

static void index_dealloc(PyObject *self)
{
    kvcl_sched_index_destroy(((kvpy_index_t *)self)->handle);
    kvpy_instance_free(self);
}

/* ---- sources ---- */

/* (numbers of source_fields, name, model, salt, only_model, only_tenant, only_backend) */
static PyObject *index_source(PyObject *self, PyObject *args)
{
    static const kvpy_field_t fields[] = {
        KVPY_FIELD(kvcl_sched_source_params_t, flags, KVPY_U64),
        KVPY_FIELD(kvcl_sched_source_params_t, instance, KVPY_U32),
        KVPY_FIELD(kvcl_sched_source_params_t, feed, KVPY_U32),
        KVPY_FIELD(kvcl_sched_source_params_t, tiers, KVPY_U32),
        KVPY_FIELD(kvcl_sched_source_params_t, block_tokens, KVPY_U32),
        KVPY_FIELD(kvcl_sched_source_params_t, dp_rank, KVPY_U32),
        KVPY_FIELD(kvcl_sched_source_params_t, max_blocks, KVPY_U64)};
    kvcl_sched_source_params_t p = KVCL_SCHED_SOURCE_PARAMS_INIT;
    kvpy_index_t               *index = open_index(self);
    PyObject                   *numbers;
    const char                 *salt;
    Py_ssize_t                 salt_len;
    uint32_t                   source = 0;
    kvcl_status_t              status;

    if ((index == NULL) || !PyArg_ParseTuple(args, "Oszy#zzz:_source", &numbers, &p.name, &p.model, &salt, &salt_len,
                                             &p.only_model, &p.only_tenant, &p.only_backend) ||
        (kvpy_fields_in(numbers, fields, sizeof(fields) / sizeof(fields[0]), &p) != 0)) {
        return NULL;
    }
    p.salt     = salt;
    p.salt_len = (size_t)salt_len;
    CALL(index, status, kvcl_sched_index_source(index->handle, &p, &source));
    return (status == KVCL_OK) ? PyLong_FromUnsignedLong(source) : kvpy_raise(status, NULL);
}

static PyObject *index_find(PyObject *self, PyObject *args)
{
    kvpy_index_t  *index = open_index(self);
    const char    *name;
    uint32_t      source = 0;
    kvcl_status_t status;

    if ((index == NULL) || !PyArg_ParseTuple(args, "s:find", &name)) {
        return NULL;
    }
    CALL(index, status, kvcl_sched_index_find(index->handle, name, &source));
    return (status == KVCL_OK) ? PyLong_FromUnsignedLong(source) : kvpy_raise(status, NULL);
}

typedef kvcl_status_t (*source_call_t)(kvcl_sched_index_h index, uint32_t source);

static PyObject *of_source(PyObject *self, PyObject *arg, source_call_t call)
{
    kvpy_index_t  *index = open_index(self);
    uint32_t      source;
    kvcl_status_t status;

    if ((index == NULL) || (source_arg(arg, &source) != 0)) {
        return NULL;
    }
    CALL(index, status, call(index->handle, source));
    return none_or_raise(status);
}

static PyObject *index_forget(PyObject *self, PyObject *arg)
{
    return of_source(self, arg, kvcl_sched_index_forget);
}

static PyObject *index_clear(PyObject *self, PyObject *arg)
{
    return of_source(self, arg, kvcl_sched_index_clear);
}

static PyObject *index_info(PyObject *self, PyObject *arg)
{
    static const kvpy_field_t fields[] = {
        KVPY_FIELD(kvcl_sched_source_info_t, instance, KVPY_U32), KVPY_FIELD(kvcl_sched_source_info_t, state, KVPY_U32),
        KVPY_FIELD(kvcl_sched_source_info_t, next, KVPY_U64), KVPY_FIELD(kvcl_sched_source_info_t, blocks, KVPY_U64),
        KVPY_FIELD(kvcl_sched_source_info_t, messages, KVPY_U64),
        KVPY_FIELD(kvcl_sched_source_info_t, stored, KVPY_U64), KVPY_FIELD(kvcl_sched_source_info_t, removed, KVPY_U64),
        KVPY_FIELD(kvcl_sched_source_info_t, gaps, KVPY_U64), KVPY_FIELD(kvcl_sched_source_info_t, lost, KVPY_U64),
        KVPY_FIELD(kvcl_sched_source_info_t, repeated, KVPY_U64),
        KVPY_FIELD(kvcl_sched_source_info_t, restarts, KVPY_U64),
        KVPY_FIELD(kvcl_sched_source_info_t, cleared, KVPY_U64),
        KVPY_FIELD(kvcl_sched_source_info_t, malformed, KVPY_U64),
        KVPY_FIELD(kvcl_sched_source_info_t, unknown, KVPY_U64),
        KVPY_FIELD(kvcl_sched_source_info_t, orphans, KVPY_U64),
        KVPY_FIELD(kvcl_sched_source_info_t, others, KVPY_U64), KVPY_FIELD(kvcl_sched_source_info_t, full, KVPY_U64)};
    kvcl_sched_source_info_t info   = KVCL_SCHED_SOURCE_INFO_INIT;
    kvpy_index_t             *index = open_index(self);
    uint32_t                 source;
    kvcl_status_t            status;

    if ((index == NULL) || (source_arg(arg, &source) != 0)) {
        return NULL;
    }
    CALL(index, status, kvcl_sched_index_info(index->handle, source, &info));
    return (status == KVCL_OK) ? kvpy_fields_out(&info, fields, sizeof(fields) / sizeof(fields[0]))
                               : kvpy_raise(status, NULL);
}

/* ---- what goes in ---- */

/* (source, tier, keys, whether they are added) */
static PyObject *index_change(PyObject *self, PyObject *args)
{
    kvpy_index_t  *index = open_index(self);
    PyObject      *arg;
    kvcl_key_t    *keys;
    unsigned      source, tier;
    int           adds;
    size_t        n;
    kvcl_status_t status;

    if ((index == NULL) || !PyArg_ParseTuple(args, "IIOp:_change", &source, &tier, &arg, &adds) ||
        (kvpy_keys(arg, &keys, &n) != 0)) {
        return NULL;
    }
    CALL(index, status, adds ? kvcl_sched_index_add(index->handle, source, tier, keys, n)
                             : kvcl_sched_index_remove(index->handle, source, tier, keys, n));
    free(keys);
    return none_or_raise(status);
}

/* (source, frames, whether they were replayed): the state */
static PyObject *index_feed(PyObject *self, PyObject *args)
{
    enum { FRAMES = 8 };
    kvpy_index_t       *index = open_index(self);
    kvpy_buf_t         bufs[FRAMES];
    kvcl_sched_frame_t frames[FRAMES];
    PyObject           *list, *seq;
    unsigned           source;
    int                replayed;
    uint32_t           state = 0;
    Py_ssize_t         n, i;
    kvcl_status_t      status = KVCL_ERR_INVALID_PARAM;

    if ((index == NULL) || !PyArg_ParseTuple(args, "IOp:_feed", &source, &list, &replayed)) {
        return NULL;
    }
    seq = PySequence_Tuple(list);
    if (seq == NULL) {
        return NULL;
    }
    n = PyTuple_Size(seq);
    if (n > FRAMES) {
        PyErr_Format(PyExc_ValueError, "a message of %zd frames: at most %d", n, FRAMES);
    }
    for (i = 0; (n <= FRAMES) && (i < n) && (kvpy_buf_take(PyTuple_GetItem(seq, i), 0, &bufs[i]) == 0); ++i) {
        frames[i] = (kvcl_sched_frame_t){bufs[i].ptr, bufs[i].len};
    }
    if (i == n) {
        CALL(index, status, kvcl_sched_index_feed(index->handle, source, replayed ? KVCL_SCHED_REPLAYED : 0, frames,
                                                  (size_t)n, &state));
    }
    while (i-- > 0) {
        kvpy_buf_drop(&bufs[i]);
    }
    Py_DECREF(seq);
    if (PyErr_Occurred()) {
        return NULL;
    }
    return (status == KVCL_OK) ? PyLong_FromUnsignedLong(state) : kvpy_raise(status, NULL);
}

static PyObject *index_replay(PyObject *self, PyObject *arg)
{
    kvpy_index_t  *index = open_index(self);
    uint8_t       request[8];
    uint32_t      source;
    kvcl_status_t status;

    if ((index == NULL) || (source_arg(arg, &source) != 0)) {
        return NULL;
    }
    CALL(index, status, kvcl_sched_index_replay(index->handle, source, request));
    return (status == KVCL_OK) ? PyBytes_FromStringAndSize((const char *)request, 8) : kvpy_raise(status, NULL);
}

/* (instance, keys, now_ns) */
static PyObject *index_predict(PyObject *self, PyObject *args)
{
    kvpy_index_t       *index = open_index(self);
    PyObject           *arg;
    kvcl_key_t         *keys;
    unsigned           instance;
    unsigned long long now;
    size_t             n;
    kvcl_status_t      status;

    if ((index == NULL) || !PyArg_ParseTuple(args, "IOK:_predict", &instance, &arg, &now) ||
        (kvpy_keys(arg, &keys, &n) != 0)) {
        return NULL;
    }
    CALL(index, status, kvcl_sched_index_predict(index->handle, instance, keys, n, now));
    free(keys);
    return none_or_raise(status);
}

static PyObject *index_expire(PyObject *self, PyObject *arg)
{
    kvpy_index_t  *index = open_index(self);
    uint64_t      now;
    kvcl_status_t status;

    if ((index == NULL) || (kvpy_u64(arg, "now", UINT64_MAX, &now) != 0)) {
        return NULL;
    }
    CALL(index, status, kvcl_sched_index_expire(index->handle, now));
    return none_or_raise(status);
}

/* ---- a store's events and blocks ---- */

/* (seq, kind, tier, key, tenant, bytes, to_rank) */

static int event_in(PyObject *tuple, kvcl_store_event_t *event)
{
    unsigned long long seq, tenant;
    unsigned           kind, tier, bytes;
    const char         *key;
    Py_ssize_t         len;
    PyObject           *to_rank;

    if (!PyTuple_Check(tuple) ||
        !PyArg_ParseTuple(tuple, "KIIy#KIO", &seq, &kind, &tier, &key, &len, &tenant, &bytes, &to_rank)) {
        return -1;
    }
    if (len != (Py_ssize_t)sizeof(event->key)) {
        PyErr_Format(PyExc_ValueError, "a key has 32 bytes, not %zd", len);
        return -1;
    }
    *event = (kvcl_store_event_t){.seq = seq, .kind = kind, .tier = tier, .tenant = tenant, .bytes = bytes,
                                  .to_rank = -1};
    memcpy(&event->key, key, sizeof(event->key));
    return 0;
}

static PyObject *index_store_events(PyObject *self, PyObject *args)
{
    kvpy_index_t       *index = open_index(self);
    PyObject           *list, *seq = NULL;
    kvcl_store_event_t *events = NULL;
    unsigned           source;
    uint32_t           state = 0;
    Py_ssize_t         n = 0, i = 0;
    kvcl_status_t      status;

    if ((index == NULL) || !PyArg_ParseTuple(args, "IO:_store_events", &source, &list)) {
        return NULL;
    }
    seq    = PySequence_Tuple(list);
    n      = (seq != NULL) ? PyTuple_Size(seq) : 0;
    events = calloc((size_t)n + 1, sizeof(*events));
    if ((seq == NULL) || (events == NULL)) {
        Py_XDECREF(seq);
        free(events);
        return (seq == NULL) ? NULL : PyErr_NoMemory();
    }
    while ((i < n) && (event_in(PyTuple_GetItem(seq, i), &events[i]) == 0)) {
        ++i;
    }
    Py_DECREF(seq);
    if (i < n) {
        free(events);
        return NULL;
    }
    CALL(index, status, kvcl_sched_index_store_events(index->handle, source, events, sizeof(*events), (size_t)n,
                                                      &state));
    free(events);
    return (status == KVCL_OK) ? PyLong_FromUnsignedLong(state) : kvpy_raise(status, NULL);
}

/* (source, tier, keys, flags, seq): blocks of one tier of a listing */
static PyObject *index_store_list(PyObject *self, PyObject *args)
{
    kvpy_index_t       *index = open_index(self);
    PyObject           *arg;
    kvcl_key_t         *keys;
    kvcl_store_item_t  *items;
    unsigned           source, tier, flags;
    unsigned long long seq;
    size_t             n, i;
    kvcl_status_t      status;

    if ((index == NULL) || !PyArg_ParseTuple(args, "IIOIK:_store_list", &source, &tier, &arg, &flags, &seq) ||
        (kvpy_keys(arg, &keys, &n) != 0)) {
        return NULL;
    }
    items = calloc(n + 1, sizeof(*items));
    if (items == NULL) {
        free(keys);
        return PyErr_NoMemory();
    }
    for (i = 0; i < n; ++i) {
        items[i].key  = keys[i];
        items[i].tier = tier;
    }
    CALL(index, status, kvcl_sched_index_store_list(index->handle, source, flags, items, sizeof(*items), n, seq));
    free(items);
    free(keys);
    return none_or_raise(status);
}

/* ---- what comes out ---- */

/* (keys, flags, least): [(inst, first, blocks, tier, flags)] */
static PyObject *index_match(PyObject *self, PyObject *args)
{
    kvpy_index_t      *index = open_index(self);
    PyObject          *arg, *list = NULL;
    kvcl_key_t        *keys;
    kvcl_sched_hold_t *holds = NULL, *larger;
    unsigned          flags, least;
    size_t            n, cap = 256, found = 0;
    kvcl_status_t     status = KVCL_OK;

    if ((index == NULL) || !PyArg_ParseTuple(args, "OII:_match", &arg, &flags, &least) ||
        (kvpy_keys(arg, &keys, &n) != 0)) {
        return NULL;
    }
    do { /* the index may change between two matches */
        cap    = (found > cap) ? found + found / 4 : cap;
        larger = realloc(holds, cap * sizeof(*holds));
        if (larger == NULL) {
            PyErr_NoMemory();
            break;
        }
        holds = larger;
        CALL(index, status, kvcl_sched_index_match(index->handle, keys, n, flags, least, holds, cap, &found));
    } while ((status == KVCL_OK) && (found > cap));
    if (!PyErr_Occurred()) {
        list = (status == KVCL_OK) ? kvpy_holds_out(holds, found) : kvpy_raise(status, NULL);
    }
    free(holds);
    free(keys);
    return list;
}

static PyObject *index_stats(PyObject *self, PyObject *none)
{
    static const kvpy_field_t fields[] = {
        KVPY_FIELD(kvcl_sched_index_stats_t, instances, KVPY_U64),
        KVPY_FIELD(kvcl_sched_index_stats_t, sources, KVPY_U64),
        KVPY_FIELD(kvcl_sched_index_stats_t, degraded, KVPY_U64),
        KVPY_FIELD(kvcl_sched_index_stats_t, blocks, KVPY_U64),
        KVPY_FIELD(kvcl_sched_index_stats_t, holders, KVPY_U64),
        KVPY_FIELD(kvcl_sched_index_stats_t, predicted, KVPY_U64),
        KVPY_FIELD(kvcl_sched_index_stats_t, bytes, KVPY_U64),
        KVPY_FIELD(kvcl_sched_index_stats_t, retired, KVPY_U64)};
    kvcl_sched_index_stats_t stats  = KVCL_SCHED_INDEX_STATS_INIT;
    kvpy_index_t             *index = open_index(self);
    kvcl_status_t            status;

    (void)none;
    if (index == NULL) {
        return NULL;
    }
    CALL(index, status, kvcl_sched_index_stats(index->handle, &stats));
    return (status == KVCL_OK) ? kvpy_fields_out(&stats, fields, sizeof(fields) / sizeof(fields[0]))
                               : kvpy_raise(status, NULL);
}

static PyObject *index_save(PyObject *self, PyObject *none)
{
    kvpy_index_t  *index = open_index(self);
    PyObject      *bytes = NULL;
    char          *buf   = NULL, *larger;
    size_t        len = 0, cap;
    kvcl_status_t status;

    (void)none;
    if (index == NULL) {
        return NULL;
    }
    do { /* the index may grow between two calls */
        cap    = len + len / 8;
        larger = realloc(buf, cap + 1);
        if (larger == NULL) {
            free(buf);
            return PyErr_NoMemory();
        }
        buf = larger;
        CALL(index, status, kvcl_sched_index_save(index->handle, (cap > 0) ? buf : NULL, cap, &len));
    } while ((status == KVCL_ERR_NO_SPACE) || ((status == KVCL_OK) && (cap == 0)));
    bytes = (status == KVCL_OK) ? PyBytes_FromStringAndSize(buf, (Py_ssize_t)len) : kvpy_raise(status, NULL);
    free(buf);
    return bytes;
}

static PyObject *index_load(PyObject *self, PyObject *arg)
{
    kvpy_index_t  *index = open_index(self);
    kvpy_buf_t    buf;
    kvcl_status_t status;

    if ((index == NULL) || (kvpy_buf_take(arg, 0, &buf) != 0)) {
        return NULL;
    }
    CALL(index, status, kvcl_sched_index_load(index->handle, buf.ptr, buf.len));
    kvpy_buf_drop(&buf);
    return none_or_raise(status);
}

static PyObject *index_closed(PyObject *self, void *closure)
{
    (void)closure;
    return PyBool_FromLong(((kvpy_index_t *)self)->handle == NULL);
}

/* sched_root(salt, model, lora, tenant, extra, group) */
PyObject *kvpy_sched_root(PyObject *module, PyObject *args)
{
    kvcl_sched_root_t root = KVCL_SCHED_ROOT_INIT;
    const char        *salt;
    Py_ssize_t        salt_len;
    unsigned          group;
    kvcl_key_t        key;
    kvcl_status_t     status;

    (void)module;
    if (!PyArg_ParseTuple(args, "y#zzzzI:sched_root", &salt, &salt_len, &root.model, &root.lora, &root.tenant,
                          &root.extra, &group)) {
        return NULL;
    }
    root.salt     = salt;
    root.salt_len = (size_t)salt_len;
    root.group    = group;
    status        = kvcl_sched_index_root(&root, &key);
    return (status == KVCL_OK) ? PyBytes_FromStringAndSize((const char *)key.bytes, sizeof(key.bytes))
                               : kvpy_raise(status, NULL);
}

PyTypeObject *kvpy_make_index(void)
{
    static PyMethodDef methods[] = {
        {"_source", index_source, METH_VARARGS, "_source(numbers, name, model, salt, only_model, ...)"},
        {"find", index_find, METH_VARARGS, "The number of the source of that name: after load()."},
        {"forget", index_forget, METH_O, "The source has gone, with its blocks."},
        {"clear", index_clear, METH_O, "Drop the blocks of a source that has none now, such as a restarted engine."},
        {"_info", index_info, METH_O, "_info(source)"},
        {"_change", index_change, METH_VARARGS, "_change(source, tier, keys, adds)"},
        {"_feed", index_feed, METH_VARARGS, "_feed(source, frames, replayed)"},
        {"replay_request", index_replay, METH_O,
         "The request of a replay, for the publisher's replay socket: the first number that was not seen, as 8 bytes."},
        {"_predict", index_predict, METH_VARARGS, "_predict(instance, keys, now_ns)"},
        {"_expire", index_expire, METH_O, "_expire(now_ns)"},
        {"_store_events", index_store_events, METH_VARARGS, "_store_events(source, events)"},
        {"_store_list", index_store_list, METH_VARARGS, "_store_list(source, tier, keys, flags, seq)"},
        {"_match", index_match, METH_VARARGS, "_match(keys, flags, least)"},
        {"_stats", index_stats, METH_NOARGS, "_stats()"},
        {"save", index_save, METH_NOARGS, "The index as bytes. They hold the sources' salts: keep them as a secret."},
        {"load", index_load, METH_O, "Load saved bytes into an index without a source."},
        {"close", index_close, METH_NOARGS, "Free it. Busy while another thread is in a call of it."},
        {NULL, NULL, 0, NULL}};
    static PyGetSetDef getset[] = {
        {"closed", index_closed, NULL, "Whether it was closed.", NULL},
        {NULL, NULL, NULL, NULL, NULL}};
    static PyType_Slot slots[] = {
        {Py_tp_doc, (void *)(uintptr_t)"Which instance holds which blocks."},
        {Py_tp_dealloc, (void *)index_dealloc},
        {Py_tp_new, (void *)index_new},
        {Py_tp_methods, methods},
        {Py_tp_getset, getset},
        {0, NULL}};
    static PyType_Spec spec = {"kvcl._kvcl.SchedIndex", sizeof(kvpy_index_t), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};

    return (PyTypeObject *)PyType_FromSpec(&spec);
}
