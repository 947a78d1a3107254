/*
 * The speeds of the ways to copy, measured on this machine in about 20 ms. No lock; allocates and frees 16 MiB.
 */
#ifndef KVCL_WEAVE_CALIBRATE_H
#define KVCL_WEAVE_CALIBRATE_H

#include "weave/choice.h"

/**
 * Fill @a table. Times are those of the calling thread's processor, so other work on the machine changes them little.
 * @return false: there is no memory, or @a kernel cannot flush the caches; *table is not changed.
 */
bool kvcl_copy_calibrate(const kvcl_weave_kernel_t *kernel, kvcl_copy_table_t *table);

#endif
