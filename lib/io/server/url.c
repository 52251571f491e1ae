/* SPDX-License-Identifier: Apache-2.0 */
/* Parses the URLs of servers. */
#include "lib/io/server/url.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"

#define NBD_PORT 10809

static const struct scheme {
    const char *text; /* with "://" */
    enum io_backend_id backend;
    bool tls, tcp;
} schemes[] = {
    {"nbd://", IO_NBD, false, true},
    {"nbds://", IO_NBD, true, true},
    {"nbd+unix://", IO_NBD, false, false},
    {"nbds+unix://", IO_NBD, true, false},
};

bool io_url_is(const char *text)
{
    size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789+.-");
    return n > 0 && strncmp(text + n, "://", 3) == 0;
}

static int hex_of(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Decodes %XX. False: it is too long, or malformed, or has a NUL. */
static bool decode(char to[IO_URL_TEXT_BYTES], const char *from, size_t bytes)
{
    size_t n = 0;
    for (size_t i = 0; i < bytes; i++) {
        char c = from[i];
        if (c == '%') {
            int high = i + 2 < bytes ? hex_of(from[i + 1]) : -1;
            int low = high >= 0 ? hex_of(from[i + 2]) : -1;
            if (low < 0)
                return false;
            c = (char)(high << 4 | low);
            i += 2;
        }
        if (c == 0 || n + 1 >= IO_URL_TEXT_BYTES)
            return false;
        to[n++] = c;
    }
    to[n] = 0;
    return true;
}

static int bad(const char *text, const char *why, struct error *error)
{
    return error_set(error, ERR_BAD_INPUT, "%.300s: %s", text, why);
}

/* "HOST", "HOST:PORT", "[IPv6]:PORT". False: malformed. */
static bool take_host(struct io_url *url, const char *text, const char *from, size_t bytes)
{
    bool brackets = bytes > 0 && from[0] == '[';
    const char *end = from + bytes;
    const char *host = from + brackets;
    const char *host_end = memchr(host, brackets ? ']' : ':', (size_t)(end - host));
    if (!host_end) {
        if (brackets)
            return false;
        host_end = end;
    }
    const char *port = host_end + brackets;
    url->host_at = (uint32_t)(from - text);
    url->host_bytes = (uint32_t)(port - from);
    url->port = NBD_PORT;
    if (!decode(url->host, host, (size_t)(host_end - host)) || url->host[0] == 0)
        return false;
    if (port == end)
        return true;
    size_t digits = strspn(port + 1, "0123456789");
    unsigned long number = *port == ':' && digits < 6 ? strtoul(port + 1, NULL, 10) : 0;
    url->port = (uint16_t)number;
    return number > 0 && number <= UINT16_MAX && port + 1 + digits == end;
}

static bool take_authority(struct io_url *url, const char *text, const char *from, size_t bytes)
{
    const char *at = memchr(from, '@', bytes);
    size_t user = at ? (size_t)(at - from) : 0;
    if (at && !decode(url->user, from, user))
        return false;
    from += at ? user + 1 : 0;
    bytes -= at ? user + 1 : 0;
    return url->tcp ? take_host(url, text, from, bytes) : bytes == 0;
}

/* "key=value&key=value". NULL, or what is wrong. */
static const char *take_query(struct io_url *url, const char *query)
{
    struct {
        const char *key;
        char *value;
    } keys[] = {{"socket", url->socket},
                {"tls-certificates", url->certificates},
                {"tls-psk-file", url->psk_file}};
    while (*query) {
        size_t key = strcspn(query, "=&"), whole = strcspn(query, "&");
        bool known = false;
        for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
            if (key != strlen(keys[i].key) || strncmp(query, keys[i].key, key) != 0)
                continue;
            known = key < whole && decode(keys[i].value, query + key + 1, whole - key - 1);
        }
        if (!known)
            return "expected socket=, tls-certificates= or tls-psk-file= after the '?'";
        query += whole + (query[whole] == '&');
    }
    return NULL;
}

static const char *incomplete(const struct io_url *url)
{
    if (url->tcp && url->socket[0])
        return "a socket= is for nbd+unix:// only";
    if (!url->tcp && url->socket[0] != '/')
        return "expected ?socket=PATH with an absolute path";
    bool keys = url->certificates[0] || url->psk_file[0];
    if (!url->tls && (keys || url->user[0]))
        return "a user, tls-certificates= and tls-psk-file= are for nbds:// and nbds+unix:// only";
    if (url->tls && !keys)
        return "TLS needs tls-certificates=DIRECTORY or tls-psk-file=FILE after a '?'";
    return NULL;
}

int io_url_parse(const char *text, struct io_url *url, struct error *error)
{
    const struct scheme *scheme = NULL;
    for (size_t i = 0; i < ARRAY_LEN(schemes); i++)
        if (strncmp(text, schemes[i].text, strlen(schemes[i].text)) == 0)
            scheme = &schemes[i];
    if (!scheme)
        return bad(text, "expected nbd://, nbds://, nbd+unix:// or nbds+unix://", error);
    *url = (struct io_url){.backend = scheme->backend, .tls = scheme->tls, .tcp = scheme->tcp};
    const char *rest = text + strlen(scheme->text);
    size_t authority = strcspn(rest, "/?");
    if (!take_authority(url, text, rest, authority))
        return bad(text, scheme->tcp ? "expected ADDRESS or ADDRESS:PORT" : "expected nbd+unix:///",
                   error);
    rest += authority + (rest[authority] == '/');
    size_t name = strcspn(rest, "?");
    if (!decode(url->name, rest, name))
        return bad(text, "the name of the export is malformed", error);
    const char *wrong = rest[name] ? take_query(url, rest + name + 1) : NULL;
    wrong = wrong ? wrong : incomplete(url);
    return wrong ? bad(text, wrong, error) : 0;
}

bool io_url_numeric(const struct io_url *url)
{
    unsigned char address[16];
    return inet_pton(AF_INET, url->host, address) == 1 ||
           inet_pton(AF_INET6, url->host, address) == 1;
}
