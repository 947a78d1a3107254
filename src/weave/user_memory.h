/*
 * Whether memory of this process can be accessed, asked of the kernel before a copy: a copy that fails is a signal. Any
 * thread, no lock. Another thread may unmap the memory after the answer.
 */
#ifndef KVCL_WEAVE_USER_MEMORY_H
#define KVCL_WEAVE_USER_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

/** Is each page of the bytes mapped, with any access? Touches none of them. One system call: time by mappings. */
bool kvcl_is_mapped(const void *addr, size_t len);
/** May this byte be read and written? It is, with the value it has; true where the kernel does not say. */
bool kvcl_is_writable(void *addr);
/** Read a byte of each page, so that a fault that waits for the page's bytes is taken here. */
void kvcl_touch_pages(const void *addr, size_t len);

#endif
