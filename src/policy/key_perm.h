/*
 * A keyed permutation of keys of 32 bytes: each secret gives a renaming of all keys that only its holder can compute or
 * undo. Equal first two bytes (the tag, by which a directory places keys) stay equal; everything else of a key's image
 * looks random.
 *
 * Construction: the tag goes through a Feistel network over its two bytes, with round functions that are tables. The
 * other 30 bytes go through a Feistel network of four rounds over halves of 15 bytes, whose round functions are
 * AES-128 under one key: a pseudorandom permutation, also against an attacker who sees inverses (M. Luby, C. Rackoff:
 * How to construct pseudorandom permutations from pseudorandom functions, SIAM J. Computing 17(2), 1988). The tag
 * is the network's tweak: a mask made from it by AES is added to the input of each round function (the mode XE of
 * P. Rogaway: Efficient instantiations of tweakable blockciphers and refinements to modes OCB and PMAC, ASIACRYPT
 * 2004). The last byte of each block given to AES separates the rounds from the masks. Key and tables come from the
 * secret by HKDF-SHA256.
 *
 * The key and the tables lie in memory for secrets; libcrypto's contexts, which hold the expanded key, lie in its heap
 * and are wiped when they are freed. Any thread; several at a time.
 */
#ifndef KVCL_POLICY_KEY_PERM_H
#define KVCL_POLICY_KEY_PERM_H

#include <kvcl/kvcl_status.h>

#include <stddef.h>
#include <stdint.h>

enum { KVCL_KEY_PERM_BYTES = 32 };

typedef struct kvcl_key_perm kvcl_key_perm_t;

/** secret: 32 uniform bytes; the caller wipes its copy. @return KVCL_OK, KVCL_ERR_NO_MEMORY, KVCL_ERR_UNSUPPORTED
 * (libcrypto has no AES). */
kvcl_status_t kvcl_key_perm_create(const uint8_t secret[32], kvcl_key_perm_t **perm_p) KVCL_MUST_CHECK;
/** NULL is accepted. */
void          kvcl_key_perm_destroy(kvcl_key_perm_t *perm);

/** Renames n keys, 32 bytes each. to may be from. */
void kvcl_key_perm_apply(kvcl_key_perm_t *perm, const void *from, size_t n, void *to);
/** The inverse. */
void kvcl_key_perm_undo(kvcl_key_perm_t *perm, const void *from, size_t n, void *to);

#endif
