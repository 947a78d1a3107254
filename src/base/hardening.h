/*
 * KVCL_UNGUARDED: no stack protector for a function (contrib/m4/kvcl_hardening.m4). Only for functions of the path on
 * which a small get or put over shared memory ends inside its call. kvcl_perf get of 4 KiB there: 2,128 instructions an
 * iteration and 153 ns with these functions guarded and indirect branches marked, 2,046 and 149 ns as it is, 2,031 and
 * 142 ns with --disable-hardening. Such a function has no array among its locals, so nothing can run over its end.
 */
#ifndef KVCL_BASE_HARDENING_H
#define KVCL_BASE_HARDENING_H

#if defined(__has_attribute)
#if __has_attribute(no_stack_protector)
#define KVCL_UNGUARDED __attribute__((no_stack_protector))
#endif
#endif
#ifndef KVCL_UNGUARDED
#define KVCL_UNGUARDED
#endif

#endif
