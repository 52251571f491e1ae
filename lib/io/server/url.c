/* SPDX-License-Identifier: Apache-2.0 */
/* Parses the URLs of servers. */
#include "lib/io/server/url.h"

#include <arpa/inet.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"

#define S3_REGION  "us-east-1" /* where no other is given, as in other programs */
#define S3_PROFILE "default"
/* Of monitors, and of the daemons' range (ms_bind_port_min, ms_bind_port_max of Ceph 18). */
#define CEPH_PORTS "3300,6789,6800-7568"

enum form { NBD, NBD_UNIX, WEB, OBJECT, CLUSTER };

static const struct scheme {
    const char *text; /* with "://" */
    enum io_backend_id backend;
    enum form form;
    bool tls;
    uint16_t port; /* unless another one is given */
} schemes[] = {
    {"nbd://", IO_NBD, NBD, false, 10809},       {"nbds://", IO_NBD, NBD, true, 10809},
    {"nbd+unix://", IO_NBD, NBD_UNIX, false, 0}, {"nbds+unix://", IO_NBD, NBD_UNIX, true, 0},
    {"http://", IO_HTTP, WEB, false, 80},        {"https://", IO_HTTP, WEB, true, 443},
    {"s3://", IO_HTTP, OBJECT, true, 443},       {"rados://", IO_RADOS, CLUSTER, false, 0},
};

static const struct setting {
    const char *key;
    size_t value;   /* in struct io_url */
    uint32_t forms; /* bit of each form that has it */
} settings[] = {
#define ALL (1u << NBD | 1u << NBD_UNIX | 1u << WEB | 1u << OBJECT)
    {"socket", offsetof(struct io_url, socket), 1u << NBD | 1u << NBD_UNIX},
    {"tls-certificates", offsetof(struct io_url, certificates), ALL},
    {"tls-psk-file", offsetof(struct io_url, psk_file), 1u << NBD | 1u << NBD_UNIX},
    {"endpoint", offsetof(struct io_url, endpoint), 1u << OBJECT},
    {"region", offsetof(struct io_url, region), 1u << OBJECT},
    {"credentials", offsetof(struct io_url, credentials), 1u << OBJECT},
    {"profile", offsetof(struct io_url, profile), 1u << OBJECT},
    {"conf", offsetof(struct io_url, conf), 1u << CLUSTER},
    {"user", offsetof(struct io_url, user), 1u << CLUSTER},
    {"keyring", offsetof(struct io_url, credentials), 1u << CLUSTER},
    {"namespace", offsetof(struct io_url, space), 1u << CLUSTER},
    {"address", offsetof(struct io_url, address), 1u << WEB | 1u << OBJECT},
#undef ALL
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

void io_url_encode(const char *text, char *to)
{
    for (const char *c = text; *c; c++) {
        bool plain = (*c >= 'A' && *c <= 'Z') || (*c >= 'a' && *c <= 'z') ||
                     (*c >= '0' && *c <= '9') || strchr("-._~/", *c);
        if (plain)
            *to++ = *c;
        else
            to += snprintf(to, 4, "%%%02X", (unsigned)(unsigned char)*c);
    }
    *to = 0;
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
static const char *take_settings(struct io_url *url, enum form form, const char *text)
{
    while (*text) {
        size_t key = strcspn(text, "=&"), whole = strcspn(text, "&");
        bool known = false;
        for (size_t i = 0; i < ARRAY_LEN(settings); i++) {
            const struct setting *s = &settings[i];
            if (!(s->forms & 1u << form) || key != strlen(s->key) ||
                strncmp(text, s->key, key) != 0)
                continue;
            known = key < whole && decode((char *)url + s->value, text + key + 1, whole - key - 1);
        }
        if (!known)
            return form == OBJECT ? "expected endpoint=, region=, credentials=, profile= or "
                                    "tls-certificates= after the '?'"
                   : form == WEB
                       ? "expected tls-certificates= after the '#'"
                       : "expected socket=, tls-certificates= or tls-psk-file= after the '?'";
        text += whole + (text[whole] == '&');
    }
    return NULL;
}

/* ---- network block devices ------------------------------------------------------------------- */

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
    /* libnbd has no name to compare then, and accepts every certificate. */
    if (!url->tcp && url->certificates[0])
        return "nobody would check the certificate of a Unix socket; give tls-psk-file=";
    return NULL;
}

static const char *take_nbd(struct io_url *url, enum form form, const char *text, const char *rest)
{
    size_t authority = strcspn(rest, "/?");
    url->separator = strchr(rest, '?') ? '&' : '?';
    if (!take_authority(url, text, rest, authority))
        return form == NBD ? "expected ADDRESS or ADDRESS:PORT" : "expected nbd+unix:///";
    rest += authority + (rest[authority] == '/');
    size_t name = strcspn(rest, "?");
    if (!decode(url->name, rest, name))
        return "the name of the export is malformed";
    const char *wrong = rest[name] ? take_settings(url, form, rest + name + 1) : NULL;
    return wrong ? wrong : incomplete(url);
}

/* ---- http and S3 ----------------------------------------------------------------------------- */

/* Characters that the path and the query of a URL may have (RFC 3986). */
static bool printable(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (text[i] <= ' ' || text[i] > '~' || strchr("\"<>\\^`{|}", text[i]))
            return false;
    return true;
}

/* It becomes a part of requests. */
static bool is_host(const char *text)
{
    return text[strspn(text,
                       "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:")] == 0;
}

static const char *take_web(struct io_url *url, const char *text, const char *rest)
{
    size_t authority = strcspn(rest, "/?#");
    url->separator = strchr(rest, '#') ? '&' : '#';
    if (memchr(rest, '@', authority))
        return "a user or a password in a URL would be in every log";
    if (!take_host(url, text, rest, authority) || !is_host(url->host))
        return "expected HOST or HOST:PORT";
    rest += authority;
    size_t target = strcspn(rest, "#");
    if (*rest != '/' || target >= sizeof url->target || !printable(rest, target))
        return "expected a path, encoded";
    memcpy(url->target, rest, target);
    url->target[target] = 0;
    const char *wrong = rest[target] ? take_settings(url, WEB, rest + target + 1) : NULL;
    return !wrong && url->certificates[0] && !url->tls ? "tls-certificates= is for https:// only"
                                                       : wrong;
}

/* As S3 signs it (AWS, "Create a signed AWS API request", UriEncode). */
static void encode_target(struct io_url *url)
{
    url->target[0] = '/';
    io_url_encode(url->name, url->target + 1);
}

/* The part of the URL of an endpoint that is like one of http. */
static const char *take_endpoint(struct io_url *url)
{
    static const char wrong[] = "expected endpoint=http://HOST[:PORT] or https://HOST[:PORT]";
    for (size_t i = 0; i < ARRAY_LEN(schemes); i++) {
        const struct scheme *s = &schemes[i];
        size_t n = strlen(s->text);
        if (s->form != WEB || strncmp(url->endpoint, s->text, n) != 0)
            continue;
        size_t authority = strcspn(url->endpoint + n, "/?#@");
        const char *end = url->endpoint + n + authority;
        url->tls = s->tls;
        url->port = s->port;
        if (*end && strcmp(end, "/") != 0)
            return wrong;
        bool host = take_host(url, url->endpoint, url->endpoint + n, authority);
        return host && is_host(url->host) ? NULL : wrong;
    }
    return wrong;
}

static bool is_name(const char *text)
{
    return text[strspn(text,
                       "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")] == 0;
}

/* Path style: buckets need no names in DNS, nor certificates. */
static const char *take_object(struct io_url *url, const char *rest)
{
    size_t name = strcspn(rest, "?");
    url->s3 = true;
    url->separator = rest[name] ? '&' : '?';
    strcpy(url->region, S3_REGION);
    strcpy(url->profile, S3_PROFILE);
    if (!decode(url->name, rest, name))
        return "the name of the object is malformed";
    const char *key = strchr(url->name, '/');
    if (!key || key == url->name || !key[1])
        return "expected s3://BUCKET/KEY";
    encode_target(url);
    const char *wrong = rest[name] ? take_settings(url, OBJECT, rest + name + 1) : NULL;
    if (wrong)
        return wrong;
    if (!is_name(url->region) || !url->region[0] || strlen(url->region) > 63)
        return "the region is malformed";
    if (!url->endpoint[0])
        snprintf(url->endpoint, sizeof url->endpoint, "https://s3.%.63s.amazonaws.com",
                 url->region);
    wrong = take_endpoint(url);
    url->host_at = url->host_bytes = 0; /* they are not those of the text */
    return wrong;
}

/* ---- Ceph ------------------------------------------------------------------------------------ */

static const char *take_cluster(struct io_url *url, const char *rest)
{
    size_t name = strcspn(rest, "?"), pool = strcspn(rest, "/?");
    url->separator = rest[name] ? '&' : '?';
    if (pool == 0 || pool + 1 >= name)
        return "expected rados://POOL/OBJECT";
    if (!decode(url->pool, rest, pool) || !decode(url->name, rest + pool + 1, name - pool - 1))
        return "the name of the pool or of the object is malformed";
    return rest[name] ? take_settings(url, CLUSTER, rest + name + 1) : NULL;
}

static const char *take(struct io_url *url, enum form form, const char *text, const char *rest)
{
    const char *wrong = form == WEB       ? take_web(url, text, rest)
                        : form == OBJECT  ? take_object(url, rest)
                        : form == CLUSTER ? take_cluster(url, rest)
                                          : take_nbd(url, form, text, rest);
    unsigned char address[16];
    bool numeric = !url->address[0] || inet_pton(AF_INET, url->address, address) == 1 ||
                   inet_pton(AF_INET6, url->address, address) == 1;
    return wrong ? wrong : numeric ? NULL : "address= is not an address in numbers";
}

int io_url_parse(const char *text, struct io_url *url, struct error *error)
{
    const struct scheme *scheme = NULL;
    for (size_t i = 0; i < ARRAY_LEN(schemes); i++)
        if (strncmp(text, schemes[i].text, strlen(schemes[i].text)) == 0)
            scheme = &schemes[i];
    if (!scheme)
        return bad(
            text,
            "expected nbd://, nbds://, nbd+unix://, nbds+unix://, http://, https://, s3:// or "
            "rados://",
            error);
    *url = (struct io_url){.backend = scheme->backend,
                           .tls = scheme->tls,
                           .tcp = scheme->form != NBD_UNIX,
                           .port = scheme->port};
    const char *wrong = take(url, scheme->form, text, text + strlen(scheme->text));
    if (url->tcp && scheme->form == CLUSTER)
        strcpy(url->ports, CEPH_PORTS);
    else if (url->tcp)
        snprintf(url->ports, sizeof url->ports, "%u", (unsigned)url->port);
    return wrong ? bad(text, wrong, error) : 0;
}

bool io_url_numeric(const struct io_url *url)
{
    unsigned char address[16];
    return inet_pton(AF_INET, url->host, address) == 1 ||
           inet_pton(AF_INET6, url->host, address) == 1;
}
