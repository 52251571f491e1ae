/* SPDX-License-Identifier: Apache-2.0 */
/* Parses and formats sizes, bandwidths and percentages. */
#include "lib/base/bytes.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "lib/base/assert.h"

#define PARTS 100000000u /* a percentage in parts of 10^8 */

bool bytes_parse(const char *text, uint64_t *bytes)
{
    static const struct {
        const char *suffix;
        double unit;
    } units[] = {
        {"", 1},         {"B", 1},      {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30},
        {"TiB", 0x1p40}, {"K", 0x1p10}, {"M", 0x1p20},   {"G", 0x1p30},   {"T", 0x1p40},
        {"KB", 1e3},     {"MB", 1e6},   {"GB", 1e9},     {"TB", 1e12},
    };
    if (!text || !isdigit((unsigned char)text[0]))
        return false;
    char *end;
    double value = strtod(text, &end);
    while (*end == ' ')
        end++;
    for (size_t i = 0; i < ARRAY_LEN(units); i++) {
        if (strcasecmp(end, units[i].suffix) != 0)
            continue;
        value *= units[i].unit;
        if (!(value >= 0 && value < 0x1p62))
            return false;
        *bytes = (uint64_t)llround(value);
        return true;
    }
    return false;
}

bool speed_parse(const char *text, double *bytes_per_s)
{
    char number[32];
    uint64_t bytes;
    size_t n = strlen(text);
    if (n >= sizeof number)
        return false;
    memcpy(number, text, n + 1);
    if (n > 2 && strcmp(number + n - 2, "/s") == 0)
        number[n - 2] = 0;
    if (!bytes_parse(number, &bytes) || bytes == 0)
        return false;
    *bytes_per_s = (double)bytes;
    return true;
}

bool percent_parse(const char *text, double *percent)
{
    if (!text || !isdigit((unsigned char)text[0]))
        return false;
    char *end;
    double value = strtod(text, &end);
    if (*end == '%')
        end++;
    if (*end || !(value > 0 && value <= 100))
        return false;
    *percent = value;
    return true;
}

uint64_t percent_of(double percent, uint64_t whole)
{
    sl_assert(percent > 0.0 && percent <= 100.0);
    uint64_t parts = (uint64_t)(percent * 1e6 + 0.5);     /* of PARTS */
    uint64_t times = whole / PARTS, rest = whole % PARTS; /* no product overflows */
    return times * parts + rest * parts / PARTS;
}

const char *bytes_format(uint64_t bytes, char buf[16])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 1024 && unit + 1 < ARRAY_LEN(units)) {
        value /= 1024;
        unit++;
    }
    snprintf(buf, 16, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
    return buf;
}
