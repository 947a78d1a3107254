/*
 * The scheduler and the prefix index in Python: what their files share. Structs are read from tuples and become tuples
 * by tables of their fields; the Python half (sched.py) has named tuples with the same order.
 */
#ifndef KVPY_EXT_SCHED_H
#define KVPY_EXT_SCHED_H

#include "kvcl/ext/ext.h"

#include <stddef.h>

typedef enum kvpy_type {
    KVPY_U16,
    KVPY_U32,
    KVPY_U64,
    KVPY_SIZE,
    KVPY_DOUBLE
} kvpy_type_t;

typedef struct kvpy_field {
    const char  *name;
    size_t      offset;
    kvpy_type_t type;
} kvpy_field_t;

/* A row of a table. */
#define KVPY_FIELD(_struct, _member, _type) {#_member, offsetof(_struct, _member), _type}

/** Fill the fields of a struct from a tuple of n items. @return 0, or -1 with an exception set. */
int       kvpy_fields_in(PyObject *tuple, const kvpy_field_t *fields, size_t n, void *out);
/** The fields as a tuple. */
PyObject *kvpy_fields_out(const void *from, const kvpy_field_t *fields, size_t n);
/** A tuple (or list) of tuples as an array of n structs with their sizes set; free() it. */
int       kvpy_structs_in(PyObject *list, const kvpy_field_t *fields, size_t n_fields, size_t bytes, const void *init,
                          void **array_p, size_t *n_p);
/** Holds: tuples (inst, first, blocks, tier, flags); free() them. */
int       kvpy_holds_in(PyObject *list, kvcl_sched_hold_t **holds_p, size_t *n_p);
PyObject *kvpy_holds_out(const kvcl_sched_hold_t *holds, size_t n);

#endif
