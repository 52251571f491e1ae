/* SPDX-License-Identifier: Apache-2.0 */
/* Names of files in URLs. */
#include <stdio.h>
#include <string.h>

#include "procs/engine/fetch/fetch.h"

/* Where the last component of the path begins; *bytes is its length. */
static const char *last_component(const char *url, size_t *bytes)
{
    size_t end = strcspn(url, "?#");
    const char *authority = strstr(url, "://"), *at = url + end;
    authority = authority ? authority + 3 : url;
    const char *path = authority + strcspn(authority, "/?");
    while (at > path && at[-1] != '/')
        at--;
    *bytes = (size_t)(url + end - at);
    return at;
}

void url_name(const char *url, char name[FETCH_URL_BYTES])
{
    size_t bytes;
    const char *at = last_component(url, &bytes);
    snprintf(name, FETCH_URL_BYTES, "%.*s", (int)bytes, at);
}

int url_sibling(const char *url, const char *name, char to[FETCH_URL_BYTES], struct error *error)
{
    size_t bytes;
    const char *at = last_component(url, &bytes);
    int n = snprintf(to, FETCH_URL_BYTES, "%.*s%s%s", (int)(at - url), url, name, at + bytes);
    return n > 0 && n < (int)FETCH_URL_BYTES
               ? 0
               : error_set(error, ERR_BAD_INPUT, "%.200s: too long with the name %.100s", url,
                           name);
}

bool name_is_plain(const char *name)
{
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");
    return n > 0 && n < NAME_MAX && name[n] == 0 && name[0] != '.';
}
