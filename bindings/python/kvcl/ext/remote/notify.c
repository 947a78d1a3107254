/*
 * Notifications, as Python sees them: the notify argument of gets and puts, and the calls of a Comm.
 */
#include "kvcl/ext/ext.h"

int kvpy_op_notify(kvpy_op_t *op, PyObject *notify, kvcl_xfer_params_t *params)
{
    if (notify == Py_None) {
        return 0;
    }
    if (kvpy_buf_take(notify, 0, &op->bufs[1]) != 0) {
        return -1;
    }
    params->notify       = (op->bufs[1].len > 0) ? op->bufs[1].ptr : "";
    params->notify_bytes = op->bufs[1].len;
    return 0;
}

/* _notify(request, rank, bytes, timeout) */
PyObject *kvpy_comm_notify(PyObject *self, PyObject *args)
{
    PyObject           *request, *rank_arg, *bytes, *timeout;
    kvpy_obj_t         *comm = (kvpy_obj_t *)self;
    kvcl_xfer_params_t params;
    kvcl_status_t      status;
    kvpy_op_t          *op;
    int                rank;

    if (!PyArg_ParseTuple(args, "OOOO:_notify", &request, &rank_arg, &bytes, &timeout) ||
        (kvpy_int(rank_arg, "rank", &rank) != 0) ||
        ((op = kvpy_op_new(request, "notify", comm, timeout, &params)) == NULL)) {
        return NULL;
    }
    if (kvpy_buf_take(bytes, 0, &op->bufs[0]) != 0) {
        kvpy_op_free(op);
        return NULL;
    }
    KVPY_POST(op, status, kvcl_notify(comm->handle, rank, op->bufs[0].ptr, op->bufs[0].len, &params, &op->req));
    return kvpy_op_posted(op, status);
}

/* _notify_recv(timeout in seconds): (source, bytes), or None: none has arrived. */
PyObject *kvpy_comm_notify_recv(PyObject *self, PyObject *arg)
{
    char             buf[KVCL_NOTIFY_MAX];
    kvpy_obj_t       *comm = (kvpy_obj_t *)self;
    kvcl_recv_info_t info  = KVCL_RECV_INFO_INIT;
    kvcl_status_t    status;
    uint64_t         ns;
    double           seconds = PyFloat_AsDouble(arg);

    if (((seconds == -1.0) && PyErr_Occurred()) || (kvpy_obj_check(comm) != 0) || (kvpy_timeout(arg, &ns) != 0)) {
        return NULL;
    }
    ns = (seconds == 0) ? 0 : ns;
    KVPY_CALL(comm, status, kvcl_notify_recv(comm->handle, buf, sizeof(buf), &info, ns));
    if (status == KVCL_ERR_WAIT_TIMEOUT) {
        Py_RETURN_NONE;
    }
    if (status != KVCL_OK) {
        return kvpy_raise(status, NULL);
    }
    return Py_BuildValue("iy#", info.source, buf, (Py_ssize_t)info.bytes);
}
