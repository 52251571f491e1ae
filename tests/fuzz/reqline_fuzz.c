/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: the first line of a connection. A verdict does not change with more bytes; with
 * fewer bytes it is the same or still open. An accepted line has all parts of a request line. */
#include <stdint.h>
#include <string.h>

#include "lib/base/assert.h"
#include "procs/engine/gateway/http/reqline.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static enum reqline check(const uint8_t *data, size_t n)
{
    const char *why = NULL;
    enum reqline result = reqline_check((const char *)data, n, &why);
    sl_assert((result == REQLINE_REJECTED) == (why && *why));
    return result;
}

static void has_parts(const uint8_t *data, size_t n)
{
    const uint8_t *end = memchr(data + 2, '\n', n - 2); /* after an empty line */
    if (!end)
        return; /* longer than the part that is checked */
    size_t blanks = 0;
    for (const uint8_t *at = data; at < end; at++)
        blanks += *at == ' ';
    end -= end[-1] == '\r';
    sl_assert(blanks == 2 && end - data >= 12 && memcmp(end - 9, " HTTP/1.", 8) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t n = size < REQLINE_CHECK_BYTES ? size : REQLINE_CHECK_BYTES;
    enum reqline so_far = REQLINE_MORE;
    for (size_t i = 0; i <= n; i++) {
        enum reqline now = check(data, i);
        sl_assert(so_far == REQLINE_MORE || now == so_far);
        so_far = now;
    }
    if (so_far == REQLINE_TAKEN)
        has_parts(data, n);
    return 0;
}
