/*
 * The buffer protocol for the limited API of Python before 3.11, which leaves it out: one extension module serves
 * Python 3.9 and all later ones.
 *
 * Py_buffer has had this layout since Python 3.3, and it is part of the stable ABI since 3.11. The functions and slots
 * below exist in 3.9 and 3.10 as well, whose layouts do not change any more.
 */
#ifndef KVPY_PYBUFFER_H
#define KVPY_PYBUFFER_H

#if defined(Py_LIMITED_API) && (Py_LIMITED_API + 0 < 0x030b0000)
typedef struct {
    void       *buf;
    PyObject   *obj;
    Py_ssize_t len;
    Py_ssize_t itemsize;
    int        readonly;
    int        ndim;
    char       *format;
    Py_ssize_t *shape;
    Py_ssize_t *strides;
    Py_ssize_t *suboffsets;
    void       *internal;
} Py_buffer;

enum {
    PyBUF_SIMPLE   = 0,
    PyBUF_WRITABLE = 0x1,
    PyBUF_FORMAT   = 0x4,
    PyBUF_ND       = 0x8,
    PyBUF_STRIDES  = 0x10 | PyBUF_ND
};

#ifndef Py_bf_getbuffer /* of PyType_Slot; some versions have them */
#define Py_bf_getbuffer     1
#define Py_bf_releasebuffer 2
#endif

PyAPI_FUNC(int)  PyObject_CheckBuffer(PyObject *obj);
PyAPI_FUNC(int)  PyObject_GetBuffer(PyObject *obj, Py_buffer *view, int flags);
PyAPI_FUNC(int)  PyBuffer_FillInfo(Py_buffer *view, PyObject *obj, void *buf, Py_ssize_t len, int readonly, int flags);
PyAPI_FUNC(void) PyBuffer_Release(Py_buffer *view);
#endif

#endif
