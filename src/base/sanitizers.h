/*
 * Which sanitizers this build has: KVCL_ASAN (with it the leak check) and KVCL_TSAN, 0 or 1. gcc says so by macros,
 * clang by __has_feature.
 */
#ifndef KVCL_BASE_SANITIZERS_H
#define KVCL_BASE_SANITIZERS_H

#if defined(__has_feature)
#define KVCL_HAS_SANITIZER(_name) __has_feature(_name)
#else
#define KVCL_HAS_SANITIZER(_name) 0
#endif

#if defined(__SANITIZE_ADDRESS__) || KVCL_HAS_SANITIZER(address_sanitizer)
#define KVCL_ASAN 1
#else
#define KVCL_ASAN 0
#endif

#if defined(__SANITIZE_THREAD__) || KVCL_HAS_SANITIZER(thread_sanitizer)
#define KVCL_TSAN 1
#else
#define KVCL_TSAN 0
#endif

#endif
