/*
 * The common part of communicators, caches, memory and stores: the link to the context, users, closing, and memoryviews
 * over memory that Python does not own.
 */
#include "kvcl/ext/ext.h"

#include <string.h>

kvpy_name_t kvpy_class_name(PyTypeObject *type)
{
    PyObject    *name = PyObject_GetAttrString((PyObject *)type, "__name__");
    PyObject    *text = ((name != NULL) && PyUnicode_Check(name)) ? PyUnicode_AsUTF8String(name) : NULL;
    kvpy_name_t out;

    (void)PyOS_snprintf(out.text, sizeof(out.text), "%.60s", (text != NULL) ? PyBytes_AsString(text) : "object");
    PyErr_Clear();
    Py_XDECREF(text);
    Py_XDECREF(name);
    return out;
}

void kvpy_instance_free(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    freefunc     drop  = (freefunc)(uintptr_t)PyType_GetSlot(type, Py_tp_free);

    drop(self);
    Py_DECREF(type); /* an instance of a type that PyType_FromSpec made refers to it */
}

/* ---- regions: the exporters of memoryviews ---- */

typedef struct region {
    PyObject_HEAD
    kvpy_obj_t *owner; /* a reference; the memory is valid while owner->handle is set */
    void       *ptr;
    Py_ssize_t len;
} region_t;

PyTypeObject *kvpy_region_type;

static int region_getbuffer(PyObject *self, Py_buffer *view, int flags)
{
    region_t *region = (region_t *)self;

    if ((region->owner == NULL) || (region->owner->handle == NULL) || region->owner->closing) {
        PyErr_SetString(PyExc_BufferError, "the memory was given back");
        view->obj = NULL;
        return -1;
    }
    if (PyBuffer_FillInfo(view, self, region->ptr, region->len, 0, flags) != 0) {
        return -1;
    }
    ++region->owner->exports;
    return 0;
}

static void region_releasebuffer(PyObject *self, Py_buffer *view)
{
    (void)view;
    --((region_t *)self)->owner->exports;
}

static void region_dealloc(PyObject *self)
{
    Py_CLEAR(((region_t *)self)->owner);
    kvpy_instance_free(self);
}

PyTypeObject *kvpy_make_region(void)
{
    static PyType_Slot slots[] = {
        {Py_tp_doc, (void *)(uintptr_t)"Memory of a cache or mem, for memoryview()."},
        {Py_tp_dealloc, (void *)region_dealloc},
        {Py_bf_getbuffer, (void *)region_getbuffer},
        {Py_bf_releasebuffer, (void *)region_releasebuffer},
        {0, NULL}};
    static PyType_Spec spec = {"kvcl._kvcl.Region", sizeof(region_t), 0, Py_TPFLAGS_DEFAULT, slots};

    return (PyTypeObject *)PyType_FromSpec(&spec);
}

/* ---- life ---- */

static void free_handle(kvpy_kind_t kind, void *handle)
{
    switch (kind) {
    case KVPY_XFER:
        kvcl_xfer_free(handle);
        break;
    case KVPY_EXPERTS:
        kvcl_ep_close(handle);
        break;
    case KVPY_STORE:
        kvcl_store_close(handle);
        break;
    case KVPY_RMEM:
        kvcl_rmem_free(handle);
        break;
    case KVPY_CACHE:
        kvcl_cache_destroy(handle);
        break;
    case KVPY_MEM:
        kvcl_mem_free(handle);
        break;
    case KVPY_COMM:
        kvcl_comm_free(handle);
        break;
    case KVPY_NONE:
    case KVPY_KINDS:
        break;
    }
}

PyTypeObject *kvpy_obj_type(const char *name, const char *doc, PyMethodDef *methods, PyGetSetDef *getset)
{
    PyType_Slot slots[] = {{Py_tp_doc, (void *)(uintptr_t)doc}, {Py_tp_dealloc, (void *)kvpy_obj_dealloc},
                           {Py_tp_methods, methods}, {Py_tp_getset, getset}, {0, NULL}};
    PyType_Spec spec    = {name, sizeof(kvpy_obj_t), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};

    return (PyTypeObject *)PyType_FromSpec(&spec);
}

PyObject *kvpy_obj_new(PyTypeObject *cls, kvpy_kind_t kind, kvpy_ctx_t *ctx, void *handle)
{
    kvpy_obj_t *obj = (kvpy_obj_t *)PyType_GenericAlloc(cls, 0);

    if (obj == NULL) {
        Py_BEGIN_ALLOW_THREADS
        free_handle(kind, handle);
        Py_END_ALLOW_THREADS
        return NULL;
    }
    obj->kind   = kind;
    obj->handle = handle;
    obj->ctx    = ctx;
    Py_INCREF(ctx);
    kvpy_link_add(&ctx->objects, &obj->link);
    return (PyObject *)obj;
}

int kvpy_ctx_check(kvpy_ctx_t *ctx)
{
    if ((ctx->handle == NULL) || ctx->closing) {
        (void)kvpy_raise(KVCL_ERR_SHUTDOWN, "the context is closed");
        return -1;
    }
    return 0;
}

int kvpy_obj_check(kvpy_obj_t *obj)
{
    if ((obj->handle == NULL) || obj->closing) {
        char text[80];
        (void)PyOS_snprintf(text, sizeof(text), "the %s is closed", kvpy_class_name(Py_TYPE(obj)).text);
        (void)kvpy_raise(KVCL_ERR_SHUTDOWN, text);
        return -1;
    }
    return kvpy_ctx_check(obj->ctx);
}

kvpy_obj_t *kvpy_obj_arg(PyObject *arg, PyTypeObject *type, kvpy_ctx_t *ctx)
{
    kvpy_obj_t *obj = (kvpy_obj_t *)arg;

    if (!PyObject_TypeCheck(arg, type)) {
        PyErr_Format(PyExc_TypeError, "a %s is needed, not '%s'", kvpy_class_name(type).text,
                     kvpy_class_name(Py_TYPE(arg)).text);
        return NULL;
    }
    if (kvpy_obj_check(obj) != 0) {
        return NULL;
    }
    if ((ctx != NULL) && (obj->ctx != ctx)) {
        PyErr_Format(PyExc_ValueError, "the %s belongs to another context",
                     kvpy_class_name(Py_TYPE(arg)).text);
        return NULL;
    }
    return obj;
}

int kvpy_obj_keep(kvpy_obj_t *obj, kvpy_obj_t *used)
{
    int has = 0;

    if (obj->keeps == NULL) {
        obj->keeps = PyList_New(0);
    } else {
        Py_ssize_t i;
        for (i = 0; i < PyList_Size(obj->keeps); ++i) {
            has |= (PyList_GetItem(obj->keeps, i) == (PyObject *)used);
        }
    }
    if (has) {
        return 0;
    }
    if ((obj->keeps == NULL) || (PyList_Append(obj->keeps, (PyObject *)used) != 0)) {
        return -1;
    }
    ++used->users;
    return 0;
}

static void drop_keeps(kvpy_obj_t *obj)
{
    PyObject   *keeps = obj->keeps;
    Py_ssize_t i;

    obj->keeps = NULL;
    for (i = 0; (keeps != NULL) && (i < PyList_Size(keeps)); ++i) {
        --((kvpy_obj_t *)PyList_GetItem(keeps, i))->users;
    }
    Py_XDECREF(keeps);
}

void kvpy_enter(kvpy_obj_t *obj)
{
    ++obj->users;
    ++obj->ctx->users;
}

void kvpy_leave(kvpy_obj_t *obj)
{
    --obj->users;
    --obj->ctx->users;
}

int kvpy_obj_unview(kvpy_obj_t *obj)
{
    Py_ssize_t i;

    for (i = 0; (obj->views != NULL) && (obj->exports > 0) && (i < PyList_Size(obj->views)); ++i) {
        PyObject *view = PyObject_CallObject(PyList_GetItem(obj->views, i), NULL);
        PyObject *none = ((view != NULL) && (view != Py_None)) ? PyObject_CallMethod(view, "release", NULL) : NULL;

        PyErr_Clear(); /* a region with views of its own stays; exports counts it */
        Py_XDECREF(none);
        Py_XDECREF(view);
    }
    if (obj->exports > 0) {
        PyErr_Format(PyExc_BufferError, "memory of the %s is still seen by %u memoryview%s or array%s: release them "
                     "first", kvpy_class_name(Py_TYPE(obj)).text, obj->exports, (obj->exports > 1) ? "s" : "",
                     (obj->exports > 1) ? "s" : "");
        return -1;
    }
    return 0;
}

/* Release everything of an unused object. Other threads may run meanwhile. */
static void shut(kvpy_obj_t *obj)
{
    kvpy_ctx_t *ctx    = obj->ctx;
    void       *handle = obj->handle;
    size_t     i;

    obj->closing = true;
    kvpy_link_del(&obj->link);
    ++ctx->users;
    Py_BEGIN_ALLOW_THREADS
    free_handle(obj->kind, handle);
    Py_END_ALLOW_THREADS
    --ctx->users;
    obj->handle = NULL;
    for (i = 0; i < obj->n_bufs; ++i) {
        kvpy_buf_drop(&obj->bufs[i]);
    }
    free(obj->bufs);
    obj->bufs   = NULL;
    obj->n_bufs = 0;
    drop_keeps(obj);
    Py_CLEAR(obj->views);
    obj->ctx = NULL;
    Py_DECREF(ctx);
}

int kvpy_obj_close(kvpy_obj_t *obj)
{
    char text[160];

    if ((obj->handle == NULL) || obj->closing) {
        return 0;
    }
    while ((obj->users > 0) && kvpy_ops_reap(obj->ctx)) {
        /* the next */
    }
    if ((obj->handle == NULL) || obj->closing) { /* closed meanwhile */
        return 0;
    }
    if (obj->users > 0) {
        (void)PyOS_snprintf(text, sizeof(text), "the %s is in use: %u calls, requests in flight or objects from it",
                            kvpy_class_name(Py_TYPE(obj)).text, obj->users);
        (void)kvpy_raise(KVCL_ERR_BUSY, text);
        return -1;
    }
    if (kvpy_obj_unview(obj) != 0) {
        return -1;
    }
    if (obj->handle != NULL) { /* releasing views may have run any Python code */
        shut(obj);
    }
    return 0;
}

PyObject *kvpy_obj_close_py(PyObject *self, PyObject *none)
{
    (void)none;
    if (kvpy_obj_close((kvpy_obj_t *)self) != 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

PyObject *kvpy_obj_closed_py(PyObject *self, void *closure)
{
    (void)closure;
    return PyBool_FromLong(((kvpy_obj_t *)self)->handle == NULL);
}

void kvpy_obj_dealloc(PyObject *self)
{
    kvpy_obj_t *obj = (kvpy_obj_t *)self;
    PyObject   *et, *ev, *tb;

    PyErr_Fetch(&et, &ev, &tb);
    if (obj->handle != NULL) { /* no reference: no user, no export */
        shut(obj);
    }
    PyErr_Restore(et, ev, tb);
    kvpy_instance_free(self);
}

/* Drop weak references whose memoryview is gone. */
static void forget_dead(PyObject *views)
{
    Py_ssize_t i;

    for (i = PyList_Size(views) - 1; i >= 0; --i) {
        PyObject *view = PyObject_CallObject(PyList_GetItem(views, i), NULL);
        if (view == Py_None) {
            (void)PyList_SetSlice(views, i, i + 1, NULL);
        }
        Py_XDECREF(view);
    }
}

PyObject *kvpy_obj_view(kvpy_obj_t *obj, void *ptr, size_t len)
{
    region_t *region = (region_t *)PyType_GenericAlloc(kvpy_region_type, 0);
    PyObject *view, *ref;
    int      failed;

    if (region == NULL) {
        return NULL;
    }
    Py_INCREF(obj);
    region->owner = obj;
    region->ptr   = ptr;
    region->len   = (Py_ssize_t)len;
    view          = PyMemoryView_FromObject((PyObject *)region);
    Py_DECREF(region);
    if (view == NULL) {
        return NULL;
    }
    if (obj->views == NULL) {
        obj->views = PyList_New(0);
    } else {
        forget_dead(obj->views);
    }
    ref    = (obj->views != NULL) ? PyWeakref_NewRef(view, NULL) : NULL;
    failed = (ref == NULL) || (PyList_Append(obj->views, ref) != 0);
    Py_XDECREF(ref);
    if (failed) {
        Py_CLEAR(view);
    }
    return view;
}
