/*
 * Finds out whether lists, ints and bytes lie where in_place.h reads them, by objects whose contents are known.
 */
#include "kvcl/ext/arrays/in_place.h"

#include <stdio.h>

enum { FIRST_MINOR = 9, LAST_MINOR = 14, ELEMENTS = 37 };

kvpy_places_t kvpy_places;

/* CPython, of a version whose headers have these places. */
static bool is_known(void)
{
    PyObject *name = PyObject_GetAttrString(PySys_GetObject("implementation"), "name");
    unsigned major = 0, minor = 0;
    bool     known;

    known = (name != NULL) && (PyUnicode_CompareWithASCIIString(name, "cpython") == 0) &&
            (sscanf(Py_GetVersion(), "%u.%u.", &major, &minor) == 2) && (major == 3) && (minor >= FIRST_MINOR) &&
            (minor <= LAST_MINOR) && (sizeof(void *) == 8) && (sizeof(PyObject) == 16);
#ifdef Py_GIL_DISABLED
    known = false; /* another thread may change a list meanwhile */
#endif
    Py_XDECREF(name);
    PyErr_Clear();
    return known;
}

/* A list that has grown, and been cut at its beginning. */
static bool lists_are_there(void)
{
    PyObject        *list = PyList_New(0);
    PyObject *const *items;
    Py_ssize_t      i;
    bool            good = (list != NULL);

    for (i = 0; good && (i < ELEMENTS); ++i) {
        PyObject *item = PyLong_FromSsize_t(1000 * i);

        good = (item != NULL) && (PyList_Append(list, item) == 0);
        Py_XDECREF(item);
    }
    good  = good && (PyList_SetSlice(list, 0, 3, NULL) == 0) && (kvpy_word(list, KVPY_WORD_AT) == ELEMENTS - 3);
    items = good ? (PyObject *const *)(uintptr_t)kvpy_word(list, KVPY_VALUE_AT) : NULL;
    for (i = 0; good && (i < ELEMENTS - 3); ++i) {
        good = (items[i] == PyList_GetItem(list, i));
    }
    Py_XDECREF(list);
    return good;
}

/* Does kvpy_digit find this value; or, of one that has no single digit above 0, nothing? */
static bool int_is_there(long long value)
{
    PyObject *item = PyLong_FromLongLong(value);
    uint32_t found = 0;
    bool     has   = (item != NULL) && kvpy_digit(item, &found);

    has = (item != NULL) && (has == ((value > 0) && (value < (1 << 30)))) && (!has || (found == (uint32_t)value));
    Py_XDECREF(item);
    return has;
}

static bool ints_are_there(void)
{
    static const long long values[] = {1, 2, 255, 256, 257, 258, 1025, 32767, 32768, 65535, 65536, 999999,
                                       (1 << 30) - 1, 0, -1, -5, -6, -257, -65536, -(1 << 30), 1 << 30,
                                       (1 << 30) + 1, 1LL << 31, (1LL << 32) - 1, 1LL << 32, 1LL << 60, INT64_MAX,
                                       INT64_MIN};
    PyObject               *shared = PyLong_FromLong(1), *other = PyLong_FromLong(123456);
    size_t                 i = 0;

    if ((shared != NULL) && (other != NULL)) {
        kvpy_places.ints         = true;
        kvpy_places.shared_digit = kvpy_word(shared, KVPY_WORD_AT);
        kvpy_places.one_digit    = kvpy_word(other, KVPY_WORD_AT);
        while ((i < sizeof(values) / sizeof(values[0])) && int_is_there(values[i])) {
            ++i;
        }
    }
    Py_XDECREF(shared);
    Py_XDECREF(other);
    return i == sizeof(values) / sizeof(values[0]);
}

static bool bytes_are_there(void)
{
    static const char text[] = "a text that is longer than any key of 32 bytes is";
    bool              good   = true;
    size_t            len;

    for (len = 2; good && (len < sizeof(text)); ++len) {
        PyObject *bytes = PyBytes_FromStringAndSize(text, (Py_ssize_t)len);

        good = (bytes != NULL) && (kvpy_word(bytes, KVPY_WORD_AT) == len) &&
               (PyBytes_AsString(bytes) == (char *)bytes + KVPY_BYTES_AT);
        Py_XDECREF(bytes);
    }
    return good;
}

int kvpy_places_find(void)
{
    const bool known = is_known();

    kvpy_places.lists = known && lists_are_there();
    kvpy_places.ints  = known && ints_are_there();
    kvpy_places.bytes = known && bytes_are_there();
    return PyErr_Occurred() ? -1 : 0;
}
