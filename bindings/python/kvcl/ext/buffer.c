/*
 * Where the bytes of a Python object lie: the buffer protocol (bytes, bytearray, memoryview, mmap, array, numpy), and
 * DLPack for what has none (torch CPU tensors). Host memory only.
 */
#include "kvcl/ext/ext.h"

#include <string.h>

/* DLPack's C interface, version 0 (dlpack.h is not needed: this layout is its ABI). */
typedef struct dl_tensor {
    void    *data;
    int32_t device_type;
    int32_t device_id;
    int32_t ndim;
    uint8_t type_code;
    uint8_t type_bits;
    uint16_t type_lanes;
    int64_t *shape;
    int64_t *strides; /* elements; NULL: dense */
    uint64_t byte_offset;
} dl_tensor_t;

typedef struct dl_managed {
    dl_tensor_t tensor;
    void        *manager;
    void        (*deleter)(struct dl_managed *self);
} dl_managed_t;

enum { DL_CPU = 1, DL_CUDA_HOST = 3, DL_ROCM_HOST = 11 };

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

/* Row-major without holes? What a plain run of bytes needs. */
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

    if ((t->device_type != DL_CPU) && (t->device_type != DL_CUDA_HOST) && (t->device_type != DL_ROCM_HOST)) {
        PyErr_Format(PyExc_BufferError, "the tensor is in a device's memory (DLPack device type %d), not the host's",
                     (int)t->device_type);
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

static int take_dlpack(PyObject *obj, unsigned how, kvpy_buf_t *buf)
{
    PyObject     *capsule = PyObject_CallMethod(obj, "__dlpack__", NULL);
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
        Py_DECREF(capsule); /* its own destructor frees the tensor */
        return -1;
    }
    PyCapsule_SetName(capsule, "used_dltensor");
    buf->capsule = capsule;
    return 0;
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
    PyErr_Format(PyExc_TypeError, "a buffer (bytearray, memoryview, mmap, numpy array) or a DLPack tensor is needed, "
                 "not '%.100s'", Py_TYPE(obj)->tp_name);
    return -1;
}

void kvpy_buf_drop(kvpy_buf_t *buf)
{
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
        PyErr_Clear();
        Py_DECREF(capsule);
    }
    buf->ptr = NULL;
    buf->len = 0;
}
