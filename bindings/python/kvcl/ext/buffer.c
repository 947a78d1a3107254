/*
 * Finds the bytes of a Python object: the buffer protocol (bytes, bytearray, memoryview, mmap, array, numpy), DLPack
 * for objects without it (torch tensors), __cuda_array_interface__ for device arrays with neither (Numba).
 */
#include "kvcl/ext/ext.h"

#include <string.h>

/* DLPack's C interface, version 0 (dlpack.h is not needed: this layout is its ABI). */
typedef struct dl_tensor {
    void     *data;
    int32_t  device_type;
    int32_t  device_id;
    int32_t  ndim;
    uint8_t  type_code;
    uint8_t  type_bits;
    uint16_t type_lanes;
    int64_t  *shape;
    int64_t  *strides; /* elements; NULL: dense */
    uint64_t byte_offset;
} dl_tensor_t;

typedef struct dl_managed {
    dl_tensor_t tensor;
    void        *manager;
    void        (*deleter)(struct dl_managed *self);
} dl_managed_t;

enum { DL_CPU = 1, DL_CUDA = 2, DL_CUDA_HOST = 3, DL_ROCM_HOST = 11, DL_CUDA_MANAGED = 13 };

/* The range an array covers, in bytes; dense: whether it has no holes. */
static int extent(int ndim, const int64_t *shape, const int64_t *strides, int64_t unit, int64_t itemsize, size_t *len_p,
                  bool *dense_p)
{
    __int128 span = itemsize, count = itemsize;
    int      i;

    for (i = 0; i < ndim; ++i) {
        if (shape[i] == 0) {
            *len_p   = 0;
            *dense_p = true;
            return 0;
        }
        if ((shape[i] < 0) || ((shape[i] > 1) && (strides != NULL) && (strides[i] < 0))) {
            PyErr_SetString(PyExc_BufferError, "a buffer with a negative stride cannot be used");
            return -1;
        }
        count *= shape[i];
        if ((shape[i] > 1) && (strides != NULL)) {
            span += (__int128)(shape[i] - 1) * strides[i] * unit;
        }
        if ((span > PY_SSIZE_T_MAX) || (count > PY_SSIZE_T_MAX)) {
            PyErr_SetString(PyExc_BufferError, "the buffer is larger than memory");
            return -1;
        }
    }
    *len_p   = (size_t)((strides != NULL) ? span : count);
    *dense_p = (strides == NULL) || (span == count);
    return 0;
}

/* An exception of a producer's code that frees memory: no caller can raise it. */
static void report_unraised(PyObject *where)
{
    if (PyErr_Occurred()) {
        PyErr_WriteUnraisable(where);
    }
}

static int take_view(PyObject *obj, unsigned how, kvpy_buf_t *buf)
{
    int  flags = ((how & KVPY_WRITE) ? PyBUF_WRITABLE : 0) | ((how & KVPY_SPAN) ? PyBUF_STRIDES : PyBUF_SIMPLE);
    bool dense;

    if (PyObject_GetBuffer(obj, &buf->view, flags) != 0) {
        return -1;
    }
    buf->has_view = true;
    buf->ptr      = buf->view.buf;
    buf->len      = (size_t)buf->view.len;
    if ((how & KVPY_SPAN) && (buf->view.strides != NULL) && (buf->view.shape != NULL)) {
        _Static_assert(sizeof(Py_ssize_t) == sizeof(int64_t), "64-bit Python");
        if (extent(buf->view.ndim, (const int64_t *)buf->view.shape, (const int64_t *)buf->view.strides, 1,
                   buf->view.itemsize, &buf->len, &dense) != 0) {
            kvpy_buf_drop(buf);
            return -1;
        }
    }
    return 0;
}

/* Whether a tensor is row-major without holes, as a plain run of bytes must be. */
static bool is_row_major(const dl_tensor_t *t)
{
    int64_t expect = 1;
    int     i;

    for (i = t->ndim - 1; (i >= 0) && (t->strides != NULL); --i) {
        if ((t->shape[i] > 1) && (t->strides[i] != expect)) {
            return false;
        }
        expect *= t->shape[i];
    }
    return true;
}

static int take_tensor(dl_managed_t *managed, unsigned how, kvpy_buf_t *buf)
{
    const dl_tensor_t *t   = &managed->tensor;
    unsigned          bits = (unsigned)t->type_bits * t->type_lanes;
    bool              dense;

    if ((t->device_type == DL_CUDA) || (t->device_type == DL_CUDA_MANAGED)) {
        buf->kind = KVCL_MEM_CUDA;
    }
    if (((t->device_type != DL_CPU) && (t->device_type != DL_CUDA_HOST) && (t->device_type != DL_ROCM_HOST) &&
         (buf->kind != KVCL_MEM_CUDA)) || ((buf->kind == KVCL_MEM_CUDA) && !(how & KVPY_CUDA))) {
        PyErr_Format(PyExc_BufferError, "the tensor is in a device's memory (DLPack device type %d), not the host's%s",
                     (int)t->device_type, (buf->kind == KVCL_MEM_CUDA) ? ": caches and registered memory may be" : "");
        return -1;
    }
    if ((bits == 0) || (bits % 8 != 0) || (t->ndim < 0) || ((t->ndim > 0) && (t->shape == NULL))) {
        PyErr_SetString(PyExc_BufferError, "the tensor has no whole bytes, or no shape");
        return -1;
    }
    if (extent(t->ndim, t->shape, t->strides, bits / 8, bits / 8, &buf->len, &dense) != 0) {
        return -1;
    }
    if (!(how & KVPY_SPAN) && !is_row_major(t)) {
        PyErr_SetString(PyExc_BufferError, "the tensor is not contiguous");
        return -1;
    }
    buf->ptr = (char *)t->data + t->byte_offset;
    return 0;
}

/* The DLPack type of the tensor's device; a host tensor of an old producer has no __dlpack_device__. -1: an exception,
 * the producer's own if it raised one. */
static int dlpack_device(PyObject *obj)
{
    PyObject *device, *type;
    long     number = DL_CPU;

    if (!PyObject_HasAttrString(obj, "__dlpack_device__")) {
        return DL_CPU;
    }
    device = PyObject_CallMethod(obj, "__dlpack_device__", NULL);
    if (device == NULL) {
        return -1;
    }
    if (!PyTuple_Check(device) || (PyTuple_Size(device) != 2)) {
        PyErr_Format(PyExc_TypeError, "__dlpack_device__() gave %R, not a tuple of two integers: the device's type and "
                     "its number", device);
        number = -1;
    } else {
        type   = PyNumber_Index(PyTuple_GetItem(device, 0));
        number = (type != NULL) ? PyLong_AsLong(type) : -1;
        Py_XDECREF(type);
        if (!PyErr_Occurred() && ((number < 1) || (number > INT_MAX))) {
            PyErr_Format(PyExc_BufferError, "__dlpack_device__() gave device type %ld: DLPack's types begin with 1",
                         number);
            number = -1;
        }
    }
    Py_DECREF(device);
    return (int)number;
}

/* A device's tensor is requested without stream order (-1): the posting caller names the stream. */
static PyObject *query_dlpack(PyObject *obj)
{
    PyObject *method, *args, *kwargs, *capsule = NULL;
    int      type = dlpack_device(obj);

    if (type < 0) {
        return NULL;
    }
    if ((type != DL_CUDA) && (type != DL_CUDA_MANAGED)) {
        return PyObject_CallMethod(obj, "__dlpack__", NULL);
    }
    method = PyObject_GetAttrString(obj, "__dlpack__");
    args   = PyTuple_New(0);
    kwargs = Py_BuildValue("{s:i}", "stream", -1);
    if ((method != NULL) && (args != NULL) && (kwargs != NULL)) {
        capsule = PyObject_Call(method, args, kwargs);
    }
    Py_XDECREF(method);
    Py_XDECREF(args);
    Py_XDECREF(kwargs);
    return capsule;
}

static int take_dlpack(PyObject *obj, unsigned how, kvpy_buf_t *buf)
{
    PyObject     *capsule = query_dlpack(obj);
    dl_managed_t *managed;

    if (capsule == NULL) {
        return -1;
    }
    managed = PyCapsule_IsValid(capsule, "dltensor") ? PyCapsule_GetPointer(capsule, "dltensor") : NULL;
    if (managed == NULL) {
        Py_DECREF(capsule);
        PyErr_SetString(PyExc_TypeError, "__dlpack__() gave no DLPack capsule");
        return -1;
    }
    if (take_tensor(managed, how, buf) != 0) {
        PyObject *type, *value, *trace;

        PyErr_Fetch(&type, &value, &trace); /* the reason, from the producer's code */
        Py_DECREF(capsule); /* its own destructor frees the tensor */
        report_unraised(obj);
        PyErr_Restore(type, value, trace);
        return -1;
    }
    PyCapsule_SetName(capsule, "used_dltensor");
    buf->capsule = capsule;
    return 0;
}

/* ---- __cuda_array_interface__ ---- */

enum { DIMS_MAX = 32 };

/* Read a tuple of integers. @return their number, or -1. */
static int integers(PyObject *tuple, int64_t out[DIMS_MAX])
{
    Py_ssize_t n, i;

    if ((tuple == NULL) || !PyTuple_Check(tuple) || ((n = PyTuple_Size(tuple)) > DIMS_MAX)) {
        PyErr_SetString(PyExc_BufferError, "__cuda_array_interface__: shape and strides are tuples of integers");
        return -1;
    }
    for (i = 0; i < n; ++i) {
        out[i] = PyLong_AsLongLong(PyTuple_GetItem(tuple, i));
        if ((out[i] == -1) && PyErr_Occurred()) {
            return -1;
        }
    }
    return (int)n;
}

/* "<f2": the item's size follows two characters. */
static int64_t item_bytes(PyObject *typestr)
{
    PyObject   *text = ((typestr != NULL) && PyUnicode_Check(typestr)) ? PyUnicode_AsASCIIString(typestr) : NULL;
    const char *at   = (text != NULL) ? PyBytes_AsString(text) : "";
    long       n     = (strlen(at) > 2) ? strtol(at + 2, NULL, 10) : 0;

    Py_XDECREF(text);
    if (n <= 0) {
        PyErr_SetString(PyExc_BufferError, "__cuda_array_interface__: typestr is none");
        return -1;
    }
    return n;
}

static int take_array(PyObject *about, unsigned how, kvpy_buf_t *buf)
{
    PyObject *data = PyDict_GetItemString(about, "data"), *strides = PyDict_GetItemString(about, "strides"), *at;
    int64_t  shape[DIMS_MAX], steps[DIMS_MAX], item = item_bytes(PyDict_GetItemString(about, "typestr"));
    int      n = integers(PyDict_GetItemString(about, "shape"), shape), read_only;
    bool     dense, strided = (strides != NULL) && (strides != Py_None);

    if ((item < 0) || (n < 0) || (strided && (integers(strides, steps) != n))) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_BufferError, "__cuda_array_interface__: as many strides as dimensions are needed");
        }
        return -1;
    }
    if ((data == NULL) || !PyTuple_Check(data) || !PyArg_ParseTuple(data, "Op:data", &at, &read_only)) {
        PyErr_SetString(PyExc_BufferError, "__cuda_array_interface__: data is (pointer, read-only)");
        return -1;
    }
    if (read_only && (how & KVPY_WRITE)) {
        PyErr_SetString(PyExc_BufferError, "the array is read-only");
        return -1;
    }
    if (extent(n, shape, strided ? steps : NULL, 1, item, &buf->len, &dense) != 0) {
        return -1;
    }
    if (!dense && !(how & KVPY_SPAN)) {
        PyErr_SetString(PyExc_BufferError, "the array is not contiguous");
        return -1;
    }
    buf->ptr  = PyLong_AsVoidPtr(at);
    buf->kind = KVCL_MEM_CUDA;
    return ((buf->ptr == NULL) && PyErr_Occurred()) ? -1 : 0;
}

static int take_cuda(PyObject *obj, unsigned how, kvpy_buf_t *buf)
{
    PyObject *about = PyObject_GetAttrString(obj, "__cuda_array_interface__");
    int      result = -1;

    if (about == NULL) {
        return -1;
    }
    if (!(how & KVPY_CUDA)) {
        PyErr_SetString(PyExc_BufferError, "the array is in a device's memory, not the host's: caches and registered "
                        "memory may be");
    } else if (!PyDict_Check(about)) {
        PyErr_SetString(PyExc_BufferError, "__cuda_array_interface__ is no dict");
    } else {
        result = take_array(about, how, buf);
    }
    Py_DECREF(about);
    if (result == 0) {
        Py_INCREF(obj);
        buf->owner = obj;
    }
    return result;
}

int kvpy_buf_take(PyObject *obj, unsigned how, kvpy_buf_t *buf)
{
    memset(buf, 0, sizeof(*buf));
    if (PyObject_CheckBuffer(obj)) {
        return take_view(obj, how, buf);
    }
    if (PyObject_HasAttrString(obj, "__dlpack__")) {
        return take_dlpack(obj, how, buf);
    }
    if (PyObject_HasAttrString(obj, "__cuda_array_interface__")) {
        return take_cuda(obj, how, buf);
    }
    PyErr_Format(PyExc_TypeError, "a buffer (bytearray, memoryview, mmap, numpy array) or a DLPack tensor is needed, "
                 "not '%s'", kvpy_class_name(Py_TYPE(obj)).text);
    return -1;
}

/* The caller may be on its way out with an exception: the producer's code that runs here must neither see nor replace
 * it. */
void kvpy_buf_drop(kvpy_buf_t *buf)
{
    PyObject *type, *value, *trace;

    PyErr_Fetch(&type, &value, &trace);
    if (buf->has_view) {
        buf->has_view = false;
        PyBuffer_Release(&buf->view);
    }
    if (buf->capsule != NULL) {
        PyObject     *capsule = buf->capsule;
        dl_managed_t *managed = PyCapsule_GetPointer(capsule, "used_dltensor");

        buf->capsule = NULL;
        if ((managed != NULL) && (managed->deleter != NULL)) {
            managed->deleter(managed);
        }
        Py_DECREF(capsule);
    }
    Py_CLEAR(buf->owner);
    buf->ptr = NULL;
    buf->len = 0;
    report_unraised(NULL);
    PyErr_Restore(type, value, trace);
}
