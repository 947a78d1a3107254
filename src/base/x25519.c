/*
 * X25519 over OpenSSL 3. Owns nothing: keys of the library are made and freed within a call, and freeing wipes them.
 * The thread may be the application's: no error is left in the library's queue of errors.
 */
#include "config.h"
#include "base/x25519.h"
#include "base/error.h"

#include <openssl/err.h>
#include <openssl/evp.h>

static EVP_PKEY *private_key(const uint8_t priv[32])
{
    return EVP_PKEY_new_raw_private_key_ex(NULL, "X25519", NULL, priv, 32);
}

kvcl_status_t kvcl_x25519_public(const uint8_t priv[32], uint8_t pub[32])
{
    EVP_PKEY *key = private_key(priv);
    size_t   len  = 32;
    int      ok   = (key != NULL) && EVP_PKEY_get_raw_public_key(key, pub, &len);

    EVP_PKEY_free(key);
    return ok ? KVCL_OK : kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for an X25519 key");
}

kvcl_status_t kvcl_x25519(const uint8_t priv[32], const uint8_t peer_pub[32], uint8_t shared[32])
{
    EVP_PKEY      *key    = private_key(priv);
    EVP_PKEY      *peer   = EVP_PKEY_new_raw_public_key_ex(NULL, "X25519", NULL, peer_pub, 32);
    EVP_PKEY_CTX  *ctx    = (key != NULL) ? EVP_PKEY_CTX_new_from_pkey(NULL, key, NULL) : NULL;
    size_t        len     = 32;
    kvcl_status_t status  = KVCL_OK;

    (void)ERR_set_mark();
    if ((peer == NULL) || (ctx == NULL) || (EVP_PKEY_derive_init(ctx) <= 0) ||
        (EVP_PKEY_derive_set_peer(ctx, peer) <= 0)) {
        status = kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for an X25519 key");
    } else if (EVP_PKEY_derive(ctx, shared, &len) <= 0) { /* the library refuses a result of zeros */
        status = kvcl_fail(KVCL_ERR_PROTOCOL, "the peer's X25519 key is of low order: not one that was made at random");
    }
    (void)ERR_pop_to_mark();
    EVP_PKEY_CTX_free(ctx);
    EVP_PKEY_free(peer);
    EVP_PKEY_free(key);
    return status;
}
