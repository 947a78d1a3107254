/*
 * Elements of lists, small ints and short bytes objects, read where CPython keeps them. The calls of Python's limited
 * API take 3.5 ns for each element of a list of ints, reading takes 0.5 ns.
 *
 * The limited API does not promise these places. So they are used only in CPython 3.9 to 3.14 with a GIL, whose headers
 * (listobject.h, longintrepr.h, bytesobject.h) have them, and only if objects made when the module is loaded are found
 * there; otherwise everything goes by the API, with the same results. The GIL is held throughout.
 */
#ifndef KVPY_IN_PLACE_H
#define KVPY_IN_PLACE_H

#include "kvcl/ext/ext.h"

#include <string.h>

/* Behind PyObject lie: of a list and of bytes their length; of an int a word with its sign and number of digits, here
 * that of ints with one digit (30 bits), above 0; shared ints have another one in some versions. Then the elements'
 * address; the digit; a hash and the bytes. */
typedef struct kvpy_places {
    bool     lists, ints, bytes;
    uint64_t one_digit, shared_digit;
} kvpy_places_t;

enum { KVPY_WORD_AT = sizeof(PyObject), KVPY_VALUE_AT = KVPY_WORD_AT + 8, KVPY_BYTES_AT = KVPY_VALUE_AT + 8 };

extern kvpy_places_t kvpy_places; /* written by kvpy_places_find alone */

/** When the module is loaded. @return 0, or -1 with an exception set. */
int kvpy_places_find(void);

static inline uint64_t kvpy_word(const PyObject *obj, size_t at)
{
    uint64_t word;

    memcpy(&word, (const char *)obj + at, sizeof(word));
    return word;
}

/** The elements of a list, borrowed; NULL: by the API. */
static inline PyObject *const *kvpy_items(PyObject *list)
{
    return kvpy_places.lists ? (PyObject *const *)(uintptr_t)kvpy_word(list, KVPY_VALUE_AT) : NULL;
}

static inline PyObject *kvpy_item(PyObject *list, PyObject *const *items, Py_ssize_t i)
{
    return (items != NULL) ? items[i] : PyList_GetItem(list, i);
}

/** An int of one digit, above 0. @return false: by the API. */
static inline bool kvpy_digit(PyObject *item, uint32_t *value)
{
    uint64_t word;
    uint32_t digit;

    if (!kvpy_places.ints || !PyLong_CheckExact(item)) {
        return false;
    }
    word = kvpy_word(item, KVPY_WORD_AT);
    if ((word != kvpy_places.one_digit) && (word != kvpy_places.shared_digit)) {
        return false;
    }
    memcpy(&digit, (const char *)item + KVPY_VALUE_AT, sizeof(digit)); /* not to *value, whose length gcc checks */
    *value = digit;
    return true;
}

/** A bytes object of a key's length. @return false: by the API. */
static inline bool kvpy_key_in_place(PyObject *item, kvcl_key_t *to)
{
    kvcl_key_t key;

    if (!kvpy_places.bytes || !PyBytes_CheckExact(item) || (kvpy_word(item, KVPY_WORD_AT) != sizeof(key.bytes))) {
        return false;
    }
    memcpy(key.bytes, (const char *)item + KVPY_BYTES_AT, sizeof(key.bytes));
    *to = key;
    return true;
}

#endif
