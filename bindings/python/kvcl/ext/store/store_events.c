/*
 * An event of a store, and a block that a rank holds, as tuples.
 */
#include "kvcl/ext/ext.h"

PyObject *kvpy_store_event(const kvcl_store_event_t *e)
{
    return Py_BuildValue("(KIIy#KIi)", (unsigned long long)e->seq, (unsigned)e->kind, (unsigned)e->tier,
                         (const char *)e->key.bytes, (Py_ssize_t)sizeof(e->key.bytes), (unsigned long long)e->tenant,
                         (unsigned)e->bytes, (int)e->to_rank);
}

PyObject *kvpy_store_item(const kvcl_store_item_t *item)
{
    return Py_BuildValue("(y#KIIII)", (const char *)item->key.bytes, (Py_ssize_t)sizeof(item->key.bytes),
                         (unsigned long long)item->tenant, (unsigned)item->bytes, (unsigned)item->tier,
                         (unsigned)item->cache, (unsigned)item->slot);
}
