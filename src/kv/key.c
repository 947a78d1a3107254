/*
 * How keys are computed; the formulas stand in kvcl_key.h.
 *
 * Owns: the four hash domains. They have one length and differ, so no root, block, string and bytes'
 * key is ever the hash of the same input.
 * Invariant: a key's tag depends on the chain only through the ancestor at the last multiple of
 * KVCL_KEY_TAG_BLOCKS, and the whole key (tag too) is what the next block's hash covers.
 * Locks: none, all functions are pure.
 */
#include "kvcl/kvcl_key.h"

#include "base/crypto.h"
#include "base/error.h"

#define OPENSSL_SUPPRESS_DEPRECATED /* hash_short */
#include <openssl/sha.h>

#include <string.h>

/* Tokens are hashed as they lie in memory. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "token arrays are hashed in place");

enum { KEY_DOMAIN_LEN = 16, KEY_SHORT_LEN = 256 };

static const char key_domain_root[] = "kvcl-key-root-01";
static const char key_domain_block[] = "kvcl-key-block01";
static const char key_domain_string[] = "kvcl-key-string1";
static const char key_domain_bytes[] = "kvcl-key-bytes01";

_Static_assert(sizeof(key_domain_root) == KEY_DOMAIN_LEN + 1, "domains have one length");
_Static_assert(sizeof(key_domain_block) == KEY_DOMAIN_LEN + 1, "domains have one length");
_Static_assert(sizeof(key_domain_string) == KEY_DOMAIN_LEN + 1, "domains have one length");
_Static_assert(sizeof(key_domain_bytes) == KEY_DOMAIN_LEN + 1, "domains have one length");

static struct iovec part(const void *base, size_t len)
{
    return (struct iovec){.iov_base = (void *)(uintptr_t)base, .iov_len = len};
}

void kvcl_key_root(const void *salt, size_t salt_len, const char *model, kvcl_key_t *root_p)
{
    uint64_t len64 = salt_len; /* little-endian, see above */
    struct iovec parts[4] = {part(key_domain_root, KEY_DOMAIN_LEN), part(&len64, sizeof(len64)), part(salt, salt_len),
                             part(model, (model == NULL) ? 0 : strlen(model))};

    kvcl_sha256_iov(parts, 4, root_p->bytes);
}

static kvcl_status_t chain_check(const kvcl_key_t *parent, const uint32_t *tokens, size_t n_tokens,
                                 size_t tokens_per_block, size_t *n_p)
{
    if (tokens_per_block == 0) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "tokens_per_block is 0");
    }
    if ((parent == NULL) || (n_p == NULL) || ((tokens == NULL) && (n_tokens > 0))) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s is NULL",
                         (parent == NULL) ? "parent"
                         : (n_p == NULL)  ? "n_p"
                                          : "tokens");
    }
    return KVCL_OK;
}

/* By libcrypto's older calls where it has them: EVP of OpenSSL 3.0 allocates and wipes a state for each hash, which
 * costs as much as a short one. A block's key is a name and protects nothing. */
static void hash_short(const void *data, size_t len, uint8_t *out)
{
#ifdef OPENSSL_NO_DEPRECATED_3_0
    kvcl_sha256(data, len, out);
#else
    SHA256_CTX sha;

    kvcl_crypto_must(SHA256_Init(&sha) && SHA256_Update(&sha, data, len) && SHA256_Final(out, &sha), "SHA256");
#endif
}

/* A block's key before its tag. What is short is hashed as one piece, which costs less than three. */
static void hash_block(const kvcl_key_t *prev, const uint32_t *tokens, size_t n, kvcl_key_t *key)
{
    uint8_t      all[KEY_SHORT_LEN];
    const size_t head = KEY_DOMAIN_LEN + sizeof(prev->bytes);
    struct iovec parts[3];

    if (n <= (sizeof(all) - head) / sizeof(*tokens)) {
        memcpy(all, key_domain_block, KEY_DOMAIN_LEN);
        memcpy(all + KEY_DOMAIN_LEN, prev->bytes, sizeof(prev->bytes));
        memcpy(all + head, tokens, n * sizeof(*tokens));
        hash_short(all, head + (n * sizeof(*tokens)), key->bytes);
        return;
    }
    parts[0] = part(key_domain_block, KEY_DOMAIN_LEN);
    parts[1] = part(prev->bytes, sizeof(prev->bytes));
    parts[2] = part(tokens, n * sizeof(*tokens));
    kvcl_sha256_iov(parts, 3, key->bytes);
}

kvcl_status_t kvcl_key_chain(const kvcl_key_t *parent, uint64_t first_block, const uint32_t *tokens, size_t n_tokens,
                             size_t tokens_per_block, kvcl_key_t *keys, size_t cap, size_t *n_p)
{
    kvcl_status_t status = chain_check(parent, tokens, n_tokens, tokens_per_block, n_p);
    kvcl_key_t prev, key;
    size_t i, n;

    if (status != KVCL_OK) {
        return status;
    }
    n = n_tokens / tokens_per_block;
    if ((keys == NULL) && (cap == 0)) {
        *n_p = n;
        return KVCL_OK;
    }
    if (n > cap) {
        *n_p = n;
        return kvcl_fail(KVCL_ERR_NO_SPACE, "%zu keys do not fit into an array of %zu", n, cap);
    }
    if ((keys == NULL) && (n > 0)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "keys is NULL");
    }
    prev = *parent;
    for (i = 0; i < n; ++i) {
        hash_block(&prev, tokens + (i * tokens_per_block), tokens_per_block, &key);
        if (((first_block + i) % KVCL_KEY_TAG_BLOCKS) != 0) {
            memcpy(key.bytes, prev.bytes, 2);
        }
        keys[i] = key;
        prev = key;
    }
    *n_p = n;
    return KVCL_OK;
}

void kvcl_key_from_string(const void *bytes, size_t len, kvcl_key_t *key_p)
{
    struct iovec parts[2] = {part(key_domain_string, KEY_DOMAIN_LEN), part(bytes, len)};

    kvcl_sha256_iov(parts, 2, key_p->bytes);
}

void kvcl_key_from_hash32(const uint8_t hash[32], kvcl_key_t *key_p)
{
    memcpy(key_p->bytes, hash, sizeof(key_p->bytes));
}

void kvcl_key_from_bytes(const void *salt, size_t salt_len, const void *bytes, size_t len, kvcl_key_t *key_p)
{
    uint64_t salt_bytes = salt_len;
    struct iovec parts[4] = {part(key_domain_bytes, KEY_DOMAIN_LEN), part(&salt_bytes, sizeof(salt_bytes)),
                             part(salt, salt_len), part(bytes, len)};

    if ((salt_len == 0) && (len == sizeof(key_p->bytes))) {
        memcpy(key_p->bytes, bytes, sizeof(key_p->bytes));
    } else {
        kvcl_sha256_iov(parts, 4, key_p->bytes);
    }
}

const char *kvcl_key_format(const kvcl_key_t *key, char buf[KVCL_KEY_HEX_SIZE])
{
    static const char digits[] = "0123456789abcdef";
    size_t i;

    for (i = 0; i < sizeof(key->bytes); ++i) {
        buf[2 * i] = digits[key->bytes[i] >> 4];
        buf[(2 * i) + 1] = digits[key->bytes[i] & 15];
    }
    buf[2 * sizeof(key->bytes)] = '\0';
    return buf;
}
