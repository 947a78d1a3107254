/*
 * Intrusive doubly linked list: the link lives in the object, the head is a link of its own.
 *
 * Invariants: head and removed elements point at themselves, so del of a removed (or just
 * initialised) element is harmless. The list owns no memory. The caller's lock protects it.
 */
#ifndef KVCL_BASE_LIST_H
#define KVCL_BASE_LIST_H

#include <stddef.h>

#define kvcl_container_of(_ptr, _type, _member)                                                    \
    ((_type *)(void *)((char *)(_ptr) - offsetof(_type, _member)))

typedef struct kvcl_list {
    struct kvcl_list *prev;
    struct kvcl_list *next;
} kvcl_list_t;

static inline void kvcl_list_init(kvcl_list_t *list)
{
    list->prev = list;
    list->next = list;
}

static inline int kvcl_list_is_empty(const kvcl_list_t *list)
{
    return list->next == list;
}

static inline void kvcl_list_insert_before(kvcl_list_t *pos, kvcl_list_t *elem)
{
    elem->prev      = pos->prev;
    elem->next      = pos;
    pos->prev->next = elem;
    pos->prev       = elem;
}

static inline void kvcl_list_add_tail(kvcl_list_t *list, kvcl_list_t *elem)
{
    kvcl_list_insert_before(list, elem);
}

static inline void kvcl_list_add_head(kvcl_list_t *list, kvcl_list_t *elem)
{
    kvcl_list_insert_before(list->next, elem);
}

static inline void kvcl_list_del(kvcl_list_t *elem)
{
    elem->prev->next = elem->next;
    elem->next->prev = elem->prev;
    kvcl_list_init(elem);
}

/* The first element, or NULL. */
static inline kvcl_list_t *kvcl_list_first(const kvcl_list_t *list)
{
    return kvcl_list_is_empty(list) ? NULL : list->next;
}

/* Remove and return the first element, or NULL. */
static inline kvcl_list_t *kvcl_list_pop(kvcl_list_t *list)
{
    kvcl_list_t *elem = kvcl_list_first(list);

    if (elem != NULL) {
        kvcl_list_del(elem);
    }
    return elem;
}

/* Move all of `from` to the tail of `to`; `from` is empty afterwards. */
static inline void kvcl_list_splice_tail(kvcl_list_t *to, kvcl_list_t *from)
{
    if (!kvcl_list_is_empty(from)) {
        from->next->prev = to->prev;
        to->prev->next   = from->next;
        from->prev->next = to;
        to->prev         = from->prev;
        kvcl_list_init(from);
    }
}

/* The object that holds the first link; the list must not be empty. */
#define kvcl_list_head(_list, _type, _member) kvcl_container_of((_list)->next, _type, _member)

/* _elem: a `_type *` variable. The body must not remove _elem. */
#define kvcl_list_foreach(_elem, _list, _type, _member)                                            \
    for ((_elem) = kvcl_container_of((_list)->next, _type, _member);                               \
         &(_elem)->_member != (_list);                                                             \
         (_elem) = kvcl_container_of((_elem)->_member.next, _type, _member))

/* As above; the body may remove or free _elem. _tmp: another `_type *` variable. */
#define kvcl_list_foreach_safe(_elem, _tmp, _list, _type, _member)                                 \
    for ((_elem) = kvcl_container_of((_list)->next, _type, _member),                               \
        (_tmp)   = kvcl_container_of((_elem)->_member.next, _type, _member);                       \
         &(_elem)->_member != (_list);                                                             \
         (_elem) = (_tmp), (_tmp) = kvcl_container_of((_elem)->_member.next, _type, _member))

#endif
