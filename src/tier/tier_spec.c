/*
 * Parses KVCL_STORE_NVME: "/path:size". Pure.
 */
#include "config.h"

#include "base/error.h"
#include "base/units.h"
#include "tier/tier.h"

#include <stdlib.h>
#include <string.h>

kvcl_status_t kvcl_tier_spec_parse(const char *spec, char **path_p, uint64_t *size_p)
{
    const char    *colon = strrchr(spec, ':');
    kvcl_status_t status;
    uint64_t      size;

    if ((colon == NULL) || (spec[0] != '/') || (colon == spec + 1) || (colon[-1] == '/')) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM,
                         "\"%s\" is no place for a tier: say /path/of/a/file:size, as in /nvme/kvcl:100G", spec);
    }
    status = kvcl_size_parse(colon + 1, &size);
    if (status != KVCL_OK) {
        return status;
    }
    if ((size == KVCL_UNLIMITED) || (size > INT64_MAX)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "\"%s\": a tier has a size", spec);
    }
    *path_p = strndup(spec, (size_t)(colon - spec));
    if (*path_p == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a path");
    }
    *size_p = size;
    return KVCL_OK;
}
