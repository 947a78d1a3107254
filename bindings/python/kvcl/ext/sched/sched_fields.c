/*
 * Structs of the scheduler from tuples and back (sched.h).
 */
#include "kvcl/ext/sched/sched.h"

#include <string.h>

static int field_in(PyObject *item, const kvpy_field_t *field, char *at)
{
    static const uint64_t most[] = {UINT16_MAX, UINT32_MAX, UINT64_MAX, SIZE_MAX};
    uint64_t              value;
    double                number;

    if (field->type == KVPY_DOUBLE) {
        number = PyFloat_AsDouble(item);
        if ((number == -1.0) && PyErr_Occurred()) {
            return -1;
        }
        memcpy(at, &number, sizeof(number));
        return 0;
    }
    if (kvpy_u64(item, field->name, most[field->type], &value) != 0) {
        return -1;
    }
    if (field->type == KVPY_U16) {
        memcpy(at, &(uint16_t){(uint16_t)value}, sizeof(uint16_t));
    } else if (field->type == KVPY_U32) {
        memcpy(at, &(uint32_t){(uint32_t)value}, sizeof(uint32_t));
    } else {
        memcpy(at, &value, sizeof(value));
    }
    return 0;
}

int kvpy_fields_in(PyObject *tuple, const kvpy_field_t *fields, size_t n, void *out)
{
    size_t i;

    if (!PyTuple_Check(tuple) || (PyTuple_Size(tuple) != (Py_ssize_t)n)) {
        PyErr_Format(PyExc_TypeError, "a tuple of %zu is needed", n);
        return -1;
    }
    for (i = 0; i < n; ++i) {
        if (field_in(PyTuple_GetItem(tuple, (Py_ssize_t)i), &fields[i], (char *)out + fields[i].offset) != 0) {
            return -1;
        }
    }
    return 0;
}

static PyObject *field_out(const char *at, kvpy_type_t type)
{
    uint16_t u16;
    uint32_t u32;
    uint64_t u64;
    double   number;

    switch (type) {
    case KVPY_U16:
        memcpy(&u16, at, sizeof(u16));
        return PyLong_FromUnsignedLong(u16);
    case KVPY_U32:
        memcpy(&u32, at, sizeof(u32));
        return PyLong_FromUnsignedLong(u32);
    case KVPY_DOUBLE:
        memcpy(&number, at, sizeof(number));
        return PyFloat_FromDouble(number);
    default:
        memcpy(&u64, at, sizeof(u64));
        return PyLong_FromUnsignedLongLong(u64);
    }
}

PyObject *kvpy_fields_out(const void *from, const kvpy_field_t *fields, size_t n)
{
    PyObject *tuple = PyTuple_New((Py_ssize_t)n), *item;
    size_t   i;

    for (i = 0; (tuple != NULL) && (i < n); ++i) {
        item = field_out((const char *)from + fields[i].offset, fields[i].type);
        if (item == NULL) {
            Py_CLEAR(tuple);
        } else {
            PyTuple_SetItem(tuple, (Py_ssize_t)i, item);
        }
    }
    return tuple;
}

int kvpy_structs_in(PyObject *list, const kvpy_field_t *fields, size_t n_fields, size_t bytes, const void *init,
                    void **array_p, size_t *n_p)
{
    PyObject *seq = PySequence_Tuple(list); /* a private tuple: an item's __index__ could change a list */
    size_t   i, n;
    char     *array;
    int      rc = 0;

    if (seq == NULL) {
        return -1;
    }
    n     = (size_t)PyTuple_Size(seq);
    array = calloc(n + 1, bytes);
    if (array == NULL) {
        PyErr_NoMemory();
        rc = -1;
    }
    for (i = 0; (rc == 0) && (i < n); ++i) {
        memcpy(array + i * bytes, init, bytes); /* bytes: the struct's sizeof */
        rc = kvpy_fields_in(PyTuple_GetItem(seq, (Py_ssize_t)i), fields, n_fields, array + i * bytes);
    }
    Py_DECREF(seq);
    if (rc != 0) {
        free(array);
        return -1;
    }
    *array_p = array;
    *n_p     = n;
    return 0;
}

static const kvpy_field_t hold_fields[] = {
    KVPY_FIELD(kvcl_sched_hold_t, inst, KVPY_U32),  KVPY_FIELD(kvcl_sched_hold_t, first, KVPY_U32),
    KVPY_FIELD(kvcl_sched_hold_t, blocks, KVPY_U32), KVPY_FIELD(kvcl_sched_hold_t, tier, KVPY_U16),
    KVPY_FIELD(kvcl_sched_hold_t, flags, KVPY_U16)};
enum { HOLD_FIELDS = sizeof(hold_fields) / sizeof(hold_fields[0]) };

int kvpy_holds_in(PyObject *list, kvcl_sched_hold_t **holds_p, size_t *n_p)
{
    static const kvcl_sched_hold_t none;
    void                           *array = NULL;
    int                            rc;

    rc       = kvpy_structs_in(list, hold_fields, HOLD_FIELDS, sizeof(none), &none, &array, n_p);
    *holds_p = array;
    return rc;
}

PyObject *kvpy_holds_out(const kvcl_sched_hold_t *holds, size_t n)
{
    PyObject *list = PyList_New((Py_ssize_t)n), *hold;
    size_t   i;

    for (i = 0; (list != NULL) && (i < n); ++i) {
        hold = kvpy_fields_out(&holds[i], hold_fields, HOLD_FIELDS);
        if (hold == NULL) {
            Py_CLEAR(list);
        } else {
            PyList_SetItem(list, (Py_ssize_t)i, hold);
        }
    }
    return list;
}
