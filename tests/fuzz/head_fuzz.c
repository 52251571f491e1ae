/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: the head of a request. A verdict does not change with more bytes; with fewer bytes
 * it is the same or still open. An accepted head has a request line, lines that end with CR LF, no
 * control characters, and at most one header of each kind that decides where the request ends. */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

#include "lib/base/assert.h"
#include "procs/engine/gateway/http/head.h"

#define PREFIXES 200 /* of an input that are checked */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static enum head check(const uint8_t *data, size_t n)
{
    const char *why = NULL;
    enum head result = head_check((const char *)data, n, &why);
    sl_assert((result == HEAD_REJECTED || result == HEAD_TOO_LONG) == (why && *why));
    sl_assert(result != HEAD_TOO_LONG || n == HEAD_BYTES_MAX);
    return result;
}

static void request_line_has_parts(const char *line, size_t n)
{
    size_t blanks = 0;
    for (size_t i = 0; i < n; i++) {
        blanks += line[i] == ' ';
        sl_assert(line[i] >= ' ' && line[i] < 0x7f);
    }
    sl_assert(blanks == 2 && n >= 12 && memcmp(line + n - 9, " HTTP/1.", 8) == 0);
}

static bool named(const char *line, size_t n, const char *name)
{
    size_t bytes = strlen(name);
    return n > bytes && strncasecmp(line, name, bytes) == 0 && line[bytes] == ':';
}

static void head_is_clear(const uint8_t *data, size_t n)
{
    const char *at = (const char *)data, *end;
    unsigned lines = 0, hosts = 0, framing = 0;
    at += *at == '\r' ? 2 : 0;
    end = memmem(at, n - (size_t)(at - (const char *)data), "\r\n\r\n", 4);
    sl_assert(end);
    end += 4;
    for (; at < end - 2; lines++) {
        const char *stop = memchr(at, '\r', (size_t)(end - at));
        sl_assert(stop && stop > at && stop[1] == '\n');
        size_t bytes = (size_t)(stop - at);
        sl_assert(!memchr(at, 0, bytes) && !memchr(at, '\n', bytes));
        if (lines == 0)
            request_line_has_parts(at, bytes);
        else
            sl_assert(*at != ' ' && *at != '\t' && memchr(at, ':', bytes));
        hosts += named(at, bytes, "host");
        framing += named(at, bytes, "content-length") || named(at, bytes, "transfer-encoding");
        at = stop + 2;
    }
    sl_assert(hosts <= 1 && framing <= 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t n = size < HEAD_BYTES_MAX ? size : HEAD_BYTES_MAX, step = 1 + n / PREFIXES;
    enum head whole = check(data, n);
    for (size_t i = 0; i < n; i += step) {
        enum head part = check(data, i);
        sl_assert(part == HEAD_MORE || part == whole);
    }
    if (whole == HEAD_TAKEN)
        head_is_clear(data, n);
    return 0;
}
