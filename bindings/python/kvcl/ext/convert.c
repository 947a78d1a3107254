/*
 * Conversion of Python values to the library's, with every number checked, and of a status to an exception.
 */
#include "kvcl/ext/ext.h"

#include <math.h>
#include <string.h>

static PyObject *errors; /* {status: exception class} */

int kvpy_set_errors(PyObject *dict)
{
    PyObject *old = errors;

    if (!PyDict_Check(dict)) {
        PyErr_SetString(PyExc_TypeError, "a dict is needed");
        return -1;
    }
    Py_INCREF(dict);
    errors = dict;
    Py_XDECREF(old);
    return 0;
}

void *kvpy_raise(kvcl_status_t status, const char *sentence)
{
    PyObject *number, *cls = NULL;

    if (sentence == NULL) {
        sentence = kvcl_last_error();
    }
    if (sentence[0] == '\0') {
        sentence = kvcl_status_text(status);
    }
    number = PyLong_FromLong((long)status);
    if ((number != NULL) && (errors != NULL)) {
        cls = PyDict_GetItemWithError(errors, number); /* borrowed from the module's own dict */
    }
    Py_XDECREF(number);
    if (!PyErr_Occurred()) {
        PyErr_SetString((cls != NULL) ? cls : PyExc_RuntimeError, sentence);
    }
    return NULL;
}

int kvpy_timeout(PyObject *arg, uint64_t *ns_p)
{
    double seconds;

    if ((arg == NULL) || (arg == Py_None)) {
        *ns_p = 0;
        return 0;
    }
    seconds = PyFloat_AsDouble(arg);
    if ((seconds == -1.0) && PyErr_Occurred()) {
        return -1;
    }
    if (isnan(seconds) || (seconds < 0)) {
        PyErr_SetString(PyExc_ValueError, "a timeout is a number of seconds, not negative");
        return -1;
    }
    *ns_p = (seconds > 1e9) ? (uint64_t)1000000000000000000 : (uint64_t)(seconds * 1e9);
    *ns_p = (*ns_p == 0) ? 1 : *ns_p;
    return 0;
}

int kvpy_call_timeout(PyObject *arg, uint64_t *ns_p)
{
    int rc = kvpy_timeout(arg, ns_p);

    *ns_p = ((rc == 0) && ((arg == NULL) || (arg == Py_None))) ? KVCL_WAIT_DEFAULT : *ns_p;
    return rc;
}

int kvpy_u64(PyObject *arg, const char *what, uint64_t most, uint64_t *value_p)
{
    PyObject           *number = PyNumber_Index(arg);
    unsigned long long value;

    if (number == NULL) {
        return -1;
    }
    value = PyLong_AsUnsignedLongLong(number);
    if ((value == (unsigned long long)-1) && PyErr_Occurred()) {
        if (PyErr_ExceptionMatches(PyExc_OverflowError)) {
            PyErr_Format(PyExc_ValueError, "%s is %R: 0 to %llu is possible", what, number, (unsigned long long)most);
        }
        Py_DECREF(number);
        return -1;
    }
    if (value > most) {
        PyErr_Format(PyExc_ValueError, "%s is %R: 0 to %llu is possible", what, number, (unsigned long long)most);
        Py_DECREF(number);
        return -1;
    }
    Py_DECREF(number);
    *value_p = value;
    return 0;
}

int kvpy_int(PyObject *arg, const char *what, int *value_p)
{
    PyObject *number = PyNumber_Index(arg);
    long     value;
    int      overflow;

    if (number == NULL) {
        return -1;
    }
    value = PyLong_AsLongAndOverflow(number, &overflow);
    if (overflow || (value > INT32_MAX) || (value < INT32_MIN)) {
        PyErr_Format(PyExc_ValueError, "%s is %R: too large", what, number);
        Py_DECREF(number);
        return -1;
    }
    Py_DECREF(number);
    if ((value == -1) && PyErr_Occurred()) {
        return -1;
    }
    *value_p = (int)value;
    return 0;
}

/* ---- layouts and selections ---- */

int kvpy_layout(PyObject *arg, kvcl_layout_t *layout)
{
    static const char *const names[] = {"flags", "layers", "kv", "blocks", "tokens", "heads", "head_dim", "elem_bytes",
                                        "order", "layer_stride", "kv_stride", "block_stride", "token_stride",
                                        "head_stride"};
    enum { N = sizeof(names) / sizeof(names[0]) };
    uint64_t v[N];
    size_t   i;

    if (!PyTuple_Check(arg) || (PyTuple_Size(arg) != N)) {
        PyErr_SetString(PyExc_TypeError, "a Layout is needed");
        return -1;
    }
    for (i = 0; i < N; ++i) {
        bool wide = (i == 0) || (i == 3) || (i >= 9);
        if (kvpy_u64(PyTuple_GetItem(arg, (Py_ssize_t)i), names[i], wide ? UINT64_MAX : UINT32_MAX, &v[i]) != 0) {
            return -1;
        }
    }
    *layout = (kvcl_layout_t){
        .size = sizeof(*layout), .flags = v[0], .layers = (uint32_t)v[1], .kv = (uint32_t)v[2], .blocks = v[3],
        .tokens = (uint32_t)v[4], .heads = (uint32_t)v[5], .head_dim = (uint32_t)v[6], .elem_bytes = (uint32_t)v[7],
        .order = (uint32_t)v[8], .layer_stride = v[9], .kv_stride = v[10], .block_stride = v[11],
        .token_stride = v[12], .head_stride = v[13]};
    return 0;
}

static int range_of(PyObject *arg, const char *what, kvcl_range_t *range)
{
    uint64_t first, end;

    *range = (kvcl_range_t){0, 0};
    if (arg == Py_None) {
        return 0;
    }
    if (!PyTuple_Check(arg) || (PyTuple_Size(arg) != 2)) {
        PyErr_Format(PyExc_TypeError, "%s: None or (first, end) is needed", what);
        return -1;
    }
    if ((kvpy_u64(PyTuple_GetItem(arg, 0), what, UINT32_MAX, &first) != 0) ||
        (kvpy_u64(PyTuple_GetItem(arg, 1), what, UINT32_MAX, &end) != 0)) {
        return -1;
    }
    if (end <= first) { /* (0, 0) would mean all */
        PyErr_Format(PyExc_ValueError, "%s: the range (%llu, %llu) is empty", what, (unsigned long long)first,
                     (unsigned long long)end);
        return -1;
    }
    *range = (kvcl_range_t){(uint32_t)first, (uint32_t)end};
    return 0;
}

int kvpy_sel(PyObject *blocks, PyObject *layers, PyObject *heads, PyObject *tokens, kvcl_sel_t *sel)
{
    uint32_t *ids;

    memset(sel, 0, sizeof(*sel));
    if ((range_of(layers, "layers", &sel->layers) != 0) || (range_of(heads, "heads", &sel->heads) != 0) ||
        (range_of(tokens, "tokens", &sel->tokens) != 0) ||
        (kvpy_u32s(blocks, "blocks", &ids, &sel->n_blocks) != 0)) {
        return -1;
    }
    sel->blocks = ids;
    return 0;
}

void kvpy_sel_free(kvcl_sel_t *sel)
{
    free((void *)(uintptr_t)sel->blocks);
    sel->blocks = NULL;
}
