/* SPDX-License-Identifier: Apache-2.0 */
/* Writes numbers in few characters. */
#include "procs/clients/top/page/format.h"

#include <stdio.h>

const char *format_number(double value, char out[16])
{
    static const char units[] = " KMGTPE";
    unsigned unit = 0;
    for (; value >= (unit == 0 ? 9999.5 : 999.5) && units[unit + 1]; unit++)
        value /= 1000;
    if (unit == 0)
        snprintf(out, 16, "%.*f", value < 999.5, value);
    else
        snprintf(out, 16, "%.*f%c", value < 99.95, value, units[unit]);
    return out;
}

const char *format_count(double value, char out[16])
{
    if (value >= 9999.5)
        return format_number(value, out);
    snprintf(out, 16, "%.0f", value);
    return out;
}

const char *format_share(double share, char out[16])
{
    snprintf(out, 16, "%.*f%%", share < 0.9995, 100 * share);
    return out;
}

const char *format_us(double us, char out[16])
{
    if (us < 9999.5)
        snprintf(out, 16, "%.0f us", us);
    else if (us < 999.95e3)
        snprintf(out, 16, "%.1f ms", us / 1e3);
    else
        snprintf(out, 16, "%.*f s", us < 999.95e6, us / 1e6);
    return out;
}

const char *format_size(uint64_t bytes, char out[16])
{
    static const char units[] = "BKMGTPE";
    double value = (double)bytes;
    unsigned unit = 0;
    for (; value >= 1024 && units[unit + 1]; unit++)
        value /= 1024;
    snprintf(out, 16, "%.*f%c", unit > 0 && value < 99.95, value, units[unit]);
    return out;
}
