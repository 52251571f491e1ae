/* SPDX-License-Identifier: Apache-2.0 */
/* Counters and processes of an engine from its process table, which this process maps read-only: a
 * test that polls one number costs neither the supervisor nor itself a call of `stats`. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shm/table/process_table.h"
#include "tests/harness/internal.h"

#define READY_MS  60000
#define AGREE_MS  5000
#define MOVED_MAX 20 /* counters of an idle engine during a call of `stats` */

struct engine_table {
    struct procs procs;
};

/* Whether it is the descriptor of a process table. */
static bool is_table(int fd)
{
    struct segment_head head;
    return pread(fd, &head, sizeof head, 0) == sizeof head && head.magic == SEGMENT_MAGIC &&
           head.kind == SEGMENT_PROCS;
}

/* Segments have no names: the supervisor's descriptor of the table. -1: it has none, or ended. */
static int open_table(pid_t supervisor)
{
    static const char prefix[] = "/dev/shm/sluice.";
    char path[64], target[sizeof prefix];
    snprintf(path, sizeof path, "/proc/%d/fd", (int)supervisor);
    DIR *dir = opendir(path);
    int found = -1;
    for (struct dirent *entry; dir && found < 0 && (entry = readdir(dir));) {
        ssize_t n = readlinkat(dirfd(dir), entry->d_name, target, sizeof target - 1);
        if (n != sizeof target - 1 || memcmp(target, prefix, sizeof target - 1) != 0)
            continue;
        found = openat(dirfd(dir), entry->d_name, O_RDONLY | O_CLOEXEC);
        if (found >= 0 && !is_table(found)) {
            close(found);
            found = -1;
        }
    }
    if (dir)
        closedir(dir);
    return found;
}

static void check_runs(const struct engine *e)
{
    siginfo_t info = {0};
    CHECK(e->pid > 0 && waitid(P_PID, (id_t)e->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
              info.si_pid == 0,
          "the engine has ended");
}

/* The rows of the running engine; records the pids of its processes. */
static const struct procs_head *table_of(struct engine *e)
{
    struct error error;
    check_runs(e);
    if (!e->table) {
        struct engine_table *table = calloc(1, sizeof *table);
        int fd = open_table(e->supervisor);
        CHECK(table, "no memory");
        CHECK(fd >= 0, "process %d has no process table: %s", (int)e->supervisor, strerror(errno));
        CHECK(procs_attach(fd, false, 0, &table->procs, &error) == 0, "%s", error.text);
        e->table = table;
    }
    const struct procs_head *head = e->table->procs.head;
    for (uint32_t i = 0; i < head->processes; i++)
        engine_saw(e, atomic_load(&head->process[i].pid));
    return head;
}

void engine_table_close(struct engine *e)
{
    if (e->table)
        segment_detach(&e->table->procs.segment);
    free(e->table);
    e->table = NULL;
}

static bool is_of(const struct process *row, const char *service)
{
    return strcmp(service_name((enum service)row->service), service) == 0;
}

/* Its number among the counters of a service. */
static unsigned number_of(enum service service, const char *counter)
{
    size_t count, i = 0;
    const struct counter_desc *table = counters_of(service, &count);
    while (i < count && strcmp(table[i].name, counter) != 0)
        i++;
    CHECK(i < count, "%s has no counter %s", service_name(service), counter);
    return (unsigned)i;
}

uint64_t engine_counter(struct engine *e, const char *service, const char *counter)
{
    const struct procs_head *head = table_of(e);
    uint64_t sum = 0;
    bool found = false;
    for (uint32_t i = 0; i < head->processes; i++) {
        const struct process *row = &head->process[i];
        if (!is_of(row, service))
            continue;
        sum += counter_get(row, number_of((enum service)row->service, counter));
        found = true;
    }
    CHECK(found, "there is no service %s", service);
    return sum;
}

void engine_wait_counter(struct engine *e, const char *service, const char *counter,
                         uint64_t at_least, unsigned ms)
{
    uint64_t deadline = deadline_in(ms), value;
    while ((value = engine_counter(e, service, counter)) < at_least)
        CHECK(deadline_tick(deadline), "%s.%s is %llu after %u ms, expected %llu", service, counter,
              (unsigned long long)value, ms, (unsigned long long)at_least);
}

/* NULL: there is none. */
static const struct process *row_of(struct engine *e, const char *service, unsigned number)
{
    const struct procs_head *head = table_of(e);
    for (uint32_t i = 0; i < head->processes; i++)
        if (is_of(&head->process[i], service) && head->process[i].number == number)
            return &head->process[i];
    return NULL;
}

/* The pid of a process that is ready; 0: it is not. Between a process and its successor the row has
 * the state of one and the pid of the other, or of none. */
static pid_t ready_pid(const struct process *row)
{
    pid_t pid = row ? atomic_load(&row->pid) : 0;
    bool ready = pid > 0 && atomic_load(&row->state) == PROC_READY;
    return ready && atomic_load(&row->pid) == pid && process_alive(pid) ? pid : 0;
}

pid_t engine_pid(struct engine *e, const char *service, unsigned number, pid_t not_pid)
{
    uint64_t deadline = deadline_in(READY_MS);
    for (;;) {
        pid_t pid = ready_pid(row_of(e, service, number));
        if (pid > 0 && pid != not_pid)
            return pid;
        CHECK(deadline_tick(deadline), "%s %u is not ready", service, number);
    }
}

uint64_t engine_restarts(struct engine *e, const char *service, unsigned number)
{
    const struct process *row = row_of(e, service, number);
    /* In this order: a successor that starts in between has a higher incarnation. */
    uint64_t counted = row ? atomic_load(&row->restarts) : 0;
    pid_t pid = row ? atomic_load(&row->pid) : 0;
    uint64_t incarnation = row ? atomic_load(&row->incarnation) : 0;
    if (incarnation == 0) /* it was never started */
        return 0;
    uint64_t with_gone = counted + !(pid > 0 && process_alive(pid));
    return with_gone > incarnation - 1 ? with_gone : incarnation - 1;
}

/* ---- the same from `stats` ---- */

struct seen {
    uint64_t pid, restarts, counters[PROCS_COUNTERS_MAX];
};

static void see(const struct procs_head *head, struct seen rows[SERVICE_PROCESSES_MAX])
{
    for (uint32_t i = 0; i < head->processes; i++) {
        rows[i].pid = (uint64_t)atomic_load(&head->process[i].pid);
        rows[i].restarts = atomic_load(&head->process[i].restarts);
        for (unsigned k = 0; k < PROCS_COUNTERS_MAX; k++)
            rows[i].counters[k] = counter_get(&head->process[i], k);
    }
}

static struct seen before[SERVICE_PROCESSES_MAX], after[SERVICE_PROCESSES_MAX];
static char difference[160]; /* the last one of `stats` */

/* Returns whether the number was the same before and after `stats`, as most are. */
static bool compare(const char *name, const char *what, uint64_t was, uint64_t is, uint64_t told)
{
    if (was == is && told != is)
        snprintf(difference, sizeof difference, "%s of %s is %llu, not %llu", what, name,
                 (unsigned long long)told, (unsigned long long)is);
    return was == is;
}

/* Returns how many of its counters moved meanwhile. */
static size_t compare_process(const struct process *row, const struct seen *was,
                              const struct seen *is, const json_t *told)
{
    size_t count, moved = 0;
    const char *name = service_name((enum service)row->service);
    const json_t *counters = json_object_get(told, "counters");
    const struct counter_desc *table = counters_of((enum service)row->service, &count);
    CHECK(json_object_size(counters) == count, "stats lack %s or its counters", name);
    compare(name, "pid", was->pid, is->pid, lookup_u64(told, "pid"));
    compare(name, "restarts", was->restarts, is->restarts, lookup_u64(told, "restarts"));
    for (size_t k = 0; k < count; k++)
        moved += !compare(name, table[k].name, was->counters[k], is->counters[k],
                          lookup_u64(counters, table[k].name));
    return moved;
}

static bool stats_agree(struct engine *e)
{
    const struct procs_head *head = table_of(e);
    size_t moved = 0;
    difference[0] = 0;
    see(head, before);
    json_t *doc = engine_stats(e);
    see(head, after);
    for (uint32_t i = 0; i < head->processes; i++) {
        const struct process *row = &head->process[i];
        const char *name = service_name((enum service)row->service);
        const json_t *told = lookup_process(doc, name, row->number);
        if (told || atomic_load(&row->incarnation) > 0) /* else a service that it does not have */
            moved += compare_process(row, &before[i], &after[i], told);
    }
    json_decref(doc);
    if (moved > MOVED_MAX)
        snprintf(difference, sizeof difference, "%zu counters of the engine moved", moved);
    return !difference[0];
}

void engine_check_stats(struct engine *e)
{
    uint64_t deadline = deadline_in(AGREE_MS);
    while (!stats_agree(e)) /* it may do something even then */
        CHECK(deadline_tick(deadline), "stats: %s", difference);
}
