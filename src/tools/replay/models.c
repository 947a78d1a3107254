/*
 * Owns the table of models: layers * (K and V) * heads * head dimension * 2 bytes, or layers * latent * 2 for MLA.
 */
#include "config.h"
#include "tools/replay/models.h"

#include <stddef.h>
#include <string.h>

#define MODELS(X)                                                                                                      \
    X("llama-3-8b", 32u * 2 * 8 * 128 * 2)    /* 128 KiB */                                                            \
    X("llama-3-70b", 80u * 2 * 8 * 128 * 2)   /* 320 KiB */                                                            \
    X("qwen3-8b", 36u * 2 * 8 * 128 * 2)      /* 144 KiB */                                                            \
    X("qwen3-235b", 94u * 2 * 4 * 128 * 2)    /* 188 KiB */                                                            \
    X("deepseek-v3", 61u * 576 * 2)           /* 68.6 KiB */                                                           \
    X("kimi-k2", 61u * 576 * 2)               /* 68.6 KiB */

uint64_t replay_model_bytes_per_token(const char *name)
{
#define MODEL_ROW(_name, _bytes) {_name, _bytes},
    static const struct {
        const char *name;
        uint32_t   bytes;
    } table[] = {MODELS(MODEL_ROW)};
#undef MODEL_ROW
    size_t i;

    for (i = 0; i < sizeof(table) / sizeof(table[0]); ++i) {
        if (strcmp(table[i].name, name) == 0) {
            return table[i].bytes;
        }
    }
    return 0;
}

const char *replay_model_names(void)
{
#define MODEL_NAME(_name, _bytes) ", " _name
    static const char names[] = MODELS(MODEL_NAME);
#undef MODEL_NAME

    return names + 2;
}
