/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "lib/tunings/tunings.h"

void tunings_cpu(char name[TUNINGS_CPU_BYTES])
{
    static const char key[] = "model name";
    char line[4096]; /* the flags of a CPU are one line */
    FILE *f = fopen("/proc/cpuinfo", "re");
    name[0] = 0;
    while (f && !name[0] && fgets(line, sizeof line, f)) {
        const char *from = strchr(line, ':');
        if (!from || strncmp(line, key, sizeof key - 1) != 0)
            continue;
        from += 1 + strspn(from + 1, " \t");
        size_t n = 0;
        for (; *from && n + 1 < TUNINGS_CPU_BYTES; from++)
            if (*from >= ' ' && *from < 0x7f)
                name[n++] = *from;
        name[n] = 0;
    }
    if (f)
        fclose(f);
}
