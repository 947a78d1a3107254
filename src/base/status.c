/*
 * Names and texts of the status codes, made from KVCL_STATUS_MAP. Constant data, no lock.
 */
#include "config.h"
#include <kvcl/kvcl_status.h>

const char *kvcl_status_name(kvcl_status_t status)
{
#define STATUS_NAME(_name, _value, _text)                                                          \
    case (_value):                                                                                 \
        return #_name;
    switch ((int)status) {
        KVCL_STATUS_MAP(STATUS_NAME)
    default:
        return "UNKNOWN";
    }
#undef STATUS_NAME
}

const char *kvcl_status_text(kvcl_status_t status)
{
#define STATUS_TEXT(_name, _value, _text)                                                          \
    case (_value):                                                                                 \
        return _text;
    switch ((int)status) {
        KVCL_STATUS_MAP(STATUS_TEXT)
    default:
        return "unknown status";
    }
#undef STATUS_TEXT
}
