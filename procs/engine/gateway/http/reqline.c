/* SPDX-License-Identifier: Apache-2.0 */
#include "procs/engine/gateway/http/reqline.h"

#include <stdbool.h>
#include <string.h>

#include "lib/base/assert.h"

#define VERSION_BYTES 8    /* "HTTP/1.1" */
#define TLS_HANDSHAKE 0x16 /* first byte of a TLS record */

static bool digit(char c)
{
    return c >= '0' && c <= '9';
}

/* tchar of RFC 9110, 5.6.2: what methods are made of. */
static bool token_char(char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || digit(c) ||
           (c && strchr("!#$%&'*+-.^_`|~", c));
}

/* Parts of a line after its method: a blank, a target without one, a blank, a version. */
static bool rest_is_right(const char *rest, size_t n)
{
    if (n > 0 && rest[n - 1] == '\r')
        n--;
    if (n < VERSION_BYTES + 3) /* two blanks and a target */
        return false;
    const char *version = rest + n - VERSION_BYTES;
    size_t target = n - VERSION_BYTES - 2;
    for (size_t i = 0; i < target; i++)
        if ((unsigned char)rest[1 + i] <= ' ' || rest[1 + i] == 0x7f)
            return false;
    return version[-1] == ' ' && memcmp(version, "HTTP/1.", 7) == 0 && digit(version[7]);
}

static enum reqline reject(const char **why, const char *text)
{
    *why = text;
    return REQLINE_REJECTED;
}

enum reqline reqline_check(const char *bytes, size_t n, const char **why)
{
    size_t at = 0;
    sl_assert(n <= REQLINE_CHECK_BYTES);
    if (n > 0 && bytes[0] == TLS_HANDSHAKE)
        return reject(why, "this port serves HTTP without TLS; use a proxy for TLS");
    if (at < n && bytes[at] == '\r')
        at++;
    if (at < n && bytes[at] == '\n')
        at++;
    else if (at > 0 && at < n)
        return reject(why, "malformed HTTP request line");
    size_t method = at;
    while (at < n && token_char(bytes[at]))
        at++;
    if (at - method > REQLINE_METHOD_BYTES)
        return reject(why, "malformed HTTP request line: no space after the method");
    if (at == n)
        return REQLINE_MORE;
    if (at == method || bytes[at] != ' ')
        return reject(why, "malformed HTTP request line");
    const char *end = memchr(bytes + at, '\n', n - at);
    if (!end)
        return n == REQLINE_CHECK_BYTES ? REQLINE_TAKEN : REQLINE_MORE;
    if (!rest_is_right(bytes + at, (size_t)(end - (bytes + at))))
        return reject(why, "malformed HTTP request line; expected METHOD PATH HTTP/1.1");
    return REQLINE_TAKEN;
}
