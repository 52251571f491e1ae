/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 (FIPS 180-4, 6.2), which S3 wants of what it is sent. libcurl has it, but not for
 * programs, and computes it only of bodies in memory. */
#ifndef SLUICE_IO_SERVER_HTTP_SHA256_H
#define SLUICE_IO_SERVER_HTTP_SHA256_H

#include <stddef.h>
#include <stdint.h>

#define SHA256_HEX_BYTES 65 /* with a NUL */

struct sha256 {
    uint32_t state[8];
    uint64_t bytes;
    uint8_t block[64];
};

void sha256_start(struct sha256 *s);
void sha256_add(struct sha256 *s, const void *bytes, size_t count);
/* In hexadecimal digits, as S3 has it. */
void sha256_end(struct sha256 *s, char hex[SHA256_HEX_BYTES]);

#endif
