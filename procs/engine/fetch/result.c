/* SPDX-License-Identifier: Apache-2.0 */
/* Compares what was printed with what the program was given. */
#include "procs/engine/fetch/result.h"

#include <string.h>

#include "procs/engine/fetch/fetch.h"

bool fetch_path_allowed(const char *directory, const char *path)
{
    size_t n = strlen(directory);
    if (strncmp(path, directory, n) != 0 || path[n] != '/')
        return false;
    for (const char *at = path + n; at; at = strchr(at + 1, '/'))
        if (strncmp(at, "/..", 3) == 0 && (at[3] == '/' || at[3] == 0))
            return false;
    return true;
}

bool fetch_url_allowed(const char *model, const char *url)
{
    char name[FETCH_URL_BYTES], expected[FETCH_URL_BYTES];
    struct error ignored;
    if (strcmp(model, url) == 0)
        return true;
    io_url_name(url, name);
    return name_is_plain(name) && io_url_sibling(model, name, expected, &ignored) == 0 &&
           strcmp(expected, url) == 0;
}
