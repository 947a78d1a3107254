/*
 * Public structs of other ages (structs.h): the cases that are not the usual one, and their sentences.
 */
#include "base/structs.h"
#include "base/error.h"

static kvcl_status_t check_size(size_t size, size_t first, const char *name)
{
    if (size < first) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s.size is %zu, at least %zu is needed: set it to sizeof(%s)", name,
                         size, first, name);
    }
    if (size > KVCL_STRUCT_MAX) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s.size is %zu, more than %d cannot be: set it to sizeof(%s)", name,
                         size, KVCL_STRUCT_MAX, name);
    }
    return KVCL_OK;
}

kvcl_status_t kvcl_struct_in_other(void *to, const void *from, size_t first, size_t known, const char *name)
{
    const uint8_t *bytes = (const uint8_t *)from;
    kvcl_status_t status;
    size_t        size, i;

    memcpy(&size, from, sizeof(size));
    status = check_size(size, first, name);
    for (i = known; (status == KVCL_OK) && (i < size); ++i) {
        if (bytes[i] != 0) {
            status = kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s has byte %zu of its %zu set, this library knows %zu: use a "
                               "newer library, or leave the field 0", name, i, size, known);
        }
    }
    if (status == KVCL_OK) {
        memcpy(to, from, (size < known) ? size : known);
        memcpy(to, &known, sizeof(known));
    }
    return status;
}

kvcl_status_t kvcl_struct_out_check(const void *out, size_t first, const char *name, const char *call)
{
    size_t size;

    if (out == NULL) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: the %s is NULL", call, name);
    }
    memcpy(&size, out, sizeof(size));
    return check_size(size, first, name);
}

static void write_known(uint8_t *out, size_t skip, size_t size, const void *from, size_t known)
{
    const size_t both = (size < known) ? size : known;

    memcpy(out + skip, (const uint8_t *)from + skip, both - skip);
    memset(out + both, 0, size - both);
}

void kvcl_struct_out(void *out, const void *from, size_t known)
{
    size_t size;

    memcpy(&size, out, sizeof(size));
    write_known((uint8_t *)out, sizeof(size), size, from, known);
}

kvcl_status_t kvcl_stride_check(size_t stride, size_t first, const char *name, const char *call)
{
    if ((stride < first) || (stride > KVCL_STRUCT_MAX)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: stride is %zu, %zu to %d are possible: give sizeof(%s)", call,
                         stride, first, KVCL_STRUCT_MAX, name);
    }
    return KVCL_OK;
}

void kvcl_struct_out_at(void *array, size_t i, size_t stride, const void *from, size_t known)
{
    write_known((uint8_t *)array + (i * stride), 0, stride, from, known);
}
