/*
 * Queries of a store as requests. The blocking calls of the Python class wait for them.
 *
 * The library writes the results into memory that the operation owns (op->out) until it is freed. give() converts them
 * to Python objects after the operation has completed. The library copies the keys.
 */
#include "kvcl/ext/ext.h"

#include <string.h>

enum { MOST = (1 << 22) + 1 }; /* events or items of one query, or keys of one value: its head and parts */

typedef enum {
    MATCH, EXISTS, PIN, UNPIN, QUOTA, CLEAR, RANK_STATS, ALL_STATS, EVENTS, LIST, VALUE_SIZES, VALUE_KEYS,
    REMOVE_VALUES, WHERE, WHATS
} what_t;

/* For each query: its name in Python and in error sentences; whether it takes keys; the bytes of one result; the
 * formats of its further arguments: r a rank, u a number, t seconds, m a maximum number of results. */
static const struct {
    const char *name, *what;
    bool       keys;
    size_t     item;
    const char *args;
} rows[WHATS] = {
    [MATCH]         = {"match", "store match", true, 0, ""},
    [EXISTS]        = {"exists", "store exists", true, 1, ""},
    [PIN]           = {"pin", "store pin", true, 1, "utu"},
    [UNPIN]         = {"unpin", "store unpin", true, 0, "u"},
    [QUOTA]         = {"quota", "store quota", false, 0, "ruu"},
    [CLEAR]         = {"clear", "store clear", false, 0, "u"},
    [RANK_STATS]    = {"rank_stats", "store rank_stats", false, sizeof(kvcl_store_stats_t), "r"},
    [ALL_STATS]     = {"all_stats", "store all_stats", false, sizeof(kvcl_store_stats_t), "m"},
    [EVENTS]        = {"events", "store events", false, sizeof(kvcl_store_event_t), "rutm"},
    [LIST]          = {"list", "store list", false, sizeof(kvcl_store_item_t), "rum"},
    [VALUE_SIZES]   = {"value_sizes", "store value_sizes", true, sizeof(uint64_t), ""},
    [VALUE_KEYS]    = {"value_keys", "store value_keys", true, sizeof(kvcl_key_t), "m"},
    [REMOVE_VALUES] = {"remove_values", "store remove_values", true, 0, ""},
    [WHERE]         = {"where", "store where", true, sizeof(kvcl_store_places_t), ""},
};

/* op->out */
typedef struct results {
    what_t        what;
    size_t        n;       /* number of keys, or capacity for results */
    size_t        count;   /* number of matches, events, items or keys */
    uint64_t      number;  /* copies removed; a cursor */
    uint64_t      seq;
    kvcl_status_t *each;   /* n statuses, after the array */
    unsigned char array[] __attribute__((aligned(16)));
} results_t;

/* ---- the Python results ---- */

/* [(rank, tier, bytes, state), ...] */
static PyObject *places_of(const kvcl_store_places_t *places)
{
    PyObject *list = PyList_New((Py_ssize_t)places->n), *one;
    uint32_t i;

    for (i = 0; (list != NULL) && (i < places->n); ++i) {
        one = Py_BuildValue("(iIKI)", (int)places->at[i].rank, (unsigned)places->at[i].tier,
                            (unsigned long long)places->at[i].bytes, (unsigned)places->at[i].state);
        if (one == NULL) {
            Py_CLEAR(list);
        } else {
            PyList_SetItem(list, (Py_ssize_t)i, one);
        }
    }
    return list;
}

static PyObject *one_of(const results_t *r, size_t i)
{
    const void *at = r->array + (i * rows[r->what].item);

    switch (r->what) {
    case EXISTS:
        return PyBool_FromLong(r->array[i]);
    case PIN:
        return PyLong_FromLong(r->array[i]);
    case ALL_STATS:
        return (r->each[i] == KVCL_OK) ? kvpy_store_stats_dict(at) : kvpy_none();
    case WHERE:
        return places_of(at);
    case EVENTS:
        return kvpy_store_event(at);
    case LIST:
        return kvpy_store_item(at);
    case VALUE_SIZES:
        return (r->each[i] == KVCL_OK) ? PyLong_FromUnsignedLongLong(*(const uint64_t *)at) : kvpy_none();
    default:
        return PyBytes_FromStringAndSize(at, sizeof(kvcl_key_t));
    }
}

static PyObject *list_of(const results_t *r, size_t n)
{
    PyObject *list = PyList_New((Py_ssize_t)n), *one;
    size_t   i;

    for (i = 0; (list != NULL) && (i < n); ++i) {
        one = one_of(r, i);
        if (one == NULL) {
            Py_CLEAR(list);
        } else {
            PyList_SetItem(list, (Py_ssize_t)i, one);
        }
    }
    return list;
}

/* Keys that lack a pin or a value are reported in the list, so they raise nothing. A query of sizes is answered only if
 * each value has a size or is absent. */
static bool is_answer(const results_t *r, kvcl_status_t status)
{
    size_t i;

    if (status == KVCL_OK) {
        return true;
    }
    if (r->what == PIN) {
        return (status == KVCL_ERR_NOT_FOUND) || (status == KVCL_ERR_NO_SPACE);
    }
    for (i = 0; (r->what == VALUE_SIZES) && (i < r->n); ++i) {
        if ((r->each[i] != KVCL_OK) && (r->each[i] != KVCL_ERR_NOT_FOUND)) {
            return false;
        }
    }
    return (r->what == VALUE_SIZES) && (status == KVCL_ERR_NOT_FOUND);
}

/* NULL without an exception: the status is to be raised. */
static PyObject *give(const kvpy_op_t *op)
{
    const results_t *r = op->out;
    PyObject        *list;

    if (!is_answer(r, op->status)) {
        return NULL;
    }
    switch (r->what) {
    case MATCH:
        return PyLong_FromSize_t(r->count);
    case CLEAR:
        return PyLong_FromUnsignedLongLong(r->number);
    case RANK_STATS:
        return kvpy_store_stats_dict((const kvcl_store_stats_t *)(const void *)r->array);
    case LIST:
        list = list_of(r, r->count);
        return (list != NULL) ? Py_BuildValue("(NKK)", list, (unsigned long long)r->number, (unsigned long long)r->seq)
                              : NULL;
    case EVENTS:
    case VALUE_KEYS:
        return list_of(r, r->count);
    case EXISTS:
    case WHERE:
    case PIN:
    case ALL_STATS:
    case VALUE_SIZES:
        return list_of(r, r->n);
    default:
        return kvpy_none();
    }
}

/* ---- posting ---- */

typedef struct query {
    kvcl_key_t         *keys;
    size_t             n;
    int                rank;
    uint64_t           u[3]; /* numbers and times, in the order of the arguments */
    size_t             most;
    kvcl_xfer_params_t params;
} query_t;

static int read_args(what_t what, PyObject *tuple, query_t *q)
{
    size_t     n = strlen(rows[what].args), i, at = 0;
    uint64_t   most;
    int        rc = 0;

    if (!PyTuple_Check(tuple) || (PyTuple_Size(tuple) != (Py_ssize_t)n)) {
        PyErr_Format(PyExc_TypeError, "%s: %zu arguments are needed", rows[what].what, n);
        return -1;
    }
    for (i = 0; (i < n) && (rc == 0); ++i) {
        PyObject *arg = PyTuple_GetItem(tuple, (Py_ssize_t)i);
        switch (rows[what].args[i]) {
        case 'r':
            rc = kvpy_int(arg, "rank", &q->rank);
            break;
        case 't':
            rc = kvpy_timeout(arg, &q->u[at++]);
            break;
        case 'm':
            rc      = kvpy_u64(arg, "most", MOST, &most);
            q->most = (rc == 0) ? (size_t)most : 0;
            break;
        default:
            rc = kvpy_u64(arg, "number", UINT64_MAX, &q->u[at++]);
            break;
        }
    }
    return rc;
}

static kvcl_status_t post(what_t what, kvcl_store_h s, const query_t *q, results_t *r, kvcl_req_h *req)
{
    const kvcl_xfer_params_t *p = &q->params;
    void                     *a = r->array;

    switch (what) {
    case MATCH:
        return kvcl_store_match_post(s, q->keys, q->n, &r->count, p, req);
    case EXISTS:
        return kvcl_store_exists_post(s, q->keys, q->n, a, p, req);
    case WHERE:
        return kvcl_store_where_post(s, q->keys, q->n, a, sizeof(kvcl_store_places_t), p, req);
    case PIN:
        return kvcl_store_pin_post(s, q->keys, q->n, q->u[0], q->u[1], (q->u[2] != 0) ? KVCL_PIN_SOFT : 0, a, p, req);
    case UNPIN:
        return kvcl_store_unpin_post(s, q->keys, q->n, q->u[0], p, req);
    case QUOTA:
        return kvcl_store_quota_post(s, q->rank, q->u[0], q->u[1], p, req);
    case CLEAR:
        return kvcl_store_clear_post(s, q->u[0], &r->number, p, req);
    case RANK_STATS:
        ((kvcl_store_stats_t *)a)->size = sizeof(kvcl_store_stats_t);
        return kvcl_store_rank_stats_post(s, q->rank, a, p, req);
    case ALL_STATS:
        return kvcl_store_all_stats_post(s, q->most, a, sizeof(kvcl_store_stats_t), r->each, p, req);
    case EVENTS:
        return kvcl_store_events_post(s, q->rank, q->u[0], q->u[1], a, sizeof(kvcl_store_event_t), q->most, &r->count,
                                      p, req);
    case LIST:
        r->number = q->u[0];
        return kvcl_store_list_post(s, q->rank, &r->number, a, sizeof(kvcl_store_item_t), q->most, &r->count, &r->seq,
                                    p, req);
    case VALUE_SIZES:
        return kvcl_store_value_sizes_post(s, q->keys, q->n, a, r->each, p, req);
    case VALUE_KEYS:
        return kvcl_store_value_keys_post(s, q->keys, a, q->most, &r->count, p, req);
    default:
        return kvcl_store_remove_values_post(s, q->keys, q->n, p, req);
    }
}

/* The results' memory becomes the operation's. */
static int make_results(what_t what, const query_t *q, kvpy_op_t *op)
{
    size_t    n     = (q->most != 0) ? q->most : rows[what].keys ? q->n : 1;
    size_t    array = ((n * rows[what].item) + 15) & ~(size_t)15;
    results_t *r    = calloc(1, sizeof(*r) + array + (n * sizeof(*r->each)) + 16);

    if (r == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    r->what  = what;
    r->n     = n;
    r->each  = (kvcl_status_t *)(void *)(r->array + array);
    op->out  = r;
    op->give = give;
    return 0;
}

static what_t find(const char *name)
{
    unsigned i;

    for (i = 0; (i < WHATS) && (strcmp(rows[i].name, name) != 0); ++i) {
    }
    return (what_t)i;
}

/* _post(request, what, keys or None, further arguments, timeout) */
static PyObject *store_post(PyObject *self, PyObject *args)
{
    kvpy_obj_t    *store = (kvpy_obj_t *)self;
    PyObject      *request, *keys, *more, *timeout;
    query_t       q = {0};
    const char    *name;
    kvcl_status_t status;
    kvpy_op_t     *op;
    what_t        what;

    if (!PyArg_ParseTuple(args, "OsOOO:_post", &request, &name, &keys, &more, &timeout)) {
        return NULL;
    }
    what = find(name);
    if (what == WHATS) {
        PyErr_Format(PyExc_ValueError, "a store has no query \"%s\"", name);
        return NULL;
    }
    if ((op = kvpy_op_new(request, rows[what].what, store, timeout, &q.params)) == NULL) {
        return NULL;
    }
    if ((read_args(what, more, &q) != 0) || (rows[what].keys && (kvpy_keys(keys, &q.keys, &q.n) != 0))) {
        kvpy_op_free(op);
        request = NULL;
    } else if ((what == VALUE_KEYS) && (q.n != 1)) {
        PyErr_SetString(PyExc_ValueError, "one key is needed");
        kvpy_op_free(op);
        request = NULL;
    } else if (make_results(what, &q, op) != 0) {
        kvpy_op_free(op);
        request = NULL;
    } else {
        KVPY_POST(op, status, post(what, store->handle, &q, op->out, &op->req));
        request = kvpy_op_posted(op, status);
    }
    free(q.keys);
    return request;
}

PyMethodDef kvpy_store_post_methods[] = {
    {"_post", store_post, METH_VARARGS, "_post(request, what, keys, arguments, timeout)"},
    {NULL, NULL, 0, NULL}};
