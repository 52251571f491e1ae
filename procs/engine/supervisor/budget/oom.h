/* SPDX-License-Identifier: Apache-2.0 */
/* Decides which exits are the OOM killer's: its kills are counted by the kernel, for a cgroup or
 * for the machine, before the victim is sent SIGKILL. An exit by a SIGKILL that we did not send is
 * explained by a kill that no other exit has explained. Pure: the callers read counters and
 * clock. */
#ifndef SLUICE_ENGINE_SUPERVISOR_BUDGET_OOM_H
#define SLUICE_ENGINE_SUPERVISOR_BUDGET_OOM_H

#include <stdbool.h>
#include <stdint.h>

/* A kill that explains no exit of ours within this time was another process's: the counter of a
 * machine or of a container includes others. */
#define OOM_RECENT_NS (10 * 1000000000ull)

struct oom_counts {
    uint64_t kills; /* processes killed */
    uint64_t hits;  /* times that an allocation failed at the cgroup's limit; 0: not known */
};

struct oom_watch {
    struct oom_counts seen;
    uint64_t unexplained;
    uint64_t kills_ns; /* when the newest kill was seen */
    /* The limit of the cgroup was hit within OOM_RECENT_NS. One hit may end several processes, and
     * is counted before the first of them is killed. */
    bool hit;
    uint64_t hits_ns;
    bool at_limit; /* the newest kill was at that limit */
};

/* Takes kills before the start as explained. */
void oom_watch_start(struct oom_watch *w, const struct oom_counts *counts);
void oom_watch_note(struct oom_watch *w, const struct oom_counts *counts, uint64_t now_ns);
/* A process died of SIGKILL, and the counts after its exit were noted: true when a kill explains
 * it, which then explains no other exit. */
bool oom_watch_explains(struct oom_watch *w);

/* N of the line "KEY N" in a file such as memory.events or /proc/vmstat; false without the line. */
bool oom_count_parse(const char *text, const char *key, uint64_t *count);

/* oom_score_adj of a process that is to be raised by so much above `base`, at most 1000. */
int oom_score_raised(int base, unsigned raise);

#endif
