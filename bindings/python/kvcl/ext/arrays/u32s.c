/*
 * Lists of ints and arrays of integers as arrays of 32-bit numbers, with every number checked. A list of plain ints is
 * read in place, since no Python code, which could change it, runs meanwhile.
 */
#include "kvcl/ext/arrays/in_place.h"

#include <string.h>

static int item_of(const char *p, char code, Py_ssize_t size, uint64_t *value_p)
{
    bool    is_signed = (code == 'i') || (code == 'l') || (code == 'q');
    int64_t value;

    if (size == 4) {
        int32_t s;
        memcpy(&s, p, 4);
        value = is_signed ? s : (int64_t)(uint32_t)s;
    } else {
        memcpy(&value, p, 8);
    }
    if ((value < 0) || (value > (int64_t)UINT32_MAX)) {
        return -1;
    }
    *value_p = (uint64_t)value;
    return 0;
}

/* Read an array of integers by the buffer protocol. @return 1: done, 0: arg is no such array, -1: exception. */
static int u32s_from_buffer(PyObject *arg, const char *what, uint32_t **values_p, size_t *n_p)
{
    const char *format;
    Py_buffer  view;
    uint64_t   value = 0;
    uint32_t   *values;
    size_t     i, n;
    char       code;

    if (!PyObject_CheckBuffer(arg)) {
        return 0;
    }
    if (PyObject_GetBuffer(arg, &view, PyBUF_ND | PyBUF_FORMAT) != 0) {
        PyErr_Clear();
        return 0;
    }
    format = (view.format != NULL) ? view.format : "B";
    code   = format[strspn(format, "@=<")];
    if ((view.ndim != 1) || (strchr("iIlLqQ", code) == NULL) || (code == '\0') ||
        ((view.itemsize != 4) && (view.itemsize != 8))) {
        PyErr_Format(PyExc_TypeError, "%s: a one-dimensional array of 32- or 64-bit integers is needed, not format "
                     "'%.20s'", what, format);
        PyBuffer_Release(&view);
        return -1;
    }
    n      = (size_t)(view.len / view.itemsize);
    values = malloc((n + 1) * sizeof(*values));
    if (values == NULL) {
        PyBuffer_Release(&view);
        PyErr_NoMemory();
        return -1;
    }
    i = 0;
    if ((view.itemsize == 4) && (strchr("IL", code) != NULL)) { /* as the library has them */
        memcpy(values, view.buf, n * sizeof(*values));
        i = n;
    }
    for (; i < n; ++i) {
        if (item_of((const char *)view.buf + i * (size_t)view.itemsize, code, view.itemsize, &value) != 0) {
            PyErr_Format(PyExc_ValueError, "%s[%zu] does not fit in 32 bits", what, i);
            free(values);
            PyBuffer_Release(&view);
            return -1;
        }
        values[i] = (uint32_t)value;
    }
    PyBuffer_Release(&view);
    *values_p = values;
    *n_p      = n;
    return 1;
}

/* Of an int, as most elements of a long list are: no Python code can run. @return false: by kvpy_u64. */
static inline bool u32_of_int(PyObject *item, uint32_t *value)
{
    long long wide;

    if (kvpy_digit(item, value)) {
        return true;
    }
    if (!PyLong_CheckExact(item)) {
        return false;
    }
    wide = PyLong_AsLongLong(item);
    if ((wide < 0) || (wide > UINT32_MAX)) {
        PyErr_Clear(); /* too large for a long long */
        return false;
    }
    *value = (uint32_t)wide;
    return true;
}

/* A list of plain ints, in place: no Python code runs meanwhile, which could change it. @return false: it has another
 * element, or there is no memory; nothing is allocated then. */
static bool u32s_of_list(PyObject *list, uint32_t **values_p, size_t *n_p)
{
    const Py_ssize_t n = PyList_Size(list);
    PyObject *const  *items  = kvpy_items(list);
    uint32_t         *values = malloc(((size_t)n + 1) * sizeof(*values));
    Py_ssize_t       i       = 0;

    while ((values != NULL) && (i < n) && u32_of_int(kvpy_item(list, items, i), &values[i])) {
        ++i;
    }
    if ((values == NULL) || (i < n)) {
        free(values);
        return false;
    }
    *values_p = values;
    *n_p      = (size_t)n;
    return true;
}

int kvpy_u32s(PyObject *arg, const char *what, uint32_t **values_p, size_t *n_p)
{
    PyObject *seq;
    uint32_t *values;
    uint64_t value;
    size_t   i, n;
    int      found = (PyList_CheckExact(arg) && u32s_of_list(arg, values_p, n_p))
                         ? 1 : u32s_from_buffer(arg, what, values_p, n_p);

    if (found != 0) {
        return (found > 0) ? 0 : -1;
    }
    if (PyUnicode_Check(arg)) {
        PyErr_Format(PyExc_TypeError, "%s: integers are needed, not a string", what);
        return -1;
    }
    /* A private tuple: an element's __index__ could change a list. */
    seq = PyLong_Check(arg) ? PyTuple_Pack(1, arg) : PySequence_Tuple(arg);
    if (seq == NULL) {
        return -1;
    }
    n      = (size_t)PyTuple_Size(seq);
    values = malloc((n + 1) * sizeof(*values));
    if (values == NULL) {
        Py_DECREF(seq);
        PyErr_NoMemory();
        return -1;
    }
    for (i = 0; (i < n) && (kvpy_u64(PyTuple_GetItem(seq, (Py_ssize_t)i), what, UINT32_MAX, &value) == 0); ++i) {
        values[i] = (uint32_t)value;
    }
    Py_DECREF(seq);
    if (i < n) {
        free(values);
        return -1;
    }
    *values_p = values;
    *n_p      = n;
    return 0;
}
