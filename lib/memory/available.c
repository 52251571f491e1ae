/* SPDX-License-Identifier: Apache-2.0 */
/* Reads how much memory is left, in the machine and in every cgroup above this process. */
#include "lib/memory/available.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"

/* NULL: it cannot be read. */
static FILE *open_in(const char *dir, const char *file)
{
    char path[3 * PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/%s", dir, file);
    return n > 0 && n < (int)sizeof path ? fopen(path, "re") : NULL;
}

static bool find_mount(const char *root, enum cgroup_version version, char out[PATH_MAX])
{
    FILE *f = open_in(root, "proc/self/mounts");
    if (!f)
        return false;
    char line[2 * PATH_MAX], where[PATH_MAX], type[64], options[512];
    bool found = false;
    while (!found && fgets(line, sizeof line, f)) {
        if (sscanf(line, "%*s %4095s %63s %511s", where, type, options) != 3)
            continue;
        if (version == CGROUP_V2)
            found = strcmp(type, "cgroup2") == 0;
        else
            found = strcmp(type, "cgroup") == 0 && strstr(options, ",memory") != NULL;
    }
    fclose(f);
    if (found)
        memcpy(out, where, strlen(where) + 1);
    return found;
}

/* From /proc/self/cgroup: "4:memory:/a/b" or "0::/a/b". */
static bool find_group(const char *root, enum cgroup_version version, char out[PATH_MAX])
{
    FILE *f = open_in(root, "proc/self/cgroup");
    if (!f)
        return false;
    char line[PATH_MAX + 128];
    bool found = false;
    while (!found && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        char *controllers = strchr(line, ':');
        char *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group)
            continue;
        *controllers++ = 0;
        *group++ = 0;
        if (version == CGROUP_V2)
            found = strcmp(line, "0") == 0;
        else
            found = strcmp(controllers, "memory") == 0 || strncmp(controllers, "memory,", 7) == 0 ||
                    strstr(controllers, ",memory") != NULL;
        if (found && strlen(group) < PATH_MAX)
            memcpy(out, group, strlen(group) + 1);
    }
    fclose(f);
    return found;
}

bool cgroup_find_mount(enum cgroup_version version, char out[PATH_MAX])
{
    return find_mount("", version, out);
}

bool cgroup_find_group(enum cgroup_version version, char out[PATH_MAX])
{
    return find_group("", version, out);
}

/* The number in a file of a cgroup: its first, or the one of the line that begins with `name`. */
static bool read_number(const char *dir, const char *file, const char *name, uint64_t *value)
{
    char line[256];
    bool found = false;
    FILE *f = open_in(dir, file);
    size_t skip = name ? strlen(name) : 0;
    while (f && !found && fgets(line, sizeof line, f)) {
        char *end;
        if (name && (strncmp(line, name, skip) != 0 || line[skip] != ' '))
            continue;
        *value = strtoull(line + skip, &end, 10);
        found = end != line + skip;
        if (!name)
            break;
    }
    if (f)
        fclose(f);
    return found;
}

/* Below the limit of one cgroup; UINT64_MAX: it has none. */
static uint64_t available_in(const char *dir, bool v2)
{
    uint64_t limit, usage, cached = 0;
    if (!read_number(dir, v2 ? "memory.max" : "memory.limit_in_bytes", NULL, &limit) ||
        !read_number(dir, v2 ? "memory.current" : "memory.usage_in_bytes", NULL, &usage))
        return UINT64_MAX;
    static const char *const names[2][2] = {{"total_active_file", "total_inactive_file"},
                                            {"active_file", "inactive_file"}};
    for (int i = 0; i < 2; i++) {
        uint64_t bytes = 0;
        if (read_number(dir, "memory.stat", names[v2][i], &bytes))
            cached += bytes;
    }
    usage -= cached < usage ? cached : usage;
    return limit > usage ? limit - usage : 0;
}

/* From the cgroup of this process up to the root of its hierarchy. */
static uint64_t available_under(const char *root, enum cgroup_version version)
{
    char mount[PATH_MAX], group[PATH_MAX], dir[2 * PATH_MAX];
    uint64_t lowest = UINT64_MAX;
    if (!find_mount(root, version, mount) || !find_group(root, version, group))
        return lowest;
    for (;;) {
        int n = snprintf(dir, sizeof dir, "%s%s%s", root, mount, group);
        uint64_t here = n < (int)sizeof dir ? available_in(dir, version == CGROUP_V2) : UINT64_MAX;
        lowest = here < lowest ? here : lowest;
        char *slash = strrchr(group, '/');
        if (!slash || group[0] == 0)
            return lowest;
        *slash = 0;
    }
}

uint64_t cgroup_available_at(const char *root)
{
    uint64_t v1 = available_under(root, CGROUP_V1), v2 = available_under(root, CGROUP_V2);
    return v1 < v2 ? v1 : v2;
}

uint64_t memory_available_at(const char *root)
{
    char proc[PATH_MAX];
    uint64_t kib, machine = UINT64_MAX, cgroup = cgroup_available_at(root);
    int n = snprintf(proc, sizeof proc, "%s/proc", root);
    if (n < (int)sizeof proc && read_number(proc, "meminfo", "MemAvailable:", &kib))
        machine = kib < UINT64_MAX / KIB ? kib * KIB : UINT64_MAX;
    return machine < cgroup ? machine : cgroup;
}

uint64_t memory_available(void)
{
    return memory_available_at("");
}

uint64_t cgroup_available(void)
{
    return cgroup_available_at("");
}

uint64_t memory_private(void)
{
    char line[128];
    uint64_t kib = 0;
    FILE *f = open_in("", "proc/self/status");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "RssAnon: %" SCNu64, &kib) == 1)
            break;
    if (f)
        fclose(f);
    return kib * KIB;
}
