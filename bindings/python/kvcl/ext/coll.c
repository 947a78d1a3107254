/*
 * Comm's collectives of plain bytes. Lengths are checked here against each other; how they relate is the collective's
 * rule (kvcl_coll.h). A buffer of a device sets KVCL_ON_DEVICE.
 */
#include "kvcl/ext/ext.h"

/* As in _reduce.py (Kind). */
enum { ALLREDUCE, REDUCE_SCATTER, ALLTOALL, ALLGATHER, GATHER, SCATTER, BCAST, BARRIER, KINDS };

static const char *const names[KINDS] = {"all_reduce", "reduce_scatter", "all_to_all", "all_gather_into", "gather",
                                         "scatter", "bcast_bytes", "barrier"};

/* How many parts each buffer has: in at the root, in elsewhere, out at the root, out elsewhere. ALL: one a rank. */
enum { ALL = -1 };
static const signed char parts[KINDS][4] = {{1, 1, 1, 1}, {ALL, ALL, 1, 1}, {ALL, ALL, ALL, ALL}, {1, 1, ALL, ALL},
                                            {1, 1, ALL, 0}, {ALL, 0, 1, 1}, {1, 0, 0, 1}, {0, 0, 0, 0}};

typedef struct args {
    kvpy_obj_t         *comm;
    int                kind, root, dtype, reduce;
    size_t             width; /* bytes of an element; 1: no reduction */
    kvcl_xfer_params_t params;
} args_t;

/* Bytes of an element, in the order of kvcl_dtype_t; 0: no such type. */
static size_t width_of(int dtype)
{
    static const unsigned char widths[] = {1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8};

    return ((dtype >= 0) && ((size_t)dtype < sizeof(widths))) ? widths[dtype] : 0;
}

/* The bytes of each rank; -1 with an exception if the two lengths do not fit each other. */
static int part_of(const args_t *a, size_t in_len, size_t out_len, size_t *part_p)
{
    const size_t size = (size_t)kvcl_comm_size(a->comm->handle);
    const int    root = (kvcl_comm_rank(a->comm->handle) == a->root);
    const int    in = parts[a->kind][root ? 0 : 1], out = parts[a->kind][root ? 2 : 3];
    const size_t in_parts = (in == ALL) ? size : (size_t)in, out_parts = (out == ALL) ? size : (size_t)out;

    *part_p = (in_parts > 0) ? (in_len / in_parts) : out_len;
    if (((in_parts > 0) && (in_len != in_parts * *part_p)) ||
        ((out_parts > 0) && ((out_len / out_parts != *part_p) || (out_len % out_parts != 0))) ||
        (*part_p % a->width != 0)) {
        PyErr_Format(PyExc_ValueError, "%s: %zu bytes of input and %zu of output do not fit %zu ranks%s",
                     names[a->kind], in_len, out_len, size, (a->width > 1) ? " and whole elements" : "");
        return -1;
    }
    return 0;
}

static kvcl_status_t post(kvpy_op_t *op, const args_t *a, const void *in, void *out, size_t part)
{
    const kvcl_comm_h   comm  = a->comm->handle;
    const size_t        count = part / a->width;
    const kvcl_dtype_t  dtype = (kvcl_dtype_t)a->dtype;
    const kvcl_reduce_t how   = (kvcl_reduce_t)a->reduce;

    switch (a->kind) {
    case ALLREDUCE:
        return kvcl_allreduce(comm, in, out, count, dtype, how, &a->params, &op->req);
    case REDUCE_SCATTER:
        return kvcl_reduce_scatter(comm, in, out, count, dtype, how, &a->params, &op->req);
    case ALLTOALL:
        return kvcl_alltoall(comm, in, part, out, &a->params, &op->req);
    case ALLGATHER:
        return kvcl_allgather(comm, in, part, out, &a->params, &op->req);
    case GATHER:
        return kvcl_gather(comm, a->root, in, part, out, &a->params, &op->req);
    case BCAST:
        return kvcl_bcast_bytes(comm, a->root, (kvcl_comm_rank(comm) == a->root) ? (void *)(uintptr_t)in : out, part,
                                &a->params, &op->req);
    case BARRIER:
        return kvcl_barrier(comm, &a->params, &op->req);
    default:
        return kvcl_scatter(comm, a->root, in, part, out, &a->params, &op->req);
    }
}

/* Takes the buffers. An all-gather without one to write into makes its result. */
static int take(kvpy_op_t *op, const args_t *a, PyObject *in, PyObject *out)
{
    const size_t size = (size_t)kvcl_comm_size(a->comm->handle);

    if ((in != Py_None) && (kvpy_buf_take(in, KVPY_CUDA, &op->bufs[0]) != 0)) {
        return -1;
    }
    if ((a->kind == ALLGATHER) && (out == Py_None)) {
        if (op->bufs[0].len > PY_SSIZE_T_MAX / size) {
            PyErr_NoMemory();
            return -1;
        }
        out = op->result = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)(op->bufs[0].len * size));
    }
    return (out == NULL) ? -1 : ((out != Py_None) ? kvpy_buf_take(out, KVPY_WRITE | KVPY_CUDA, &op->bufs[1]) : 0);
}

/* After the buffers were taken. */
static void set_device(args_t *a, const kvpy_op_t *op, unsigned long long stream)
{
    a->params.stream = (void *)(uintptr_t)stream;
    if ((op->bufs[0].kind == KVCL_MEM_CUDA) || (op->bufs[1].kind == KVCL_MEM_CUDA)) {
        a->params.flags |= KVCL_ON_DEVICE;
    }
}

/* _collective(request, kind, root, in, out, dtype, reduce, timeout, stream=0). in None: out, in place; out None: none
 * here. */
PyObject *kvpy_comm_collective(PyObject *self, PyObject *args)
{
    PyObject           *request, *in, *out, *timeout;
    args_t             a      = {.comm = (kvpy_obj_t *)self, .width = 1};
    unsigned long long stream = 0;
    kvcl_status_t      status;
    kvpy_op_t          *op;
    size_t             part;

    if (!PyArg_ParseTuple(args, "OiiOOiiO|K:_collective", &request, &a.kind, &a.root, &in, &out, &a.dtype, &a.reduce,
                          &timeout, &stream)) {
        return NULL;
    }
    a.width = (a.kind <= REDUCE_SCATTER) ? width_of(a.dtype) : 1;
    if ((a.kind < 0) || (a.kind >= KINDS) || (a.width == 0)) {
        PyErr_SetString(PyExc_ValueError, "no such collective, or type of elements");
        return NULL;
    }
    op = kvpy_op_new(request, names[a.kind], a.comm, timeout, &a.params);
    if (op == NULL) {
        return NULL;
    }
    if ((take(op, &a, in, out) != 0) ||
        (part_of(&a, (in != Py_None) ? op->bufs[0].len : op->bufs[1].len, op->bufs[1].len, &part) != 0)) {
        kvpy_op_free(op);
        return NULL;
    }
    set_device(&a, op, stream);
    KVPY_POST(op, status, post(op, &a, (in != Py_None) ? op->bufs[0].ptr : op->bufs[1].ptr, op->bufs[1].ptr, part));
    return kvpy_op_posted(op, status);
}

/* Do the lengths, one u64 for each rank, fill the buffer? */
static int check_lengths(const Py_buffer *lens, const kvpy_op_t *op, size_t i, const args_t *a)
{
    const size_t   n = (size_t)lens->len / sizeof(uint64_t);
    const uint64_t *at = lens->buf, *end = at + n;
    uint64_t       left = op->bufs[i].len;

    for (; (at < end) && (*at <= left); ++at) {
        left -= *at;
    }
    if ((n == (size_t)kvcl_comm_size(a->comm->handle)) && (at == end) && (left == 0)) {
        return 0;
    }
    PyErr_Format(PyExc_ValueError, "all_to_all: the lengths of the %s do not cut its %zu bytes into parts for %d ranks",
                 (i == 0) ? "input" : "output", op->bufs[i].len, kvcl_comm_size(a->comm->handle));
    return -1;
}

/* _exchange(request, in, in_lens, out, out_lens, timeout, stream=0): lengths as arrays of u64. */
PyObject *kvpy_comm_exchange(PyObject *self, PyObject *args)
{
    args_t             a      = {.comm = (kvpy_obj_t *)self};
    PyObject           *done  = NULL, *request, *in, *out, *timeout;
    unsigned long long stream = 0;
    Py_buffer          give, take;
    kvcl_status_t      status;
    kvpy_op_t          *op;

    if (!PyArg_ParseTuple(args, "OOy*Oy*O|K:_exchange", &request, &in, &give, &out, &take, &timeout, &stream)) {
        return NULL;
    }
    op = kvpy_op_new(request, names[ALLTOALL], a.comm, timeout, &a.params);
    if ((op != NULL) && (kvpy_buf_take(in, KVPY_CUDA, &op->bufs[0]) == 0) &&
        (kvpy_buf_take(out, KVPY_WRITE | KVPY_CUDA, &op->bufs[1]) == 0) && (check_lengths(&give, op, 0, &a) == 0) &&
        (check_lengths(&take, op, 1, &a) == 0)) {
        set_device(&a, op, stream);
        KVPY_POST(op, status, kvcl_alltoallv(a.comm->handle, op->bufs[0].ptr, give.buf, NULL, op->bufs[1].ptr, take.buf,
                                             NULL, &a.params, &op->req));
        done = kvpy_op_posted(op, status);
    } else if (op != NULL) {
        kvpy_op_free(op);
    }
    PyBuffer_Release(&give);
    PyBuffer_Release(&take);
    return done;
}

/* A buffer for each rank, or None. From bufs[0] on; lens and offs: of each, with offs from the lowest address on, which
 * *base_p is. */
static int take_parts(PyObject *list, unsigned how, Py_ssize_t n, kvpy_buf_t *bufs, uint64_t *lens, uint64_t *offs,
                      void **base_p)
{
    uintptr_t  first = UINTPTR_MAX;
    Py_ssize_t i;

    if (!PyTuple_Check(list) || (PyTuple_Size(list) != n)) {
        PyErr_Format(PyExc_ValueError, "exchange: %zd buffers are needed, one for each rank, None: nothing", n);
        return -1;
    }
    for (i = 0; i < n; ++i) {
        PyObject *item = PyTuple_GetItem(list, i);

        if ((item != Py_None) && (kvpy_buf_take(item, how, &bufs[i]) != 0)) {
            return -1;
        }
        lens[i] = bufs[i].len;
        first   = ((lens[i] > 0) && ((uintptr_t)bufs[i].ptr < first)) ? (uintptr_t)bufs[i].ptr : first;
    }
    for (i = 0; i < n; ++i) {
        offs[i] = (lens[i] > 0) ? (uintptr_t)bufs[i].ptr - first : 0;
    }
    *base_p = (first < UINTPTR_MAX) ? (void *)first : NULL;
    return 0;
}

/* _exchange_parts(request, given, taken, timeout): tuples of buffers of the host. */
PyObject *kvpy_comm_exchange_parts(PyObject *self, PyObject *args)
{
    PyObject      *request, *given, *taken, *timeout, *done = NULL;
    args_t        a = {.comm = (kvpy_obj_t *)self};
    void          *in, *out;
    kvcl_status_t status;
    uint64_t      *words;
    Py_ssize_t    n;
    kvpy_op_t     *op;

    if (!PyArg_ParseTuple(args, "OOOO:_exchange_parts", &request, &given, &taken, &timeout) ||
        ((op = kvpy_op_new(request, "exchange", a.comm, timeout, &a.params)) == NULL)) {
        return NULL;
    }
    n            = kvcl_comm_size(a.comm->handle);
    words        = calloc((size_t)n, 4 * sizeof(*words));
    op->values   = calloc((size_t)n, 2 * sizeof(*op->values));
    op->n_values = (op->values != NULL) ? 2 * (size_t)n : 0;
    if ((words == NULL) || (op->values == NULL)) {
        (void)PyErr_NoMemory();
        kvpy_op_free(op);
    } else if ((take_parts(given, 0, n, op->values, words, words + n, &in) != 0) ||
               (take_parts(taken, KVPY_WRITE, n, op->values + n, words + (2 * n), words + (3 * n), &out) != 0)) {
        kvpy_op_free(op);
    } else {
        KVPY_POST(op, status, kvcl_alltoallv(a.comm->handle, in, words, words + n, out, words + (2 * n),
                                             words + (3 * n), &a.params, &op->req));
        done = kvpy_op_posted(op, status);
    }
    free(words);
    return done;
}
