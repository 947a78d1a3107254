/*
 * Model files from the disk: a path, or the name of a shipped one. Owns nothing.
 */
#include "config.h"
#include "sched/predict/model.h"
#include "base/error.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_BYTES_MAX = 16 << 20, PATH_BYTES = 4096 };

/* ../share/kvcl/models of the folder of this code: of libkvcl, or of a tool. A wheel has them there, and so has a tree
 * that was moved after its installation. "": not known. */
static void models_beside(char *dir, size_t len)
{
    static const char here;
    Dl_info           info;
    const char        *end;

    dir[0] = '\0';
    if ((dladdr(&here, &info) != 0) && (info.dli_fname != NULL)) {
        end = strrchr(info.dli_fname, '/');
        if (end != NULL) {
            (void)snprintf(dir, len, "%.*s/../share/kvcl/models", (int)(end - info.dli_fname), info.dli_fname);
        }
    }
}

/* A file of this path, else one of this name, with .model or without, in the folders of models. */
static FILE *open_any(const char *path, char *found, size_t len)
{
    char       beside[PATH_BYTES];
    const char *const dirs[] = {KVCL_MODELS_DIR, beside};
    FILE       *file = fopen(path, "re");
    size_t     i;

    (void)snprintf(found, len, "%s", path);
    if ((file != NULL) || (strchr(path, '/') != NULL)) {
        return file;
    }
    models_beside(beside, sizeof(beside));
    for (i = 0; (file == NULL) && (i < 4); ++i) {
        (void)snprintf(found, len, "%s/%s%s", dirs[i / 2], path, (i % 2 == 0) ? "" : ".model");
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
        return kvcl_fail_errno(KVCL_ERR_IO, errno, "cannot open the model %s, nor one of that name in %s (make install "
                               "puts models there; in the source tree they are in contrib/sched)", path,
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
