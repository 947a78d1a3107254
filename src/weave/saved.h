/*
 * The measured speeds, kept between processes: one small text file for each kind of machine, below the user's cache
 * folder. Its name and its first lines are the machine: the processor's model, the kernel's release, the instruction
 * set. The bytes of a file are hostile: a file that is not exactly of the form below, whose machine is another, or that
 * another user can write, is refused.
 *
 *     kvcl copy 2
 *     machine <one line>
 *     when <seconds since 1970>
 *     <bytes> <MB/s of each way>       (a line for each row)
 *     <bytes> <MB/s by memcpy> <past the caches> (a line for each transfer)
 *
 * No lock. Each process writes a temporary file of its own and renames it, so each reader finds a whole file.
 */
#ifndef KVCL_WEAVE_SAVED_H
#define KVCL_WEAVE_SAVED_H

#include "weave/choice.h"

#include <stdio.h>

enum { KVCL_COPY_TEXT_MAX = 1024, KVCL_COPY_MACHINE_MAX = 256, KVCL_COPY_PATH_MAX = 1024 };

/** The machine as one line: the processor by /proc/cpuinfo, the kernel by uname, the kernel of weave by its name. */
void kvcl_copy_machine(const kvcl_weave_kernel_t *kernel, char machine[KVCL_COPY_MACHINE_MAX]);
/** The same from an open file of the form of /proc/cpuinfo (NULL: none), the kernel's release, and a kernel's name. */
void kvcl_copy_machine_of(FILE *cpuinfo, const char *release, const char *kernel, char machine[KVCL_COPY_MACHINE_MAX]);

/** The file's text. @return its length, below KVCL_COPY_TEXT_MAX. */
size_t kvcl_copy_pack(const kvcl_copy_table_t *table, const char *machine, char text[KVCL_COPY_TEXT_MAX]);
/** @return whether the @a len bytes of @a text are what pack writes for this machine; otherwise *table is unchanged. */
bool kvcl_copy_unpack(kvcl_copy_table_t *table, const char *machine, const char *text, size_t len);

/**
 * The file's path below @a folder, the user's cache folder, an absolute path.
 * @return false: the path is too long, or there is no folder (NULL or not absolute).
 */
bool kvcl_copy_path(const char *folder, const char *machine, char path[KVCL_COPY_PATH_MAX]);
bool kvcl_copy_load(kvcl_copy_table_t *table, const char *path, const char *machine);
/** Makes the two folders above the file if they are missing (mode 0700). @return false: it could not be written, and no
 * file is left. */
bool kvcl_copy_save(const kvcl_copy_table_t *table, const char *path, const char *machine);

#endif
