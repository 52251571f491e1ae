/* SPDX-License-Identifier: Apache-2.0 */
/* Compares what was printed with what the program was given. */
#include "procs/engine/fetch/result.h"

#include <string.h>

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
