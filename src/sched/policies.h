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
    X(place_p2c)           \
    X(place_session)       \
    X(place_cache_aware)   \
    X(place_dynamo)        \
    X(place_lmetric)       \
    X(place_preble)        \
    X(place_local)         \
    X(place_global)        \
    X(place_kvcl)          \
    X(decode_load)         \
    X(decode_random)       \
    X(decode_rr)           \
    X(decode_same)         \
    X(admit_all)           \
    X(admit_baseline)      \
    X(admit_er)            \
    X(admit_erp)           \
    X(admit_kvcl)          \
    X(queue_fcfs)          \
    X(queue_sjf)           \
    X(queue_edf)

#define KVCL_POLICY_EXTERN(_name) extern const kvcl_policy_t kvcl_policy_##_name;
KVCL_POLICY_MAP(KVCL_POLICY_EXTERN)
#undef KVCL_POLICY_EXTERN

#endif
