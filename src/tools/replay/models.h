/*
 * Bytes of KV cache per token in common models (bf16, all layers). A constant table.
 */
#ifndef KVCL_TOOLS_REPLAY_MODELS_H
#define KVCL_TOOLS_REPLAY_MODELS_H

#include <stdint.h>

/* Bytes per token, or 0 for a name that is not in the table. */
uint64_t replay_model_bytes_per_token(const char *name);

/* "deepseek-v3, kimi-k2, ...", for messages. */
const char *replay_model_names(void);

#endif
