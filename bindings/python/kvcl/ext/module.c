/*
 * The module kvcl._kvcl.
 */
#include "kvcl/ext/arrays/in_place.h"

static int add_type(PyObject *module, const char *name, PyTypeObject *(*make)(void), PyTypeObject **type_p)
{
    PyTypeObject *type = make();

    if (type == NULL) {
        return -1;
    }
    *type_p = type; /* the module's own reference, never dropped */
    Py_INCREF(type);
    if (PyModule_AddObject(module, name, (PyObject *)type) != 0) {
        Py_DECREF(type);
        return -1;
    }
    return 0;
}

PyMODINIT_FUNC PyInit__kvcl(void); /* the interpreter looks this symbol up by name */

PyMODINIT_FUNC PyInit__kvcl(void)
{
    static struct PyModuleDef def = {PyModuleDef_HEAD_INIT, "kvcl._kvcl",
                                     "The C half of kvcl: use the classes of the package instead.", -1,
                                     kvpy_query_methods, NULL, NULL, NULL, NULL};
    static PyTypeObject *index_type, *sched_type;
    PyObject *module = PyModule_Create(&def);

    if ((module == NULL) || (add_type(module, "Region", kvpy_make_region, &kvpy_region_type) != 0) ||
        (add_type(module, "Context", kvpy_make_context, &kvpy_context_type) != 0) ||
        (add_type(module, "Comm", kvpy_make_comm, &kvpy_comm_type) != 0) ||
        (add_type(module, "Cache", kvpy_make_cache, &kvpy_cache_type) != 0) ||
        (add_type(module, "Mem", kvpy_make_mem, &kvpy_mem_type) != 0) ||
        (add_type(module, "RemoteMem", kvpy_make_rmem, &kvpy_rmem_type) != 0) ||
        (add_type(module, "Store", kvpy_make_store, &kvpy_store_type) != 0) ||
        (add_type(module, "Experts", kvpy_make_experts, &kvpy_experts_type) != 0) ||
        (add_type(module, "Transfer", kvpy_make_xfer, &kvpy_xfer_type) != 0) ||
        (add_type(module, "SchedIndex", kvpy_make_index, &index_type) != 0) ||
        (add_type(module, "Sched", kvpy_make_sched, &sched_type) != 0) ||
        (add_type(module, "Request", kvpy_make_request, &kvpy_request_type) != 0) ||
        (add_type(module, "Queue", kvpy_make_queue, &kvpy_queue_type) != 0) ||
        (PyModule_AddIntConstant(module, "ANY_SOURCE", KVCL_ANY_SOURCE) != 0) ||
        (PyModule_AddObject(module, "ANY_TAG", PyLong_FromUnsignedLongLong(KVCL_ANY_TAG)) != 0) ||
        (kvpy_places_find() != 0) ||
        (PyModule_AddIntConstant(module, "IN_PLACE", kvpy_places.lists + kvpy_places.ints + kvpy_places.bytes) != 0) ||
        (PyModule_AddIntConstant(module, "READ", KVCL_READ) != 0) ||
        (PyModule_AddIntConstant(module, "WRITE", KVCL_WRITE) != 0) ||
        (PyModule_AddIntConstant(module, "LAYOUT_PER_LAYER", (long)KVCL_LAYOUT_PER_LAYER) != 0) ||
        (PyModule_AddIntConstant(module, "LAYOUT_PER_PLANE", (long)KVCL_LAYOUT_PER_PLANE) != 0)) {
        Py_XDECREF(module);
        return NULL;
    }
    return module;
}
