/* SPDX-License-Identifier: Apache-2.0 */
/* The name of the processor for which a tuning holds. */
#include <stdio.h>
#include <string.h>

#include "lib/tunings/tunings.h"

/* Appends the printable characters of the value of `line` if its key is `key`. */
static void append_value(const char *line, const char *key, char name[TUNINGS_CPU_BYTES])
{
    size_t n = strlen(name);
    const char *from = strchr(line, ':');
    if (!from || strncmp(line, key, strlen(key)) != 0)
        return;
    if (n > 0 && n + 1 < TUNINGS_CPU_BYTES)
        name[n++] = ' ';
    from += 1 + strspn(from + 1, " \t");
    for (; *from && n + 1 < TUNINGS_CPU_BYTES; from++)
        if (*from >= ' ' && *from < 0x7f)
            name[n++] = *from;
    name[n] = 0;
}

void tunings_cpu_of(FILE *f, char name[TUNINGS_CPU_BYTES])
{
    char line[4096]; /* the flags of a CPU are one line */
    char arm[TUNINGS_CPU_BYTES] = "";
    name[0] = 0;
    while (!name[0] && fgets(line, sizeof line, f)) {
        append_value(line, "model name", name);
        if (strncmp(line, "CPU part", strlen("CPU part")) == 0) {
            append_value(line, "CPU part", arm);
            break;
        }
        append_value(line, "CPU implementer", arm);
    }
    if (!name[0] && arm[0])
        snprintf(name, TUNINGS_CPU_BYTES, "ARM %.*s", TUNINGS_CPU_BYTES - 5, arm);
}

void tunings_cpu(char name[TUNINGS_CPU_BYTES])
{
    FILE *f = fopen("/proc/cpuinfo", "re");
    name[0] = 0;
    if (!f)
        return;
    tunings_cpu_of(f, name);
    fclose(f);
}
