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

/* ---- arrays of 32-bit numbers ---- */

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
static bool u32_of_int(PyObject *item, uint32_t *value)
{
    long long wide;

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
    uint32_t         *values = malloc(((size_t)n + 1) * sizeof(*values));
    Py_ssize_t       i = 0;

    while ((values != NULL) && (i < n) && u32_of_int(PyList_GetItem(list, i), &values[i])) {
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

/* ---- keys ---- */

/* Most are. No Python code runs. */
static bool key_of_bytes(PyObject *item, kvcl_key_t *key)
{
    Py_ssize_t len;
    char       *bytes;

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

/* As u32s_of_list(). */
static bool keys_of_list(PyObject *list, kvcl_key_t **keys_p, size_t *n_p)
{
    const Py_ssize_t n = PyList_Size(list);
    kvcl_key_t       *keys = malloc(((size_t)n + 1) * sizeof(*keys));
    Py_ssize_t       i = 0;

    while ((keys != NULL) && (i < n) && key_of_bytes(PyList_GetItem(list, i), &keys[i])) {
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
