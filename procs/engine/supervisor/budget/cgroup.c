/* SPDX-License-Identifier: Apache-2.0 */
/* The hard limit: a memory cgroup around the engine, version 2 or 1, if the system allows it. The
 * ledger enforces the budget; the cgroup also limits memory that the ledger does not count.
 *
 * The engine moves into a child of its cgroup before it reads the model, so that everything it
 * touches is charged there, and back at the end, because a cgroup with processes cannot be
 * removed. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/log.h"
#include "procs/engine/supervisor/budget/budget.h"
#include "procs/engine/supervisor/supervisor.h"

#define NAME_PREFIX "sluice-"
#define V1_LIMIT    "memory.limit_in_bytes"
#define V1_USAGE    "memory.usage_in_bytes"
#define V1_PEAK     "memory.max_usage_in_bytes"
#define V1_KILLS    "memory.oom_control"
#define V1_HITS     "memory.failcnt"
#define V2_LIMIT    "memory.max"
#define V2_USAGE    "memory.current"
#define V2_PEAK     "memory.peak"
#define V2_EVENTS   "memory.events"
#define V2_PASS     "cgroup.subtree_control"

static bool path_join(char out[PATH_MAX], const char *dir, const char *file)
{
    int n = snprintf(out, PATH_MAX, "%s/%s", dir, file);
    return n > 0 && n < PATH_MAX;
}

static int write_file(const char *dir, const char *file, const char *text)
{
    char path[PATH_MAX];
    if (!path_join(path, dir, file))
        return -ENAMETOOLONG;
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    ssize_t n = write(fd, text, strlen(text));
    int saved = errno;
    close(fd);
    return n < 0 ? -saved : 0;
}

static bool read_file(const char *dir, const char *file, char *text, size_t cap)
{
    char path[PATH_MAX];
    if (!path_join(path, dir, file))
        return false;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t n = read(fd, text, cap - 1);
    close(fd);
    if (n <= 0)
        return false;
    text[n] = 0;
    return true;
}

static bool read_u64(const char *dir, const char *file, uint64_t *value)
{
    char text[64], *end;
    if (!read_file(dir, file, text, sizeof text))
        return false;
    *value = strtoull(text, &end, 10);
    return end != text;
}

/* Left by killed supervisors: empty groups named after processes that no longer exist. */
static void remove_stale(const char *parent)
{
    DIR *dir = opendir(parent);
    if (!dir)
        return;
    for (struct dirent *e; (e = readdir(dir)) != NULL;) {
        if (strncmp(e->d_name, NAME_PREFIX, sizeof NAME_PREFIX - 1) != 0)
            continue;
        char *end;
        long pid = strtol(e->d_name + sizeof NAME_PREFIX - 1, &end, 10);
        if (pid > 0 && *end == 0 && kill((pid_t)pid, 0) != 0 && errno == ESRCH)
            unlinkat(dirfd(dir), e->d_name, AT_REMOVEDIR);
    }
    closedir(dir);
}

static int move_to(const char *dir)
{
    return write_file(dir, "cgroup.procs", "0");
}

static bool has_limit(const struct cgroup *g, enum cgroup_version version)
{
    char path[PATH_MAX];
    return path_join(path, g->path, version == CGROUP_V2 ? V2_LIMIT : V1_LIMIT) &&
           access(path, W_OK) == 0;
}

/* In version 2 a child has limits only when its parent enables the controller, and such a parent
 * cannot contain processes: possible when this process was alone in a delegated cgroup. */
static int enable_memory(struct cgroup *g)
{
    int rc = write_file(g->parent, V2_PASS, "+memory");
    if (rc != 0)
        return rc;
    g->passed = true;
    return has_limit(g, CGROUP_V2) ? 0 : -ENOENT;
}

static bool leave(struct cgroup *g)
{
    if (g->passed)
        write_file(g->parent, V2_PASS, "-memory");
    g->passed = false;
    move_to(g->parent);
    return rmdir(g->path) == 0;
}

static int try_version(struct cgroup *g, enum cgroup_version version)
{
    char mount[PATH_MAX], group[PATH_MAX], name[32];
    if (!cgroup_find_mount(version, mount) || !cgroup_find_group(version, group))
        return -ENOENT;
    int n = snprintf(g->parent, sizeof g->parent, "%s%s", mount, strcmp(group, "/") ? group : "");
    if (n < 0 || n >= (int)sizeof g->parent)
        return -ENAMETOOLONG;
    remove_stale(g->parent);
    snprintf(name, sizeof name, NAME_PREFIX "%ld", (long)getpid());
    if (!path_join(g->path, g->parent, name))
        return -ENAMETOOLONG;
    if (mkdir(g->path, 0755) != 0 && errno != EEXIST)
        return -errno;
    int rc = move_to(g->path);
    if (rc == 0 && !has_limit(g, version))
        rc = version == CGROUP_V2 ? enable_memory(g) : -ENOENT;
    if (rc == 0) {
        g->version = version;
        return 0;
    }
    leave(g);
    return rc;
}

static bool kills_of(enum cgroup_version version, const char *dir, struct oom_counts *counts)
{
    char text[512];
    *counts = (struct oom_counts){0};
    bool v2 = version == CGROUP_V2;
    if (!read_file(dir, v2 ? V2_EVENTS : V1_KILLS, text, sizeof text) ||
        !oom_count_parse(text, "oom_kill", &counts->kills))
        return false;
    if (v2)
        oom_count_parse(text, "oom", &counts->hits);
    else
        read_u64(dir, V1_HITS, &counts->hits);
    return true;
}

/* Our own cgroup, or the one we run in; not the root of version 2, which has no such counter. */
static void choose_counted(struct cgroup *g)
{
    struct oom_counts counts;
    for (enum cgroup_version version = CGROUP_V2; version > CGROUP_NONE; version--) {
        char mount[PATH_MAX], group[PATH_MAX];
        if (!cgroup_find_mount(version, mount) || !cgroup_find_group(version, group) ||
            !path_join(g->counted, mount, group + (group[0] == '/')))
            continue;
        g->counted_version = version;
        if (kills_of(version, g->counted, &counts))
            return;
    }
    g->counted[0] = 0;
}

bool cgroup_oom_counts(const struct supervisor *s, struct oom_counts *counts)
{
    const struct cgroup *g = &s->cgroup;
    return g->counted[0] && kills_of(g->counted_version, g->counted, counts);
}

static int enter(struct supervisor *s, struct error *error)
{
    struct cgroup *g = &s->cgroup;
    int v2 = try_version(g, CGROUP_V2);
    int rc = v2 == 0 ? 0 : try_version(g, CGROUP_V1);
    if (rc == 0) {
        log_debug("memory cgroup %s", g->path);
        return 0;
    }
    if (strcmp(s->params.cgroup, "require") != 0) {
        log_debug("no memory cgroup: %s", strerror(-rc));
        return 0;
    }
    return error_set_errno(error, ERR_FAILED, v2 == -ENOENT ? -rc : -v2,
                           "--cgroup require: cannot make a memory cgroup");
}

int cgroup_enter(struct supervisor *s, struct error *error)
{
    int rc = strcmp(s->params.cgroup, "off") == 0 ? 0 : enter(s, error);
    choose_counted(&s->cgroup);
    return rc;
}

bool cgroup_limit(struct supervisor *s, uint64_t bytes)
{
    struct cgroup *g = &s->cgroup;
    if (g->version == CGROUP_NONE || g->limit == bytes)
        return true;
    char text[32];
    snprintf(text, sizeof text, "%" PRIu64, bytes);
    int rc = write_file(g->path, g->version == CGROUP_V2 ? V2_LIMIT : V1_LIMIT, text);
    if (rc != 0) {
        log_warn("cannot limit %s to %" PRIu64 " bytes: %s", g->path, bytes, strerror(-rc));
        return false;
    }
    g->limit = bytes;
    return true;
}

bool cgroup_peak(const struct supervisor *s, uint64_t *usage, uint64_t *peak)
{
    const struct cgroup *g = &s->cgroup;
    if (g->version == CGROUP_NONE)
        return false;
    bool v2 = g->version == CGROUP_V2;
    *usage = *peak = 0;
    bool have_peak = read_u64(g->path, v2 ? V2_PEAK : V1_PEAK, peak); /* absent before Linux 5.19 */
    return read_u64(g->path, v2 ? V2_USAGE : V1_USAGE, usage) && (have_peak || v2);
}

void cgroup_leave(struct supervisor *s)
{
    struct cgroup *g = &s->cgroup;
    if (g->version == CGROUP_NONE)
        return;
    if (!leave(g))
        log_warn("cannot remove cgroup %s: %s", g->path, strerror(errno));
    g->version = CGROUP_NONE;
}
