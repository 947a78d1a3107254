/*
 * Model files from the disk: a path, or the name of a shipped one. Owns nothing.
 */
#include "config.h"
#include "sched/predict/model.h"
#include "base/error.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_BYTES_MAX = 16 << 20, PATH_BYTES = 4096 };

static FILE *open_any(const char *path, char *found, size_t len)
{
    const size_t             n        = (strchr(path, '/') == NULL) ? 3 : 1;
    FILE                     *file    = NULL;
    size_t                   i;

    for (i = 0; (file == NULL) && (i < n); ++i) {
        if (i == 0) {
            (void)snprintf(found, len, "%s", path);
        } else {
            (void)snprintf(found, len, "%s/%s%s", KVCL_MODELS_DIR, path, (i == 1) ? "" : ".model");
        }
        file = fopen(found, "re");
    }
    return file;
}

kvcl_status_t kvcl_sched_model_load(const char *path, kvcl_sched_model_h *model_p)
{
    char          found[PATH_BYTES];
    char          *text;
    size_t        len;
    FILE          *file;
    kvcl_status_t status;

    if ((path == NULL) || (model_p == NULL)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_sched_model_load: path or model_p is NULL");
    }
    file = open_any(path, found, sizeof(found));
    if (file == NULL) {
        return kvcl_fail_errno(KVCL_ERR_IO, errno, "cannot open the model %s, nor a model of that name in %s", path,
                               KVCL_MODELS_DIR);
    }
    text = malloc(FILE_BYTES_MAX + 1);
    if (text == NULL) {
        (void)fclose(file);
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory to read the model %s", found);
    }
    errno = 0;
    len   = fread(text, 1, FILE_BYTES_MAX + 1, file);
    if (ferror(file) != 0) {
        status = kvcl_fail_errno(KVCL_ERR_IO, errno, "cannot read the model %s", found);
    } else if (len > FILE_BYTES_MAX) {
        status = kvcl_fail(KVCL_ERR_IO, "the model %s has more than %d bytes", found, FILE_BYTES_MAX);
    } else {
        status = kvcl_sched_model_parse(found, text, len, model_p);
    }
    free(text);
    (void)fclose(file);
    return status;
}
