/* SPDX-License-Identifier: Apache-2.0 */
/* Names of files in URLs. */
#include <stdio.h>
#include <string.h>

#include "lib/io/server/url.h"

/* Where the last component of the path begins; *bytes is its length. Settings of http are behind a
 * '#', which the names of other servers may have. */
static const char *last_component(const char *url, size_t *bytes)
{
    bool http = strncmp(url, "http://", 7) == 0 || strncmp(url, "https://", 8) == 0;
    size_t end = strcspn(url, http ? "?#" : "?");
    const char *authority = strstr(url, "://"), *at = url + end;
    authority = authority ? authority + 3 : url;
    const char *path = authority + strcspn(authority, "/?");
    while (at > path && at[-1] != '/')
        at--;
    *bytes = (size_t)(url + end - at);
    return at;
}

void io_url_name(const char *url, char name[IO_URL_TEXT_BYTES])
{
    size_t bytes;
    const char *at = last_component(url, &bytes);
    snprintf(name, IO_URL_TEXT_BYTES, "%.*s", (int)bytes, at);
}

int io_url_sibling(const char *url, const char *name, char to[IO_URL_TEXT_BYTES],
                   struct error *error)
{
    size_t bytes;
    const char *at = last_component(url, &bytes);
    int n = snprintf(to, IO_URL_TEXT_BYTES, "%.*s%s%s", (int)(at - url), url, name, at + bytes);
    return n > 0 && n < IO_URL_TEXT_BYTES
               ? 0
               : error_set(error, ERR_BAD_INPUT, "%.200s: too long with the name %.100s", url,
                           name);
}

int io_url_below(const char *url, const char *name, char to[IO_URL_TEXT_BYTES], struct error *error)
{
    size_t bytes;
    const char *end = last_component(url, &bytes);
    end += bytes;
    int n = snprintf(to, IO_URL_TEXT_BYTES, "%.*s%s%s%s", (int)(end - url), url,
                     end > url && end[-1] == '/' ? "" : "/", name, end);
    return n > 0 && n < IO_URL_TEXT_BYTES
               ? 0
               : error_set(error, ERR_BAD_INPUT, "%.200s: too long with the name %.100s", url,
                           name);
}
