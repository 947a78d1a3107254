/*
 * All policies, one line each: kvcl_policy_NAME of the file policy names. kvcl_sched_policies lists them in this order.
 */
#ifndef KVCL_SCHED_POLICIES_H
#define KVCL_SCHED_POLICIES_H

#include "sched/sched.h"

#define KVCL_POLICY_MAP(X) \
    X(place_random)        \
    X(place_rr)            \
    X(place_load)          \
    X(place_local)         \
    X(place_global)        \
    X(place_session)       \
    X(decode_load)         \
    X(admit_all)           \
    X(queue_fcfs)

#define KVCL_POLICY_EXTERN(_name) extern const kvcl_policy_t kvcl_policy_##_name;
KVCL_POLICY_MAP(KVCL_POLICY_EXTERN)
#undef KVCL_POLICY_EXTERN

#endif
