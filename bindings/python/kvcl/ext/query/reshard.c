/*
 * Reshard plans: plain values in, tuples out.
 */
#include "kvcl/ext/ext.h"

#include <string.h>

/* A group from (tp, pp, stage_layers or None). Free *layers_p with free(). */
static int group_of(PyObject *arg, const char *what, kvcl_reshard_group_t *group, uint32_t **layers_p)
{
    uint64_t tp, pp;
    PyObject *layers;
    size_t   n;

    *layers_p = NULL;
    if (!PyTuple_Check(arg) || (PyTuple_Size(arg) != 3)) {
        PyErr_Format(PyExc_TypeError, "%s: a ReshardGroup is needed", what);
        return -1;
    }
    layers = PyTuple_GetItem(arg, 2);
    if ((kvpy_u64(PyTuple_GetItem(arg, 0), "tp", UINT32_MAX, &tp) != 0) ||
        (kvpy_u64(PyTuple_GetItem(arg, 1), "pp", UINT32_MAX, &pp) != 0)) {
        return -1;
    }
    if (layers != Py_None) {
        if (kvpy_u32s(layers, "stage_layers", layers_p, &n) != 0) {
            return -1;
        }
        if (n != ((pp == 0) ? 1 : pp)) {
            PyErr_Format(PyExc_ValueError, "%s: stage_layers has %zu entries for %llu stages", what, n,
                         (unsigned long long)pp);
            free(*layers_p);
            *layers_p = NULL;
            return -1;
        }
    }
    *group = (kvcl_reshard_group_t){.tp = (uint32_t)tp, .pp = (uint32_t)pp, .stage_layers = *layers_p};
    return 0;
}

static PyObject *range_value(kvcl_range_t range)
{
    return Py_BuildValue("(II)", (unsigned)range.first, (unsigned)range.end);
}

static PyObject *step_value(const kvcl_reshard_step_t *step)
{
    return Py_BuildValue("(IINNNN)", (unsigned)step->source, (unsigned)step->destination,
                         range_value(step->source_layers), range_value(step->source_heads),
                         range_value(step->destination_layers), range_value(step->destination_heads));
}

/* reshard_share(layers, heads, group, index) */
PyObject *kvpy_reshard_share(PyObject *module, PyObject *args)
{
    PyObject             *layers_arg, *heads_arg, *group_arg, *index_arg, *value = NULL;
    uint64_t             layers, heads, index;
    kvcl_range_t         own_layers, own_heads;
    kvcl_reshard_group_t group;
    uint32_t             *stages;
    kvcl_status_t        status;

    (void)module;
    if (!PyArg_ParseTuple(args, "OOOO:reshard_share", &layers_arg, &heads_arg, &group_arg, &index_arg) ||
        (kvpy_u64(layers_arg, "layers", UINT32_MAX, &layers) != 0) ||
        (kvpy_u64(heads_arg, "heads", UINT32_MAX, &heads) != 0) ||
        (kvpy_u64(index_arg, "index", UINT32_MAX, &index) != 0) ||
        (group_of(group_arg, "group", &group, &stages) != 0)) {
        return NULL;
    }
    status = kvcl_reshard_share(&group, (uint32_t)layers, (uint32_t)heads, (uint32_t)index, &own_layers, &own_heads);
    value  = (status == KVCL_OK) ? Py_BuildValue("(NN)", range_value(own_layers), range_value(own_heads))
                                 : kvpy_raise(status, NULL);
    free(stages);
    return value;
}

/* The list of steps; a first call with KVCL_ERR_TRUNCATED returns their number. */
static PyObject *steps_of(const kvcl_reshard_params_t *params, int of_source, uint32_t index)
{
    kvcl_status_t (*plan)(const kvcl_reshard_params_t *, uint32_t, kvcl_reshard_step_t *, size_t, size_t,
                          size_t *) =
        of_source ? kvcl_reshard_plan_source : kvcl_reshard_plan;
    kvcl_reshard_step_t *steps = NULL;
    PyObject            *list, *step;
    size_t              n = 0, i;
    kvcl_status_t       status = plan(params, index, NULL, sizeof(*steps), 0, &n);

    if (status == KVCL_ERR_TRUNCATED) {
        steps = malloc(n * sizeof(*steps));
        if (steps == NULL) {
            return PyErr_NoMemory();
        }
        status = plan(params, index, steps, sizeof(*steps), n, &n);
    }
    list = (status == KVCL_OK) ? PyList_New((Py_ssize_t)n) : kvpy_raise(status, NULL);
    for (i = 0; (list != NULL) && (i < n); ++i) {
        step = step_value(&steps[i]);
        if (step == NULL) {
            Py_CLEAR(list);
        } else {
            PyList_SetItem(list, (Py_ssize_t)i, step);
        }
    }
    free(steps);
    return list;
}

/* reshard_plan(of_source, index, layers, heads, source, destination, distances or None) */
PyObject *kvpy_reshard_plan(PyObject *module, PyObject *args)
{
    kvcl_reshard_params_t params = KVCL_RESHARD_PARAMS_INIT;
    PyObject              *index_arg, *layers_arg, *heads_arg, *source, *destination, *distances, *list = NULL;
    uint32_t              *from = NULL, *to = NULL, *near = NULL;
    uint64_t              index, layers, heads, pairs;
    size_t                n = 0;
    int                   of_source;

    (void)module;
    if (!PyArg_ParseTuple(args, "pOOOOOO:reshard_plan", &of_source, &index_arg, &layers_arg, &heads_arg, &source,
                          &destination, &distances) ||
        (kvpy_u64(index_arg, "index", UINT32_MAX, &index) != 0) ||
        (kvpy_u64(layers_arg, "layers", UINT32_MAX, &layers) != 0) ||
        (kvpy_u64(heads_arg, "heads", UINT32_MAX, &heads) != 0)) {
        return NULL;
    }
    params.layers = (uint32_t)layers;
    params.heads  = (uint32_t)heads;
    if ((group_of(source, "source", &params.source, &from) == 0) &&
        (group_of(destination, "destination", &params.destination, &to) == 0) &&
        ((distances == Py_None) || (kvpy_u32s(distances, "distances", &near, &n) == 0))) {
        pairs = KVCL_RESHARD_STEPS_MAX(params.source.tp, params.source.pp) *
                KVCL_RESHARD_STEPS_MAX(params.destination.tp, params.destination.pp);
        if ((near != NULL) && (n != pairs)) {
            PyErr_Format(PyExc_ValueError, "distances: %zu of %llu pairs of ranks", n, (unsigned long long)pairs);
        } else {
            params.distances = near;
            list             = steps_of(&params, of_source, (uint32_t)index);
        }
    }
    free(near);
    free(to);
    free(from);
    return list;
}
