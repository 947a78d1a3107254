/*
 * Functions of the module: versions, settings, keys, layouts.
 */
#include "kvcl/ext/ext.h"

#include <string.h>

static PyObject *q_version(PyObject *module, PyObject *none)
{
    (void)module;
    (void)none;
    return PyUnicode_FromString(kvcl_version_string());
}

static PyObject *q_build(PyObject *module, PyObject *none)
{
    (void)module;
    (void)none;
    return PyUnicode_FromString(kvcl_build_string());
}

/* Called inside kvcl_query_settings with the GIL held, since q_settings keeps it. */
static void add_setting(void *arg, const kvcl_setting_info_t *info)
{
    PyObject **list_p = arg, *item;

    if (*list_p == NULL) {
        return;
    }
    item = Py_BuildValue("(zzzzz)", info->name, info->value, info->deflt, info->source, info->help);
    if ((item == NULL) || (PyList_Append(*list_p, item) != 0)) {
        Py_CLEAR(*list_p);
    }
    Py_XDECREF(item);
}

static PyObject *q_settings(PyObject *module, PyObject *none)
{
    PyObject      *list = PyList_New(0);
    kvcl_status_t status;

    (void)module;
    (void)none;
    if (list == NULL) {
        return NULL;
    }
    status = kvcl_query_settings(add_setting, &list);
    if (status != KVCL_OK) {
        Py_XDECREF(list);
        return kvpy_raise(status, NULL);
    }
    return list;
}

static PyObject *text_of(kvcl_status_t (*query)(char *buf, size_t cap, size_t *len_p))
{
    size_t        cap = 16384, len = 0;
    kvcl_status_t status;
    PyObject      *text;
    char          *buf;

    for (;;) {
        buf = calloc(1, cap + 1);
        if (buf == NULL) {
            return PyErr_NoMemory();
        }
        Py_BEGIN_ALLOW_THREADS
        status = query(buf, cap, &len);
        Py_END_ALLOW_THREADS
        if ((status == KVCL_ERR_TRUNCATED) && (len > cap)) {
            free(buf);
            cap = len;
            continue;
        }
        text = (status == KVCL_OK) ? PyUnicode_DecodeUTF8(buf, (Py_ssize_t)strlen(buf), "replace")
                                   : kvpy_raise(status, NULL);
        free(buf);
        return text;
    }
}

static PyObject *q_colls(PyObject *module, PyObject *none)
{
    (void)module;
    (void)none;
    return text_of(kvcl_query_colls);
}

static PyObject *q_topology(PyObject *module, PyObject *none)
{
    (void)module;
    (void)none;
    return text_of(kvcl_query_topology);
}

static PyObject *q_statuses(PyObject *module, PyObject *none)
{
    PyObject *dict = PyDict_New();

    (void)module;
    (void)none;
#define ADD(_name, _value, _text)                                                                                      \
    if (dict != NULL) {                                                                                                \
        PyObject *number = PyLong_FromLong(_value);                                                                    \
        if ((number == NULL) || (PyDict_SetItemString(dict, #_name, number) != 0)) {                                   \
            Py_CLEAR(dict);                                                                                            \
        }                                                                                                              \
        Py_XDECREF(number);                                                                                            \
    }
    KVCL_STATUS_MAP(ADD)
#undef ADD
    return dict;
}

static PyObject *q_status_text(PyObject *module, PyObject *arg)
{
    int status;

    (void)module;
    return (kvpy_int(arg, "status", &status) == 0) ? PyUnicode_FromString(kvcl_status_text((kvcl_status_t)status))
                                                   : NULL;
}

static PyObject *q_set_errors(PyObject *module, PyObject *dict)
{
    (void)module;
    if (kvpy_set_errors(dict) != 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* ---- keys ---- */

static PyObject *key_bytes(const kvcl_key_t *key)
{
    return PyBytes_FromStringAndSize((const char *)key->bytes, sizeof(key->bytes));
}

static PyObject *k_root(PyObject *module, PyObject *args)
{
    const char *salt, *model;
    Py_ssize_t len;
    kvcl_key_t key;

    (void)module;
    if (!PyArg_ParseTuple(args, "y#s:key_root", &salt, &len, &model)) {
        return NULL;
    }
    kvcl_key_root(salt, (size_t)len, model, &key);
    return key_bytes(&key);
}

static PyObject *k_string(PyObject *module, PyObject *args)
{
    const char *name;
    Py_ssize_t len;
    kvcl_key_t key;

    (void)module;
    if (!PyArg_ParseTuple(args, "s#:key_from_string", &name, &len)) { /* a str as UTF-8, or bytes */
        return NULL;
    }
    kvcl_key_from_string(name, (size_t)len, &key);
    return key_bytes(&key);
}

static PyObject *k_bytes(PyObject *module, PyObject *args)
{
    Py_ssize_t salt_len, len;
    const char *salt, *bytes;
    kvcl_key_t key;

    (void)module;
    if (!PyArg_ParseTuple(args, "s#y#:key_from_bytes", &bytes, &len, &salt, &salt_len)) {
        return NULL;
    }
    kvcl_key_from_bytes(salt, (size_t)salt_len, bytes, (size_t)len, &key);
    return key_bytes(&key);
}

static PyObject *key_list(const kvcl_key_t *keys, size_t n)
{
    PyObject *list = PyList_New((Py_ssize_t)n), *one;
    size_t   i;

    for (i = 0; (list != NULL) && (i < n); ++i) {
        one = key_bytes(&keys[i]);
        if (one == NULL) {
            Py_CLEAR(list);
        } else {
            PyList_SetItem(list, (Py_ssize_t)i, one);
        }
    }
    return list;
}

/* keys_from_bytes(names, salt): a list. One call for a batch: the calls cost more than the hashes. */
static PyObject *k_bytes_all(PyObject *module, PyObject *args)
{
    PyObject   *names, *seq, *list = NULL;
    Py_ssize_t salt_len, n, i;
    const char *salt;
    kvcl_key_t *keys;

    (void)module;
    if (!PyArg_ParseTuple(args, "Oy#:keys_from_bytes", &names, &salt, &salt_len) ||
        ((seq = PySequence_Tuple(names)) == NULL)) {
        return NULL;
    }
    n    = PyTuple_Size(seq);
    keys = malloc(((size_t)n + 1) * sizeof(*keys));
    if (keys == NULL) {
        PyErr_NoMemory();
    }
    for (i = 0; (keys != NULL) && (i < n); ++i) {
        const char *name;
        Py_ssize_t len;
        if (!PyArg_Parse(PyTuple_GetItem(seq, i), "s#", &name, &len)) { /* a str as UTF-8, or bytes */
            break;
        }
        kvcl_key_from_bytes(salt, (size_t)salt_len, name, (size_t)len, &keys[i]);
    }
    if ((keys != NULL) && (i == n)) {
        list = key_list(keys, (size_t)n);
    }
    free(keys);
    Py_DECREF(seq);
    return list;
}

/* value_keys(keys): a list */
static PyObject *k_values(PyObject *module, PyObject *arg)
{
    PyObject   *list;
    kvcl_key_t *keys;
    size_t     n, i;

    (void)module;
    if (kvpy_keys(arg, &keys, &n) != 0) {
        return NULL;
    }
    for (i = 0; i < n; ++i) {
        kvcl_store_value_key(&keys[i], &keys[i]);
    }
    list = key_list(keys, n);
    free(keys);
    return list;
}

/* key_chain(parent, tokens, tokens per block, first block) */
static PyObject *k_chain(PyObject *module, PyObject *args)
{
    PyObject      *parent_arg, *tokens_arg, *per_arg, *first_arg, *list = NULL;
    kvcl_key_t    *parent = NULL, *keys = NULL;
    uint32_t      *tokens = NULL;
    size_t        n_parents, n_tokens, n = 0;
    uint64_t      per, first;
    kvcl_status_t status;

    (void)module;
    if (!PyArg_ParseTuple(args, "OOOO:key_chain", &parent_arg, &tokens_arg, &per_arg, &first_arg) ||
        (kvpy_u64(per_arg, "tokens per block", PY_SSIZE_T_MAX, &per) != 0) ||
        (kvpy_u64(first_arg, "first block", UINT64_MAX, &first) != 0) ||
        (kvpy_keys(parent_arg, &parent, &n_parents) != 0)) {
        return NULL;
    }
    if (n_parents != 1) {
        PyErr_SetString(PyExc_ValueError, "the parent is one key");
    } else if (kvpy_u32s(tokens_arg, "tokens", &tokens, &n_tokens) == 0) {
        n    = (per != 0) ? n_tokens / (size_t)per : 0;
        keys = malloc((n + 1) * sizeof(*keys));
        if (keys == NULL) {
            PyErr_NoMemory();
        } else {
            Py_BEGIN_ALLOW_THREADS
            status = kvcl_key_chain(parent, first, tokens, n_tokens, (size_t)per, keys, n, &n);
            Py_END_ALLOW_THREADS
            list = (status == KVCL_OK) ? key_list(keys, n) : kvpy_raise(status, NULL);
        }
    }
    free(keys);
    free(tokens);
    free(parent);
    return list;
}

/* ---- layouts ---- */

static PyObject *l_info(PyObject *module, PyObject *arg)
{
    kvcl_layout_t layout;
    kvcl_status_t status;
    size_t        block, bases, bytes;

    (void)module;
    if (kvpy_layout(arg, &layout) != 0) {
        return NULL;
    }
    status = kvcl_layout_block_bytes(&layout, &block);
    if (status == KVCL_OK) {
        status = kvcl_layout_extent(&layout, &bases, &bytes);
    }
    return (status == KVCL_OK) ? Py_BuildValue("(nnn)", (Py_ssize_t)block, (Py_ssize_t)bases, (Py_ssize_t)bytes)
                               : kvpy_raise(status, NULL);
}

static PyObject *l_describe(PyObject *module, PyObject *arg)
{
    char          text[KVCL_LAYOUT_DESCRIBE_MAX];
    kvcl_layout_t layout;
    kvcl_status_t status;

    (void)module;
    if (kvpy_layout(arg, &layout) != 0) {
        return NULL;
    }
    status = kvcl_layout_describe(&layout, text, sizeof(text));
    return (status == KVCL_OK) ? PyUnicode_FromString(text) : kvpy_raise(status, NULL);
}

static PyObject *l_hash(PyObject *module, PyObject *arg)
{
    kvcl_layout_t layout;
    kvcl_status_t status;
    uint8_t       hash[32];

    (void)module;
    if (kvpy_layout(arg, &layout) != 0) {
        return NULL;
    }
    status = kvcl_layout_hash(&layout, hash);
    return (status == KVCL_OK) ? PyBytes_FromStringAndSize((const char *)hash, 32) : kvpy_raise(status, NULL);
}

static PyObject *l_compatible(PyObject *module, PyObject *args)
{
    PyObject      *a_arg, *b_arg;
    kvcl_layout_t a, b;
    kvcl_status_t status;

    (void)module;
    if (!PyArg_ParseTuple(args, "OO:layout_compatible", &a_arg, &b_arg) || (kvpy_layout(a_arg, &a) != 0) ||
        (kvpy_layout(b_arg, &b) != 0)) {
        return NULL;
    }
    status = kvcl_layout_compatible(&a, &b);
    if (status != KVCL_OK) {
        return kvpy_raise(status, NULL);
    }
    Py_RETURN_NONE;
}

PyMethodDef kvpy_query_methods[] = {
    {"version", q_version, METH_NOARGS, "The library's version."},
    {"build", q_build, METH_NOARGS, "One line that names the library's parts with their versions."},
    {"settings", q_settings, METH_NOARGS, "(name, value, default, source, help) of every setting."},
    {"colls", q_colls, METH_NOARGS, "The collective algorithms and the selection table, as text."},
    {"topology", q_topology, METH_NOARGS, "The machine as the library sees it, as text."},
    {"statuses", q_statuses, METH_NOARGS, "{name: value} of every status."},
    {"status_text", q_status_text, METH_O, "What a status means."},
    {"wait_any", kvpy_wait_any, METH_VARARGS, "wait_any(requests, timeout): the index of one that has completed"},
    {"set_errors", q_set_errors, METH_O, "set_errors({status: exception class})"},
    {"key_root", k_root, METH_VARARGS, "key_root(salt, model)"},
    {"key_from_string", k_string, METH_VARARGS, "key_from_string(name)"},
    {"key_from_bytes", k_bytes, METH_VARARGS, "key_from_bytes(name, salt)"},
    {"keys_from_bytes", k_bytes_all, METH_VARARGS, "keys_from_bytes(names, salt)"},
    {"value_keys", k_values, METH_O, "value_keys(keys)"},
    {"key_chain", k_chain, METH_VARARGS, "key_chain(parent, tokens, tokens_per_block, first_block)"},
    {"layout_info", l_info, METH_O, "(block bytes, bases, bytes behind each base)"},
    {"layout_describe", l_describe, METH_O, "One line."},
    {"layout_hash", l_hash, METH_O, "32 bytes."},
    {"reshard_share", kvpy_reshard_share, METH_VARARGS, "reshard_share(layers, heads, group, index)"},
    {"reshard_plan", kvpy_reshard_plan, METH_VARARGS,
     "reshard_plan(of_source, index, layers, heads, source, destination, distances)"},
    {"ep_place", kvpy_ep_place, METH_VARARGS, "ep_place(params, loads, placement)"},
    {"ep_index", kvpy_ep_index, METH_VARARGS, "ep_index(params, placement, copies or None, copies_max, counts)"},
    {"ep_repair", kvpy_ep_repair, METH_VARARGS, "ep_repair(params, old, placement): (restored, missing)"},
    {"ep_moves", kvpy_ep_moves, METH_VARARGS, "ep_moves(params, old, placement): a list of tuples"},
    {"ep_renormalise", kvpy_ep_renormalise, METH_VARARGS,
     "ep_renormalise(out, dtype, tokens, hidden, ids, weights, top_k, lost, hopeless): how many are hopeless"},
    {"ep_weights_sum", kvpy_ep_weights_sum, METH_VARARGS, "ep_weights_sum(cache, block)"},
    {"ep_restore", kvpy_ep_restore, METH_VARARGS,
     "ep_restore(params, weights, old, moves, n, blocks): how many are missing"},
    {"ep_settle", kvpy_ep_settle, METH_VARARGS, "ep_settle(params, weights, moves, n, blocks)"},
    {"sched_root", kvpy_sched_root, METH_VARARGS, "sched_root(salt, model, lora, tenant, extra, group)"},
    {"sched_policies", kvpy_sched_policies, METH_NOARGS, "[(name, kind, desc, source)]"},
    {"sched_model", kvpy_sched_model, METH_O, "(name, source, prefill, decode and transfer error, kv_bytes)"},
    {"sched_times", kvpy_sched_times, METH_VARARGS, "sched_times(model, n, cached, batch, context)"},
    {"layout_compatible", l_compatible, METH_VARARGS, "BadLayout if whole blocks of both are not the same thing."},
    {NULL, NULL, 0, NULL}};
