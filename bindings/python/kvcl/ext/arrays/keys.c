/*
 * Keys: a list of bytes-like objects, or many keys in one buffer.
 */
#include "kvcl/ext/arrays/in_place.h"

#include <string.h>

/* Most are. No Python code runs. */
static inline bool key_of_bytes(PyObject *item, kvcl_key_t *key)
{
    Py_ssize_t len;
    char       *bytes;

    if (kvpy_key_in_place(item, key)) {
        return true;
    }
    if (!PyBytes_CheckExact(item) || (PyBytes_AsStringAndSize(item, &bytes, &len) != 0) ||
        (len != (Py_ssize_t)sizeof(key->bytes))) {
        return false;
    }
    memcpy(key->bytes, bytes, sizeof(key->bytes));
    return true;
}

static int key_of(PyObject *item, kvcl_key_t *key)
{
    kvpy_buf_t buf;

    if (key_of_bytes(item, key)) {
        return 0;
    }
    if (kvpy_buf_take(item, 0, &buf) != 0) {
        return -1;
    }
    if (buf.len != sizeof(key->bytes)) {
        PyErr_Format(PyExc_ValueError, "a key has 32 bytes, not %zu", buf.len);
        kvpy_buf_drop(&buf);
        return -1;
    }
    memcpy(key->bytes, buf.ptr, sizeof(key->bytes));
    kvpy_buf_drop(&buf);
    return 0;
}

/* Many keys in one buffer. */
static int keys_packed(PyObject *arg, kvcl_key_t **keys_p, size_t *n_p)
{
    kvpy_buf_t buf;

    if (kvpy_buf_take(arg, 0, &buf) != 0) {
        return -1;
    }
    *n_p    = buf.len / sizeof(kvcl_key_t);
    *keys_p = (buf.len % sizeof(kvcl_key_t) == 0) ? malloc(buf.len + 1) : NULL;
    if (*keys_p != NULL) {
        memcpy(*keys_p, buf.ptr, *n_p * sizeof(kvcl_key_t));
    } else if (buf.len % sizeof(kvcl_key_t) != 0) {
        PyErr_Format(PyExc_ValueError, "packed keys have 32 bytes each; %zu is no multiple", buf.len);
    } else {
        PyErr_NoMemory();
    }
    kvpy_buf_drop(&buf);
    return (*keys_p != NULL) ? 0 : -1;
}

/* In place: no Python code runs meanwhile. @return as u32s_of_list() of u32s.c. */
static bool keys_of_list(PyObject *list, kvcl_key_t **keys_p, size_t *n_p)
{
    const Py_ssize_t n = PyList_Size(list);
    PyObject *const  *items = kvpy_items(list);
    kvcl_key_t       *keys  = malloc(((size_t)n + 1) * sizeof(*keys));
    Py_ssize_t       i      = 0;

    while ((keys != NULL) && (i < n) && key_of_bytes(kvpy_item(list, items, i), &keys[i])) {
        ++i;
    }
    if ((keys == NULL) || (i < n)) {
        free(keys);
        return false;
    }
    *keys_p = keys;
    *n_p    = (size_t)n;
    return true;
}

int kvpy_keys(PyObject *arg, kvcl_key_t **keys_p, size_t *n_p)
{
    PyObject   *seq;
    kvcl_key_t *keys;
    size_t     i, n;

    if (PyObject_CheckBuffer(arg)) {
        return keys_packed(arg, keys_p, n_p);
    }
    if (PyList_CheckExact(arg) && keys_of_list(arg, keys_p, n_p)) {
        return 0;
    }
    seq = PySequence_Tuple(arg);
    if (seq == NULL) {
        return -1;
    }
    n    = (size_t)PyTuple_Size(seq);
    keys = malloc((n + 1) * sizeof(*keys));
    if (keys == NULL) {
        Py_DECREF(seq);
        PyErr_NoMemory();
        return -1;
    }
    for (i = 0; (i < n) && (key_of(PyTuple_GetItem(seq, (Py_ssize_t)i), &keys[i]) == 0); ++i) {
    }
    Py_DECREF(seq);
    if (i < n) {
        free(keys);
        return -1;
    }
    *keys_p = keys;
    *n_p    = n;
    return 0;
}
