/* SPDX-License-Identifier: Apache-2.0 */
/* Names of the files of a skeleton. */
#include <string.h>

#include "procs/engine/fetch/fetch.h"

bool name_is_plain(const char *name)
{
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");
    return n > 0 && n < NAME_MAX && name[n] == 0 && name[0] != '.';
}
