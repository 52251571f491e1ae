/* SPDX-License-Identifier: Apache-2.0 */
/* URLs of servers that a loader reads:
 *
 *   nbd://ADDRESS[:PORT]/[EXPORT]               TCP; ADDRESS in numbers, IPv6 in brackets
 *   nbds://[USER@]ADDRESS[:PORT]/[EXPORT]?...   the same with TLS
 *   nbd+unix:///[EXPORT]?socket=PATH            a Unix socket; nbds+unix with TLS
 *   http://HOST[:PORT]/PATH[?QUERY][#...]       PATH and QUERY as the server gets them
 *   https://HOST[:PORT]/PATH[?QUERY][#...]      the same with TLS
 *   s3://BUCKET/KEY[?...]                       an object, with or without TLS (endpoint)
 *   rados://POOL/OBJECT[?...]                   a file in a Ceph cluster
 *
 * The settings "...", KEY=VALUE joined by &, are those of the table in url.c. Those of http are
 * behind a #, because what is behind a ? is the server's. %XX is decoded in EXPORT, USER, BUCKET,
 * KEY, POOL, OBJECT and values. The grammar of nbd is that of the NBD project (uri.md), that of
 * http RFC 3986. Pure: no name is resolved and no file is opened here. */
#ifndef SLUICE_IO_SERVER_URL_H
#define SLUICE_IO_SERVER_URL_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/error.h"
#include "lib/io/backends.h"

#define IO_URL_TEXT_BYTES  512
#define IO_URL_PORTS_BYTES 24

struct io_url {
    enum io_backend_id backend;
    bool tls;
    bool tcp;                       /* else a Unix socket */
    bool s3;                        /* http with S3's paths and signatures */
    uint16_t port;                  /* of TCP */
    char host[IO_URL_TEXT_BYTES];   /* of TCP, without brackets */
    char socket[IO_URL_TEXT_BYTES]; /* path of the Unix socket */
    char name[IO_URL_TEXT_BYTES];   /* of the export; BUCKET/KEY of S3; the object */
    char user[IO_URL_TEXT_BYTES];
    char certificates[IO_URL_TEXT_BYTES], psk_file[IO_URL_TEXT_BYTES];
    char target[3 * IO_URL_TEXT_BYTES];  /* of http and S3: path and query, encoded */
    char endpoint[IO_URL_TEXT_BYTES];    /* of S3: http:// or https://, host, port */
    char region[IO_URL_TEXT_BYTES];      /* of S3 */
    char credentials[IO_URL_TEXT_BYTES]; /* path of a file: keys of S3, or Ceph's keyring */
    char profile[IO_URL_TEXT_BYTES];     /* of S3: a section of that file */
    char pool[IO_URL_TEXT_BYTES];        /* of Ceph */
    char space[IO_URL_TEXT_BYTES];       /* of Ceph: a namespace of the pool */
    char conf[IO_URL_TEXT_BYTES];        /* of Ceph: path of its ceph.conf */
    char ports[IO_URL_PORTS_BYTES];      /* of TCP: those that it is reached at (lib/sandbox) */
    char address[IO_URL_TEXT_BYTES];     /* of the host, in numbers, if the host is a name */
    uint32_t host_at, host_bytes;        /* where the host is in the text; 0, 0: nowhere */
    char separator;                      /* before a setting that is put behind the text */
};

/* Whether the text names a server: a scheme and "://". Everything else is a path. */
bool io_url_is(const char *text);

/* -1 with ERR_BAD_INPUT, which says what is wrong. The host may be a name. */
int io_url_parse(const char *text, struct io_url *url, struct error *error);

/* Encodes everything but unreserved characters (RFC 3986) and slashes as %XX. `to` has room for
 * 3 * strlen(text) + 1 bytes. */
void io_url_encode(const char *text, char *to);

/* Whether the host is an address in numbers. */
bool io_url_numeric(const struct io_url *url);

/* The last component of the path in a URL, as it is written there, in `name`; "" without one. */
void io_url_name(const char *url, char name[IO_URL_TEXT_BYTES]);
/* The URL with another last component. -1 with ERR_BAD_INPUT when that is too long. */
int io_url_sibling(const char *url, const char *name, char to[IO_URL_TEXT_BYTES],
                   struct error *error);
/* The URL with one more component: of a file in that directory, whether the URL ends in a slash or
 * not. */
int io_url_below(const char *url, const char *name, char to[IO_URL_TEXT_BYTES],
                 struct error *error);

#endif
