/* SPDX-License-Identifier: Apache-2.0 */
/* Checks whether bytes are the first line of an HTTP/1.x request (RFC 9112, 3). Pure. */
#ifndef SLUICE_ENGINE_GATEWAY_HTTP_REQLINE_H
#define SLUICE_ENGINE_GATEWAY_HTTP_REQLINE_H

#include <stddef.h>

/* Bytes of a connection that are checked. A line can be longer; the rest is not checked. */
#define REQLINE_CHECK_BYTES  1024
#define REQLINE_METHOD_BYTES 32

enum reqline {
    REQLINE_MORE, /* incomplete so far */
    REQLINE_TAKEN,
    REQLINE_REJECTED,
};

/* The first n bytes of a connection, REQLINE_CHECK_BYTES of them or all that arrived. One empty
 * line may precede the request (RFC 9112, 2.2). *why: for REJECTED, a constant text. */
enum reqline reqline_check(const char *bytes, size_t n, const char **why);

#endif
