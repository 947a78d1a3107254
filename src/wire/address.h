/*
 * A context's address: its identity and how each transport reaches it, as bytes (through boot, the handshake) and as
 * printable text (kvcl_context_address). Pure; decoding is hostile-safe.
 *
 * Bytes: u16 magic, u16 wire version, u8 n, u8 0, u16 0, uuid[16], process[16], host[16], then n times:
 * u8 transport (KVCL_ADDRESS_*), u8 0, u16 length, bytes. Text: "kvcl1:", then in base64url without padding the
 * bytes, 16 bytes of their MAC under the job's secret, and a check word (kvcl_check32 of the bytes, and of the MAC;
 * little-endian). Text that was cut off or changed is no address; one that was made without the secret reaches no
 * transport (UCX trusts addresses).
 */
#ifndef KVCL_WIRE_ADDRESS_H
#define KVCL_WIRE_ADDRESS_H

#include <kvcl/kvcl_status.h>
#include <stddef.h>
#include <stdint.h>

enum { KVCL_RDMA_PORTS = 2 /* used by a context */ };
enum { KVCL_ADDRESS_LOOP = 1, KVCL_ADDRESS_UCX = 2, KVCL_ADDRESS_TCP = 3, KVCL_ADDRESS_RDMA = 4 /* the first port's */,
       KVCL_ADDRESS_PARTS = KVCL_ADDRESS_RDMA + KVCL_RDMA_PORTS, KVCL_ADDRESS_MAX = 8192 };

typedef struct kvcl_address {
    uint8_t uuid[16];
    uint8_t process[16];
    uint8_t host[16];    /* equal where memory can be shared, see kvcl_host_id() */
    struct {
        const void *buf; /* NULL: none */
        size_t     len;
    } part[KVCL_ADDRESS_PARTS]; /* by KVCL_ADDRESS_* */
} kvcl_address_t;

/** A hash of what names this machine since its boot, and of the network namespace: containers count as hosts. */
void kvcl_host_id(uint8_t host[16]);

/** Bytes written, 0 if cap is too small. */
size_t kvcl_address_pack(const kvcl_address_t *address, void *buf, size_t cap);
/** Parts point into buf. KVCL_ERR_PROTOCOL, KVCL_ERR_VERSION. */
kvcl_status_t kvcl_address_unpack(const void *buf, size_t len, kvcl_address_t *address) KVCL_MUST_CHECK;

/** Text with its closing zero; returns bytes needed. */
size_t        kvcl_address_print(const uint8_t secret[32], const void *buf, size_t len, char *text, size_t cap);
/** KVCL_ERR_INVALID_PARAM: not an address; KVCL_ERR_AUTH: made under another secret. */
kvcl_status_t kvcl_address_parse(const uint8_t secret[32], const char *text, void *buf, size_t cap, size_t *len_p)
    KVCL_MUST_CHECK;

#endif
