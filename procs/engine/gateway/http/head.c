/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the request line and the header lines of a request, byte by byte. */
#include "procs/engine/gateway/http/head.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

#include "lib/base/assert.h"

#define VERSION_BYTES 8    /* "HTTP/1.1" */
#define TLS_HANDSHAKE 0x16 /* first byte of a TLS record */

struct head_parser {
    const char *bytes;
    size_t n, at;
    const char **why;
    bool http_1_0;
    unsigned hosts, lengths, codings;
};

/* Part of the head, not terminated. */
struct part {
    const char *text;
    size_t n;
};

static enum head reject(struct head_parser *p, const char *why)
{
    *p->why = why;
    return HEAD_REJECTED;
}

static bool digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool hex_digit(char c)
{
    return digit(c) || (c >= 'A' && c <= 'F') || (c >= 'a' && c <= 'f');
}

/* Whether c is a letter, a digit, or one of `others`. */
static bool name_char(char c, const char *others)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || digit(c) || (c && strchr(others, c));
}

/* tchar of RFC 9110, 5.6.2: what methods and header names are made of. */
static bool token_char(char c)
{
    return name_char(c, "!#$%&'*+-.^_`|~");
}

static bool control_char(char c)
{
    return ((unsigned char)c < ' ' && c != '\t') || c == 0x7f;
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* The next line, without CR LF. A line ends with both: software that also takes one of them alone
 * sees other lines than software that does not. TAKEN, MORE or REJECTED. */
static enum head next_line(struct head_parser *p, struct part *line)
{
    size_t i = p->at;
    while (i < p->n && !control_char(p->bytes[i]))
        i++;
    if (i == p->n || (p->bytes[i] == '\r' && i + 1 == p->n))
        return HEAD_MORE;
    if (p->bytes[i] == '\n')
        return reject(p, "a line of the request's head ends with LF instead of CR LF");
    if (p->bytes[i] != '\r' || p->bytes[i + 1] != '\n')
        return reject(p, "a control character in the request's head");
    *line = (struct part){p->bytes + p->at, i - p->at};
    p->at = i + 2;
    return HEAD_TAKEN;
}

/* Escapes are %XX, and none of them is a NUL, which would end the path for us only. */
static bool target_is_right(struct part target)
{
    for (size_t i = 0; i < target.n; i++) {
        const char *c = target.text + i;
        if (*c <= ' ' || *c >= 0x7f) /* bytes beyond ASCII, too */
            return false;
        if (*c == '%' && (target.n - i < 3 || !hex_digit(c[1]) || !hex_digit(c[2]) ||
                          (c[1] == '0' && c[2] == '0')))
            return false;
    }
    return target.n > 0;
}

/* Parts of a request line after its method: a blank, a target without one, a blank, a version. */
static enum head check_rest(struct head_parser *p, struct part rest)
{
    static const char wrong[] = "malformed HTTP request line; expected METHOD PATH HTTP/1.1";
    if (rest.n < VERSION_BYTES + 3) /* two blanks and a target */
        return reject(p, wrong);
    const char *version = rest.text + rest.n - VERSION_BYTES;
    if (version[-1] != ' ' || memcmp(version, "HTTP/1.", 7) != 0 || !digit(version[7]))
        return reject(p, wrong);
    struct part target = {rest.text + 1, rest.n - VERSION_BYTES - 2};
    if (memchr(target.text, ' ', target.n))
        return reject(p, wrong);
    if (!target_is_right(target))
        return reject(p, "malformed path: a byte that must be escaped, or a wrong escape (%00)");
    p->http_1_0 = version[7] == '0';
    return HEAD_TAKEN;
}

/* Judges the method before the end of the line is known. */
static enum head request_line(struct head_parser *p)
{
    struct part line;
    size_t end = p->at;
    if (p->at < p->n && p->bytes[p->at] == TLS_HANDSHAKE)
        return reject(p, "this port serves HTTP without TLS; use a proxy for TLS");
    while (end < p->n && token_char(p->bytes[end]))
        end++;
    size_t method = end - p->at;
    if (method > HEAD_METHOD_BYTES)
        return reject(p, "malformed HTTP request line: no space after the method");
    if (end == p->n)
        return HEAD_MORE;
    if (method == 0 || p->bytes[end] != ' ')
        return reject(p, "malformed HTTP request line");
    enum head found = next_line(p, &line);
    return found == HEAD_TAKEN ? check_rest(p, (struct part){line.text + method, line.n - method})
                               : found;
}

/* ---- headers --------------------------------------------------------------------------------- */

static bool is(struct part part, const char *text)
{
    return part.n == strlen(text) && strncasecmp(part.text, text, part.n) == 0;
}

static bool is_length(struct part value)
{
    uint64_t length = 0;
    for (size_t i = 0; i < value.n; i++) {
        if (!digit(value.text[i]) || length > (INT64_MAX - 9) / 10)
            return false;
        length = 10 * length + (uint64_t)(value.text[i] - '0');
    }
    return value.n > 0;
}

/* Characters of a host with a port (RFC 3986, 3.2), without those that separate it from others. */
static bool is_host(struct part value)
{
    for (size_t i = 0; i < value.n; i++)
        if (!name_char(value.text[i], "-._~%!$&'()*+;=:[]"))
            return false;
    return true;
}

/* Headers that decide where the request ends and who it is for. */
static enum head check_framing(struct head_parser *p, struct part name, struct part value)
{
    if (is(name, "Host")) {
        if (p->hosts++ > 0)
            return reject(p, "two Host headers");
        if (!is_host(value))
            return reject(p, "the Host header is not a host name");
    } else if (is(name, "Content-Length")) {
        if (p->lengths++ > 0)
            return reject(p, "two Content-Length headers");
        if (!is_length(value))
            return reject(p, "Content-Length is not a number of bytes");
    } else if (is(name, "Transfer-Encoding")) {
        if (p->codings++ > 0)
            return reject(p, "two Transfer-Encoding headers");
        if (!is(value, "chunked") || p->http_1_0)
            return reject(p, "Transfer-Encoding can only be chunked, and needs HTTP/1.1");
    }
    if (p->lengths > 0 && p->codings > 0)
        return reject(p, "Content-Length and Transfer-Encoding exclude each other");
    return HEAD_TAKEN;
}

static bool blank(char c)
{
    return c == ' ' || c == '\t';
}

static enum head check_header(struct head_parser *p, struct part line)
{
    struct part name = {line.text, 0};
    if (blank(line.text[0]))
        return reject(p, "a folded header line");
    while (name.n < line.n && token_char(line.text[name.n]))
        name.n++;
    if (name.n > 0 && name.n < line.n && blank(line.text[name.n]))
        return reject(p, "a blank in or after a header's name");
    if (name.n == 0 || name.n == line.n || line.text[name.n] != ':')
        return reject(p, "malformed header line; expected NAME: VALUE");
    struct part value = {line.text + name.n + 1, line.n - name.n - 1};
    while (value.n > 0 && blank(value.text[0])) {
        value.text++;
        value.n--;
    }
    while (value.n > 0 && blank(value.text[value.n - 1]))
        value.n--;
    return check_framing(p, name, value);
}

static enum head check_headers(struct head_parser *p)
{
    for (;;) {
        struct part line;
        enum head found = next_line(p, &line);
        if (found == HEAD_TAKEN && line.n > 0)
            found = check_header(p, line);
        else if (found == HEAD_TAKEN)
            return !p->http_1_0 && p->hosts == 0 ? reject(p, "no Host header") : HEAD_TAKEN;
        if (found != HEAD_TAKEN)
            return found;
    }
}

static enum head check_all(struct head_parser *p)
{
    if (p->n > 0 && p->bytes[0] == '\r') {
        if (p->n == 1)
            return HEAD_MORE;
        if (p->bytes[1] != '\n')
            return reject(p, "malformed HTTP request line");
        p->at = 2;
    }
    enum head found = request_line(p);
    return found == HEAD_TAKEN ? check_headers(p) : found;
}

enum head head_check(const char *bytes, size_t n, const char **why)
{
    sl_assert(n <= HEAD_BYTES_MAX);
    struct head_parser p = {.bytes = bytes, .n = n, .why = why};
    enum head found = check_all(&p);
    if (found != HEAD_MORE || n < HEAD_BYTES_MAX)
        return found;
    *why = "the request's head is longer than 7 KiB";
    return HEAD_TOO_LONG;
}
