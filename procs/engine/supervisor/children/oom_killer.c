/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's OOM killer: the order in which it takes our processes, and whose exit it caused.
 *
 * It takes the process with the highest sum of resident pages, in thousandths of the memory of the
 * machine or cgroup, and oom_score_adj. compute and the loaders map the arena, so that they would
 * be first although their exit frees none of it. Every child is raised above the score that the
 * supervisor was started with (column oom of config/services.tbl.h). That needs no privilege.
 * Lowering does (CAP_SYS_RESOURCE): where it is permitted the supervisor, whose exit ends the
 * engine, goes below that score. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "procs/engine/supervisor/budget/budget.h"
#include "procs/engine/supervisor/children/children.h"
#include "procs/engine/supervisor/supervisor.h"
#include "shm/table/counters.h"

#define SCORE_MIN     (-999) /* -1000 exempts a process: nothing might be left to kill */
#define SCORE_LOWERED 500
#define INSPECT_RAISE 1000
#define VMSTAT_BYTES  (32 * 1024)

static int score_file(pid_t pid, int flags)
{
    char path[48];
    snprintf(path, sizeof path, "/proc/%d/oom_score_adj", (int)pid);
    return open(path, flags | O_CLOEXEC);
}

static int score_read(pid_t pid, int *score)
{
    char text[16] = "";
    int fd = score_file(pid, O_RDONLY);
    if (fd < 0)
        return -errno;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0)
        return -EIO;
    *score = (int)strtol(text, NULL, 10);
    return 0;
}

static int score_write(pid_t pid, int score)
{
    char text[16];
    int n = snprintf(text, sizeof text, "%d", score), fd = score_file(pid, O_WRONLY);
    if (fd < 0)
        return -errno;
    int rc = write(fd, text, (size_t)n) == n ? 0 : -errno;
    close(fd);
    return rc;
}

void oom_score_child(const struct supervisor *s, pid_t pid, const struct service_info *info)
{
    int rc = score_write(pid, oom_score_raised(s->oom.score, info ? info->oom : INSPECT_RAISE));
    if (rc != 0) /* it has exited, or /proc is read-only */
        log_debug("cannot set oom_score_adj of process %d: %s", (int)pid, strerror(-rc));
}

/* ---- whose exit ---- */

static void counts_of_machine(struct oom_counts *counts)
{
    static char text[VMSTAT_BYTES];
    *counts = (struct oom_counts){0};
    int fd = open("/proc/vmstat", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    size_t have = 0;
    for (ssize_t n;
         have < sizeof text - 1 && (n = read(fd, text + have, sizeof text - 1 - have)) > 0;)
        have += (size_t)n;
    close(fd);
    text[have] = 0;
    oom_count_parse(text, "oom_kill", &counts->kills);
}

static void counts_read(const struct supervisor *s, struct oom_counts *counts)
{
    if (!cgroup_oom_counts(s, counts))
        counts_of_machine(counts);
}

void oom_open(struct supervisor *s)
{
    struct oom_counts counts;
    int rc = score_read(getpid(), &s->oom.score);
    int lowered = s->oom.score - SCORE_LOWERED;
    if (rc == 0)
        rc = score_write(getpid(), lowered > SCORE_MIN ? lowered : SCORE_MIN);
    if (rc != 0)
        log_debug("oom_score_adj of the supervisor stays %d: %s", s->oom.score, strerror(-rc));
    counts_read(s, &counts);
    oom_watch_start(&s->oom.watch, &counts);
}

static void note(struct supervisor *s, uint64_t now_ns)
{
    struct oom_counts counts;
    counts_read(s, &counts);
    oom_watch_note(&s->oom.watch, &counts, now_ns);
}

void oom_tick(struct supervisor *s, uint64_t now_ns)
{
    if (now_ns < s->oom.next_ns)
        return;
    s->oom.next_ns = now_ns + NS_PER_S;
    note(s, now_ns);
}

const char *oom_killed(struct supervisor *s)
{
    note(s, clock_now_ns());
    if (!oom_watch_explains(&s->oom.watch))
        return NULL;
    if (s->process) /* NULL before the process table exists */
        counter_add(s->process, CTR_SUPERVISOR_oom_kills, 1);
    if (!s->cgroup.counted[0])
        return "killed by the OOM killer: the machine ran out of memory";
    return s->oom.watch.at_limit ? "killed by the OOM killer at the memory limit of its cgroup"
                                 : "killed by the OOM killer: no memory outside of its cgroup";
}
