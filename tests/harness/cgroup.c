/* SPDX-License-Identifier: Apache-2.0 */
/* Makes memory cgroups for tests, of version 1 or 2. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/harness/internal.h"

#define V1_ROOT "/sys/fs/cgroup/memory"
#define V2_ROOT "/sys/fs/cgroup"

static bool version_2(const char *path)
{
    return strncmp(path, V1_ROOT "/", sizeof V1_ROOT) != 0;
}

static bool write_text(const char *dir, const char *file, const char *text)
{
    char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/%s", dir, file);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool fine = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    close(fd);
    return fine;
}

static uint64_t read_key(const char *dir, const char *file, const char *key)
{
    char path[PATH_MAX + 64], line[256];
    snprintf(path, sizeof path, "%s/%s", dir, file);
    FILE *f = fopen(path, "re");
    uint64_t value = 0;
    size_t n = key ? strlen(key) : 0;
    while (f && fgets(line, sizeof line, f))
        if (!key || (strncmp(line, key, n) == 0 && line[n] == ' ')) {
            value = strtoull(line + n, NULL, 10);
            break;
        }
    if (f)
        fclose(f);
    return value;
}

/* Where cgroups of version 2 can be made: SLUICE_TEST_CGROUP in a delegated subtree, which has the
 * memory controller for its children. */
static const char *v2_root(void)
{
    const char *value = getenv("SLUICE_TEST_CGROUP");
    return value && *value ? value : V2_ROOT;
}

bool cgroup_try(char path[PATH_MAX], struct error *error)
{
    static unsigned made;
    struct stat st;
    bool v1 = stat(V1_ROOT "/memory.usage_in_bytes", &st) == 0 ||
              stat(V1_ROOT "/memory.limit_in_bytes", &st) == 0;
    char controllers[PATH_MAX];
    snprintf(controllers, sizeof controllers, "%s/cgroup.controllers", v2_root());
    if (!v1 && stat(controllers, &st) != 0)
        return error_set(error, ERR_FAILED, "no memory cgroup is mounted") == 0;
    snprintf(path, PATH_MAX, "%s/sluice-test-%d-%u", v1 ? V1_ROOT : v2_root(), (int)getpid(),
             ++made);
    if (!v1)
        write_text(v2_root(), "cgroup.subtree_control", "+memory");
    if (mkdir(path, 0755) != 0)
        return error_set_errno(error, ERR_FAILED, errno, "cannot make the memory cgroup %.200s",
                               path) == 0;
    cleanup_cgroup(path);
    char usage[PATH_MAX + 32];
    snprintf(usage, sizeof usage, "%s/%s", path, v1 ? "memory.usage_in_bytes" : "memory.current");
    return access(usage, R_OK) == 0 ||
           error_set(error, ERR_FAILED, "the memory controller is not available in %.200s", path) ==
               0;
}

void cgroup_make(char path[PATH_MAX])
{
    struct error error;
    if (!cgroup_try(path, &error))
        test_skip("%s", error.text);
}

void cgroup_limit(const char *path, uint64_t bytes)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRIu64, bytes);
    CHECK(write_text(path, version_2(path) ? "memory.max" : "memory.limit_in_bytes", text),
          "cannot limit %s to %s bytes: %s", path, text, strerror(errno));
    if (version_2(path))
        write_text(path, "memory.swap.max", "0");
    else
        write_text(path, "memory.swappiness", "0");
}

uint64_t cgroup_usage(const char *path)
{
    return read_key(path, version_2(path) ? "memory.current" : "memory.usage_in_bytes", NULL);
}

uint64_t cgroup_failures(const char *path)
{
    return version_2(path) ? read_key(path, "memory.events", "oom_kill")
                           : read_key(path, "memory.oom_control", "oom_kill");
}

/* The engine may have created groups inside. */
void cgroup_remove(const char *path)
{
    DIR *dir = opendir(path);
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        if (entry->d_type == DT_DIR && entry->d_name[0] != '.') {
            char below[PATH_MAX + 300];
            snprintf(below, sizeof below, "%s/%s", path, entry->d_name);
            rmdir(below);
        }
    if (dir)
        closedir(dir);
    uint64_t deadline = deadline_in(2000); /* exited processes leave the group with a delay */
    while (rmdir(path) != 0 && errno == EBUSY && deadline_tick(deadline))
        continue;
}

/* ---- programs outside of the page cache ---- */

void engine_use_fresh_programs(struct engine *e)
{
    struct command c;
    snprintf(e->libexec, sizeof e->libexec, "%s/fresh", test_dir());
    /* Copied, synced and dropped from the page cache: the next reader is charged for the pages.
     * Without debug information, of which a long readahead of the device would read some too. */
    static const char script[] =
        "mkdir -p \"$1/lib\"; cp \"$0\"/sluice-* \"$1\"; strip -g \"$1\"/sluice-*\n"
        "for f in \"$1\"/sluice-*; do ldd \"$f\"; done | awk '$3 ~ /^\\// {print $3}' | sort -u |\n"
        "  while read -r l; do cp -L \"$l\" \"$1/lib\"; done\n"
        "find \"$1\" -type f | while read -r f; do\n"
        "  dd of=\"$f\" oflag=nocache conv=notrunc,fdatasync count=0 status=none; done\n";
    command_run(&c, NULL, 60000,
                (const char *const[]){"/bin/sh", "-ec", script, test_libexec(), e->libexec, NULL});
    CHECK(c.status == 0, "cannot copy the programs: %s", c.err);
    command_free(&c);
}
