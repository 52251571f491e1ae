/* SPDX-License-Identifier: Apache-2.0 */
/* Makes what requests to web servers and S3 have in common, for reads (http.c) and for those that
 * send a store (procs/tools/push): the address, the settings of TLS and of the library, and the
 * signature. */
#ifndef SLUICE_IO_SERVER_HTTP_REQUEST_H
#define SLUICE_IO_SERVER_HTTP_REQUEST_H

#include <curl/curl.h>
#include <stdbool.h>

#include "lib/io/server/http/credentials.h"
#include "lib/io/server/url.h"

#define REQUEST_ADDRESS_BYTES (4 * IO_URL_TEXT_BYTES + 32)
#define REQUEST_CODE_BYTES    56
/* SHA-256 of no bytes. S3 requires that of the body in every signed request. */
#define REQUEST_EMPTY_HASH "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

/* Scheme, host, port, path and query; then `more`, which is another query or "". */
void request_address(const struct io_url *url, const char *more, char text[REQUEST_ADDRESS_BYTES]);

/* Where the host is, for request_set: *list is the caller's, NULL when the host is an address. -1:
 * no memory. */
int request_resolve(const struct io_url *url, struct curl_slist **list);

/* Settings that every request has. -1: no memory. */
int request_set(CURL *easy, const struct io_url *url, const char *address,
                struct curl_slist *resolve);

/* One header, "name: value". False: no memory, or it is too long. */
bool request_header(struct curl_slist **list, const char *name, const char *value);
/* Frees a list, of which nothing remains in memory. */
void request_forget(struct curl_slist **list);

/* Signs this request of S3 if there are credentials: what follows are its headers, and the hash of
 * its body in hexadecimal digits. False: no memory. */
bool request_sign_headers(struct curl_slist **list, const struct credentials *c,
                          const char *body_hash);
bool request_sign(CURL *easy, const struct io_url *url, const struct credentials *c);

/* S3 gives the reason of an error as <Code>...</Code>: " (REASON)" of a body, else "". */
void request_code(const char *body, char code[REQUEST_CODE_BYTES]);

#endif
