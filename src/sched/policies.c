/*
 * The table of policies, and the call that lists it. Static data.
 */
#include "config.h"
#include "sched/policies.h"
#include "base/error.h"

#define KVCL_POLICY_ROW(_name) &kvcl_policy_##_name,
const kvcl_policy_t *const kvcl_policies[] = {KVCL_POLICY_MAP(KVCL_POLICY_ROW)};
#undef KVCL_POLICY_ROW
const size_t kvcl_n_policies = sizeof(kvcl_policies) / sizeof(kvcl_policies[0]);

const char *const kvcl_policy_kinds[KVCL_POLICY_KINDS] = {"prefill", "decode", "admit", "queue"};

static void give(const char **to, const char *text)
{
    if (to != NULL) {
        *to = text;
    }
}

kvcl_status_t kvcl_sched_policies(size_t i, const char **name_p, const char **kind_p, const char **desc_p,
                                  const char **source_p)
{
    if (i >= kvcl_n_policies) {
        return kvcl_fail(KVCL_ERR_NOT_FOUND, "kvcl_sched_policies: there are %zu policies, number %zu is none",
                         kvcl_n_policies, i);
    }
    give(name_p, kvcl_policies[i]->name);
    give(kind_p, kvcl_policy_kinds[kvcl_policies[i]->kind]);
    give(desc_p, kvcl_policies[i]->desc);
    give(source_p, kvcl_policies[i]->source);
    return KVCL_OK;
}
