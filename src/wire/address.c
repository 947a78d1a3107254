/*
 * Addresses of contexts (address.h).
 */
#include "config.h"
#include "wire/address.h"
#include "base/checksum.h"
#include "base/crypto.h"
#include "base/error.h"
#include "base/wirebuf.h"
#include "wire/wire.h"

#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

enum { KVCL_ADDRESS_FIXED = 56, MAC = 16, SUM = 4, TAIL = MAC + SUM /* behind a text's bytes */ };

static const char prefix[] = "kvcl1:";
static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

void kvcl_host_id(uint8_t host[16])
{
    struct {
        char           boot[64];
        struct utsname name;
        uint64_t       ns;
    } id;
    uint8_t     hash[32];
    struct stat st;
    int         fd;

    memset(&id, 0, sizeof(id));
    fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if ((fd < 0) || (read(fd, id.boot, sizeof(id.boot)) <= 0)) {
        (void)uname(&id.name); /* no /proc: the name must do */
    }
    if (fd >= 0) {
        close(fd);
    }
    if (stat("/proc/self/ns/net", &st) == 0) {
        id.ns = st.st_ino;
    }
    kvcl_sha256(&id, sizeof(id), hash);
    memcpy(host, hash, 16);
}

size_t kvcl_address_pack(const kvcl_address_t *address, void *buf, size_t cap)
{
    uint8_t  *p = buf, n = 0;
    size_t   at = KVCL_ADDRESS_FIXED;
    unsigned i;

    if (cap < at) {
        return 0;
    }
    for (i = 1; i < KVCL_ADDRESS_PARTS; ++i) {
        size_t len = address->part[i].len;
        if (address->part[i].buf == NULL) {
            continue;
        }
        if ((len > 0xffff) || (cap - at < 4 + len)) {
            return 0;
        }
        p[at]     = (uint8_t)i;
        p[at + 1] = 0;
        p[at + 2] = (uint8_t)len;
        p[at + 3] = (uint8_t)(len >> 8);
        memcpy(p + at + 4, address->part[i].buf, len);
        at += 4 + len;
        ++n;
    }
    memset(p, 0, 8);
    p[0] = (uint8_t)KVCL_WIRE_MAGIC;
    p[1] = (uint8_t)(KVCL_WIRE_MAGIC >> 8);
    p[2] = (uint8_t)KVCL_WIRE_VERSION;
    p[3] = (uint8_t)(KVCL_WIRE_VERSION >> 8);
    p[4] = n;
    memcpy(p + 8, address->uuid, 16);
    memcpy(p + 24, address->process, 16);
    memcpy(p + 40, address->host, 16);
    return at;
}

static bool is_address(const uint8_t *p)
{
    return (p[0] | (p[1] << 8)) == KVCL_WIRE_MAGIC;
}

static unsigned version_of(const uint8_t *p)
{
    return p[2] | ((unsigned)p[3] << 8);
}

kvcl_status_t kvcl_address_unpack(const void *buf, size_t len, kvcl_address_t *address)
{
    const uint8_t *p = buf;
    size_t        at = KVCL_ADDRESS_FIXED, part;
    unsigned      i;

    memset(address, 0, sizeof(*address));
    if ((len < 4) || (len > KVCL_ADDRESS_MAX) || !is_address(p)) {
        return kvcl_fail(KVCL_ERR_PROTOCOL, "not an address of a KVCL context (%zu bytes)", len);
    }
    if (version_of(p) != KVCL_WIRE_VERSION) {
        return kvcl_fail(KVCL_ERR_VERSION, "the peer has wire version %u, this library has %u", version_of(p),
                         (unsigned)KVCL_WIRE_VERSION);
    }
    if (len < at) {
        return kvcl_fail(KVCL_ERR_PROTOCOL, "the address is cut off (%zu bytes)", len);
    }
    memcpy(address->uuid, p + 8, 16);
    memcpy(address->process, p + 24, 16);
    memcpy(address->host, p + 40, 16);
    for (i = 0; i < p[4]; ++i) {
        if ((len - at < 4) || (len - at - 4 < (part = p[at + 2] | ((size_t)p[at + 3] << 8)))) {
            return kvcl_fail(KVCL_ERR_PROTOCOL, "the address is cut off in part %u", i);
        }
        if ((p[at] >= 1) && (p[at] < KVCL_ADDRESS_PARTS) && (part > 0)) {
            address->part[p[at]].buf = p + at + 4;
            address->part[p[at]].len = part;
        }
        at += 4 + part;
    }
    return KVCL_OK;
}

static void make_mac(const uint8_t secret[32], const void *buf, size_t len, uint8_t mac[MAC])
{
    const struct iovec parts[] = {{(void *)"kvcl-address", 13}, {(void *)(uintptr_t)buf, len}};
    uint8_t            whole[KVCL_SHA256_LEN];

    kvcl_hmac_sha256(secret, 32, parts, (len > 0) ? 2 : 1, whole);
    memcpy(mac, whole, MAC);
}

/* The check word of the bytes and of the MAC behind them. */
static void make_sum(const void *buf, size_t len, const uint8_t mac[MAC], uint8_t sum[SUM])
{
    const uint32_t word = kvcl_check32(buf, len) ^ kvcl_check32(mac, MAC);
    unsigned       i;

    for (i = 0; i < SUM; ++i) {
        sum[i] = (uint8_t)(word >> (8 * i));
    }
}

size_t kvcl_address_print(const uint8_t secret[32], const void *buf, size_t len, char *text, size_t cap)
{
    const uint8_t *p   = buf;
    size_t        need = sizeof(prefix) + (((len + TAIL) * 4) + 2) / 3, out = sizeof(prefix) - 1, i;
    uint32_t      bits = 0;
    unsigned      have = 0;
    uint8_t       tail[TAIL];

    if (cap < need) {
        return need;
    }
    make_mac(secret, buf, len, tail);
    make_sum(buf, len, tail, tail + MAC);
    memcpy(text, prefix, out);
    for (i = 0; i < len + TAIL; ++i) {
        bits = (bits << 8) | ((i < len) ? p[i] : tail[i - len]);
        for (have += 8; have >= 6; have -= 6) {
            text[out++] = digits[(bits >> (have - 6)) & 63];
        }
    }
    if (have > 0) {
        text[out++] = digits[(bits << (6 - have)) & 63];
    }
    text[out] = '\0';
    return need;
}

/* The bytes of a text behind its prefix: all but the last TAIL in p, and those in last, byte number n in
 * last[n % TAIL]. */
static kvcl_status_t decode(const char *text, uint8_t *p, size_t cap, uint8_t last[TAIL], size_t *n_p)
{
    uint32_t   bits = 0;
    unsigned   have = 0;
    size_t     n = 0;
    const char *at, *digit;

    for (at = text + sizeof(prefix) - 1; *at != '\0'; ++at) {
        digit = strchr(digits, *at);
        if (digit == NULL) {
            return kvcl_fail(KVCL_ERR_INVALID_PARAM, "the address has a bad character at position %zu",
                             (size_t)(at - text));
        }
        bits  = (bits << 6) | (uint32_t)(digit - digits);
        have += 6;
        if (have >= 8) {
            have -= 8;
            if (n == cap + TAIL) {
                return kvcl_fail(KVCL_ERR_INVALID_PARAM, "the address is too long");
            }
            if (n >= TAIL) {
                p[n - TAIL] = last[n % TAIL];
            }
            last[n++ % TAIL] = (uint8_t)(bits >> have);
        }
    }
    *n_p = n;
    return KVCL_OK;
}

/* The tail is that of the n - TAIL bytes before it. */
static kvcl_status_t check_tail(const uint8_t secret[32], const uint8_t *p, size_t n, const uint8_t last[TAIL])
{
    uint8_t  tail[TAIL], mac[MAC], sum[SUM] = {0};
    unsigned i;

    for (i = 0; i < TAIL; ++i) {
        tail[i] = last[(n + i) % TAIL];
    }
    if (n >= TAIL) {
        make_sum(p, n - TAIL, tail, sum);
    }
    if ((n < TAIL) || (memcmp(tail + MAC, sum, SUM) != 0)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "the address was cut off or changed: give it as kvcl_context_address "
                         "printed it");
    }
    make_mac(secret, p, n - TAIL, mac);
    return kvcl_ct_equal(tail, mac, MAC)
               ? KVCL_OK
               : kvcl_fail(KVCL_ERR_AUTH, "the address was made under another secret: both sides need the same "
                           "KVCL_SECRET_FILE");
}

kvcl_status_t kvcl_address_parse(const uint8_t secret[32], const char *text, void *buf, size_t cap, size_t *len_p)
{
    uint8_t       *p = buf, last[TAIL] = {0};
    size_t        n  = 0;
    kvcl_status_t status;

    if ((text == NULL) || (strncmp(text, prefix, sizeof(prefix) - 1) != 0)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "an address begins with \"%s\" (kvcl_context_address prints it)",
                         prefix);
    }
    status = decode(text, p, cap, last, &n);
    if (status != KVCL_OK) {
        return status;
    }
    if ((n >= TAIL + 4) && is_address(p) && (version_of(p) != KVCL_WIRE_VERSION)) {
        *len_p = n - TAIL; /* another version may end in another way: kvcl_address_unpack names it */
        return KVCL_OK;
    }
    status = check_tail(secret, p, n, last);
    *len_p = (status == KVCL_OK) ? n - TAIL : 0;
    return status;
}
