/* SPDX-License-Identifier: Apache-2.0 */
/* Parses and makes the names of the parts of a split model. */
#include "lib/file/part_name.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"

#define DIGITS       5
#define SUFFIX       "-00001-of-00001.gguf"
#define SUFFIX_BYTES (sizeof SUFFIX - 1)
#define NUMBER_AT    1
#define COUNT_AT     (NUMBER_AT + DIGITS + 4)

static bool read_number(const char *text, uint32_t *value)
{
    *value = 0;
    for (int i = 0; i < DIGITS; i++) {
        if (!isdigit((unsigned char)text[i]))
            return false;
        *value = *value * 10 + (uint32_t)(text[i] - '0');
    }
    return true;
}

bool gguf_part_name(const char *path, uint32_t *number, uint32_t *count)
{
    size_t n = strlen(path);
    if (n <= SUFFIX_BYTES)
        return false;
    const char *at = path + n - SUFFIX_BYTES;
    return at[0] == '-' && read_number(at + NUMBER_AT, number) &&
           memcmp(at + NUMBER_AT + DIGITS, "-of-", 4) == 0 && read_number(at + COUNT_AT, count) &&
           strcmp(at + COUNT_AT + DIGITS, ".gguf") == 0 && *number >= 1 && *number <= *count;
}

void gguf_set_part(char *path, uint32_t number)
{
    char digits[DIGITS + 8];
    uint32_t was, count;
    sl_assert(gguf_part_name(path, &was, &count) && number >= 1 && number <= count);
    snprintf(digits, sizeof digits, "%05" PRIu32, number);
    memcpy(path + strlen(path) - SUFFIX_BYTES + NUMBER_AT, digits, DIGITS);
}

void gguf_first_part(char *path)
{
    uint32_t number, count;
    if (gguf_part_name(path, &number, &count))
        gguf_set_part(path, 1);
}

bool gguf_real_path(const char *path, char real[PATH_MAX])
{
    uint32_t number, count;
    char dir[PATH_MAX];
    if (!gguf_part_name(path, &number, &count) || count == 1)
        return realpath(path, real) != NULL;
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    int n = slash ? snprintf(dir, sizeof dir, "%.*s", (int)(name - path), path)
                  : snprintf(dir, sizeof dir, ".");
    errno = ENAMETOOLONG;
    if (n >= (int)sizeof dir || !realpath(dir, real))
        return false;
    size_t at = strlen(real);
    if (at + 1 + strlen(name) >= PATH_MAX) {
        errno = ENAMETOOLONG;
        return false;
    }
    snprintf(real + at, PATH_MAX - at, "%s%s", at > 1 ? "/" : "", name);
    gguf_first_part(real);
    return true;
}
