/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the head of an HTTP/1.x request: the request line and the header lines (RFC 9112, 2 to 6).
 * Stricter than the RFC demands: whatever a proxy before us could read differently is rejected, so
 * that both agree where a request ends. Pure. */
#ifndef SLUICE_ENGINE_GATEWAY_HTTP_HEAD_H
#define SLUICE_ENGINE_GATEWAY_HTTP_HEAD_H

#include <stddef.h>

#define HEAD_BYTES_MAX    7168
#define HEAD_METHOD_BYTES 32

enum head {
    HEAD_MORE, /* incomplete so far */
    HEAD_TAKEN,
    HEAD_REJECTED,
    HEAD_TOO_LONG, /* HEAD_BYTES_MAX bytes, and no end */
};

/* The first n bytes of a connection, HEAD_BYTES_MAX of them or all that arrived. One empty line may
 * precede the request (RFC 9112, 2.2). *why: for REJECTED and TOO_LONG, a constant text. A verdict
 * other than MORE does not depend on the bytes after those it was reached with. */
enum head head_check(const char *bytes, size_t n, const char **why);

#endif
