/*
 * X25519, HKDF and the two ciphers against the vectors of their standards; a message in pieces; the keys of pairs.
 */
#include "config.h"
#include "base/aead.h"
#include "base/hkdf.h"
#include "base/x25519.h"
#include "test_base.h"

#include <dlfcn.h>
#include <string.h>

/* Return the number of bytes. */
static size_t unhex(const char *hex, uint8_t *out)
{
    unsigned byte;
    size_t   n;

    for (n = 0; hex[2 * n] != '\0'; ++n) {
        ck_assert_int_eq(sscanf(hex + 2 * n, "%2x", &byte), 1);
        out[n] = (uint8_t)byte;
    }
    return n;
}

static void assert_hex(const void *bytes, const char *hex)
{
    uint8_t want[256];
    size_t  len = unhex(hex, want);

    ck_assert_mem_eq(bytes, want, len);
}

/* ---- RFC 7748, sections 5.2 and 6.1 ---- */

START_TEST(x25519_matches_rfc_7748)
{
    static const char *row[2][3] = {
        {"a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4",
         "e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c",
         "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552"},
        {"4b66e9d4d1b4673c5ad22691957d6af5c11b6421e0ea01d42ca4169e7918ba0d",
         "e5210f12786811d3f4b7959d0538ae2c31dbe7106fc03c3efc4cd549c715a493",
         "95cbde9476e8907d7aade45cb4b873f88b595a68799fa152e6f8f7647aac7957"}};
    uint8_t a[32], b[32], pub_a[32], pub_b[32], shared[32];
    int     i;

    for (i = 0; i < 2; ++i) {
        (void)unhex(row[i][0], a);
        (void)unhex(row[i][1], pub_b);
        ck_assert_int_eq(kvcl_x25519(a, pub_b, shared), KVCL_OK);
        assert_hex(shared, row[i][2]);
    }
    (void)unhex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a", a);
    (void)unhex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb", b);
    ck_assert_int_eq(kvcl_x25519_public(a, pub_a), KVCL_OK);
    assert_hex(pub_a, "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a");
    ck_assert_int_eq(kvcl_x25519_public(b, pub_b), KVCL_OK);
    assert_hex(pub_b, "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f");
    ck_assert_int_eq(kvcl_x25519(a, pub_b, shared), KVCL_OK);
    assert_hex(shared, "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742");
    ck_assert_int_eq(kvcl_x25519(b, pub_a, shared), KVCL_OK);
    assert_hex(shared, "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742");
}
END_TEST

/* In libcrypto's queue of this thread, which may be the application's. */
static unsigned long errors_left(void)
{
    unsigned long (*peek)(void);

    *(void **)&peek = dlsym(RTLD_DEFAULT, "ERR_peek_error");
    ck_assert(peek != NULL);
    return peek();
}

START_TEST(x25519_refuses_keys_of_low_order)
{
    static const char *row[] = {"0000000000000000000000000000000000000000000000000000000000000000",
                                "0100000000000000000000000000000000000000000000000000000000000000",
                                "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
                                "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"};
    uint8_t priv[32] = {77}, pub[32], shared[32];
    size_t  i;

    for (i = 0; i < sizeof(row) / sizeof(row[0]); ++i) {
        (void)unhex(row[i], pub);
        ck_assert_int_eq(kvcl_x25519(priv, pub, shared), KVCL_ERR_PROTOCOL);
        ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "low order"));
        ck_assert_uint_eq(errors_left(), 0);
    }
}
END_TEST

/* ---- RFC 5869, A.1 to A.3 ---- */

static void hkdf_case(const uint8_t *ikm, size_t ikm_len, const uint8_t *salt, size_t salt_len, const uint8_t *info,
                      size_t info_len, size_t len, const char *prk_hex, const char *okm_hex)
{
    struct iovec parts[] = {{(void *)(uintptr_t)ikm, ikm_len / 2},
                            {(void *)(uintptr_t)(ikm + ikm_len / 2), ikm_len - ikm_len / 2}};
    uint8_t      prk[32], okm[128];

    kvcl_hkdf_extract(salt, salt_len, parts, 2, prk);
    assert_hex(prk, prk_hex);
    memset(okm, 0x5a, sizeof(okm));
    kvcl_hkdf_expand(prk, info, info_len, okm, len);
    assert_hex(okm, okm_hex);
    ck_assert_uint_eq(okm[len], 0x5a);
}

START_TEST(hkdf_matches_rfc_5869)
{
    uint8_t ikm[80], salt[80], info[80];
    int     i;

    memset(ikm, 0x0b, 22);
    for (i = 0; i < 80; ++i) {
        salt[i] = (uint8_t)i;
        info[i] = (uint8_t)(0xf0 + i);
    }
    hkdf_case(ikm, 22, salt, 13, info, 10, 42, "077709362c2e32df0ddc3f0dc47bba6390b6c73bb50f9c3122ec844ad7c2b3e5",
              "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865");
    hkdf_case(ikm, 22, salt, 0, info, 0, 42, "19ef24a32c717b167f33a91d6f648bdf96596776afdb6377ac434c1c293ccb04",
              "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8");
    for (i = 0; i < 80; ++i) {
        ikm[i]  = (uint8_t)i;
        salt[i] = (uint8_t)(0x60 + i);
        info[i] = (uint8_t)(0xb0 + i);
    }
    hkdf_case(ikm, 80, salt, 80, info, 80, 82, "06a6b88c5853361a06104c9ceb35b45cef760014904671014a193f40c15fc244",
              "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c59045a99cac7827271cb41c65e590e09"
              "da3275600c2f09b8367793a9aca3db71cc30c58179ec3e87c14c01d5c1f3434f1d87");
}
END_TEST

START_TEST(a_pair_has_one_key_for_each_purpose)
{
    uint8_t secret[32] = {1}, a[16] = {2}, b[16] = {3}, c[16] = {4}, key[32], other[32];

    kvcl_pair_key(secret, "x", a, b, key);
    kvcl_pair_key(secret, "x", b, a, other);
    ck_assert_mem_eq(key, other, 32);
    kvcl_pair_key(secret, "y", a, b, other);
    ck_assert_mem_ne(key, other, 32);
    kvcl_pair_key(secret, "x", a, c, other);
    ck_assert_mem_ne(key, other, 32);
    kvcl_pair_key(secret, "x", c, b, other);
    ck_assert_mem_ne(key, other, 32);
    secret[31] ^= 1;
    kvcl_pair_key(secret, "x", a, b, other);
    ck_assert_mem_ne(key, other, 32);
}
END_TEST

/* ---- the ciphers: test cases 1 to 4 of GCM's specification, which NIST refers to; RFC 8439, section 2.8.2 ---- */

typedef struct vector {
    kvcl_aead_cipher_t cipher;
    const char         *key, *iv, *aad, *text, *sealed, *tag;
} vector_t;

#define GCM_TEXT                                                                                                       \
    "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657" \
    "ba637b39"
#define GCM_SEALED                                                                                                     \
    "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac97" \
    "3d58e091"

static const vector_t vectors[] = {
    {KVCL_AEAD_AES128_GCM, "00000000000000000000000000000000", "000000000000000000000000", "", "", "",
     "58e2fccefa7e3061367f1d57a4e7455a"},
    {KVCL_AEAD_AES128_GCM, "00000000000000000000000000000000", "000000000000000000000000", "",
     "00000000000000000000000000000000", "0388dace60b6a392f328c2b971b2fe78", "ab6e47d42cec13bdf53a67b21257bddf"},
    {KVCL_AEAD_AES128_GCM, "feffe9928665731c6d6a8f9467308308", "cafebabefacedbaddecaf888", "",
     GCM_TEXT "1aafd255", GCM_SEALED "473f5985", "4d5c2af327cd64a62cf35abd2ba6fab4"},
    {KVCL_AEAD_AES128_GCM, "feffe9928665731c6d6a8f9467308308", "cafebabefacedbaddecaf888",
     "feedfacedeadbeeffeedfacedeadbeefabaddad2", GCM_TEXT, GCM_SEALED, "5bc94fbc3221a5db94fae95ae7121a47"},
    {KVCL_AEAD_CHACHA20_POLY1305, "808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f",
     "070000004041424344454647", "50515253c0c1c2c3c4c5c6c7",
     "4c616469657320616e642047656e746c656d656e206f662074686520636c617373206f66202739393a204966204920636f756c64206f6666"
     "657220796f75206f6e6c79206f6e652074697020666f7220746865206675747572652c2073756e73637265656e20776f756c642062652069"
     "742e",
     "d31a8d34648e60db7b86afbc53ef7ec2a4aded51296e08fea9e2b5a736ee62d63dbea45e8ca9671282fafb69da92728b1a71de0a9e060b29"
     "05d6a5b67ecd3b3692ddbd7f2d778b8c9803aee328091b58fab324e4fad675945585808b4831d7bc3ff4def08e4b7a9de576d26586cec64b"
     "6116",
     "1ae10b594f09e26a7e902ecbd0600691"}};

enum { VECTORS = sizeof(vectors) / sizeof(vectors[0]), TEXT_MAX = 256 };

/* Seal or open in pieces of at most piece bytes. */
static void run(kvcl_aead_t *aead, const uint8_t *in, size_t len, size_t piece, uint8_t *out)
{
    size_t n;

    for (; len > 0; len -= n, in += n, out += n) {
        n = (len < piece) ? len : piece;
        kvcl_aead_text(aead, in, n, out);
    }
}

START_TEST(ciphers_match_their_standards_in_pieces_of_any_size)
{
    const vector_t  *v  = &vectors[_i];
    kvcl_aead_key_t key = {.key = {0}};
    kvcl_aead_t     seals, opens;
    uint8_t         text[TEXT_MAX], sealed[TEXT_MAX], aad[32], back[TEXT_MAX], tag[16];
    size_t          len = unhex(v->text, text), aad_len = unhex(v->aad, aad), piece;

    (void)unhex(v->key, key.key);
    (void)unhex(v->iv, key.iv);
    ck_assert_int_eq(kvcl_aead_create(v->cipher, &key, true, &seals), KVCL_OK);
    ck_assert_int_eq(kvcl_aead_create(v->cipher, &key, false, &opens), KVCL_OK);
    for (piece = 1; piece <= len + 1; ++piece) {
        kvcl_aead_begin(&seals, 0, aad, aad_len);
        run(&seals, text, len, piece, sealed);
        kvcl_aead_seal_end(&seals, tag);
        assert_hex(sealed, v->sealed);
        assert_hex(tag, v->tag);
        kvcl_aead_begin(&opens, 0, aad, aad_len);
        run(&opens, sealed, len, piece, back);
        ck_assert(kvcl_aead_open_end(&opens, tag));
        ck_assert((len == 0) || (memcmp(back, text, len) == 0));
        tag[piece % 16] ^= 4;
        kvcl_aead_begin(&opens, 0, aad, aad_len);
        run(&opens, sealed, len, piece, back);
        ck_assert(!kvcl_aead_open_end(&opens, tag));
    }
    kvcl_aead_destroy(&seals);
    kvcl_aead_destroy(&opens);
    kvcl_aead_destroy(&opens); /* zeroed */
}
END_TEST

/* The count changes the nonce as the header says: iv with its last 8 bytes XORed. */
START_TEST(the_count_is_in_the_nonce)
{
    kvcl_aead_key_t plain = {.key = {9}, .iv = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}}, counted = plain;
    uint64_t        count = UINT64_C(0x8877665544332211);
    kvcl_aead_t     a, b;
    uint8_t         one[64] = {0}, two[64] = {0}, tag[16];
    int             i;

    for (i = 0; i < 8; ++i) {
        counted.iv[4 + i] ^= (uint8_t)(0x11 * (i + 1));
    }
    ck_assert_int_eq(kvcl_aead_create((kvcl_aead_cipher_t)_i, &plain, true, &a), KVCL_OK);
    ck_assert_int_eq(kvcl_aead_create((kvcl_aead_cipher_t)_i, &counted, true, &b), KVCL_OK);
    kvcl_aead_begin(&a, count, NULL, 0);
    kvcl_aead_text(&a, one, sizeof(one), one);
    kvcl_aead_seal_end(&a, tag);
    kvcl_aead_begin(&b, 0, NULL, 0);
    kvcl_aead_text(&b, two, sizeof(two), two);
    kvcl_aead_seal_end(&b, tag);
    ck_assert_mem_eq(one, two, sizeof(one));
    kvcl_aead_destroy(&a);
    kvcl_aead_destroy(&b);
}
END_TEST

START_TEST(an_unknown_cipher_is_refused_by_number)
{
    kvcl_aead_key_t key = {.key = {0}};
    kvcl_aead_t     aead;

    ck_assert_int_eq(kvcl_aead_create((kvcl_aead_cipher_t)3, &key, true, &aead), KVCL_ERR_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "number 3"));
    ck_assert_int_eq(kvcl_aead_create(kvcl_aead_preferred(), &key, true, &aead), KVCL_OK);
    kvcl_aead_destroy(&aead);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("base crypto");
    TCase *tc    = tcase_create("vectors");

    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, x25519_matches_rfc_7748);
    tcase_add_test(tc, x25519_refuses_keys_of_low_order);
    tcase_add_test(tc, hkdf_matches_rfc_5869);
    tcase_add_test(tc, a_pair_has_one_key_for_each_purpose);
    tcase_add_loop_test(tc, ciphers_match_their_standards_in_pieces_of_any_size, 0, VECTORS);
    tcase_add_loop_test(tc, the_count_is_in_the_nonce, KVCL_AEAD_AES128_GCM, KVCL_AEAD_CHACHA20_POLY1305 + 1);
    tcase_add_test(tc, an_unknown_cipher_is_refused_by_number);
    suite_add_tcase(suite, tc);
    return test_run(suite);
}
