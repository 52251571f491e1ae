/* SPDX-License-Identifier: Apache-2.0 */
/* CPU use of other processes during a timed test: time limits are judged on an idle machine
 * only. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "tests/harness/internal.h"

/* user + system time of a process, in ticks. */
static uint64_t process_ticks(pid_t pid)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "re");
    if (!f)
        return 0;
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = 0;
    const char *after = strrchr(text, ')');
    unsigned long user = 0, kernel = 0;
    if (!after || sscanf(after + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
                         &kernel) != 2)
        return 0;
    return user + kernel;
}

static uint64_t own_ticks(struct engine *e)
{
    uint64_t sum = process_ticks(getpid()) + process_ticks(e->pid);
    for (size_t i = 0; i < e->seen_count; i++)
        if (e->seen[i].pid != e->pid && process_id_alive(e->seen[i]))
            sum += process_ticks(e->seen[i].pid);
    return sum;
}

/* Ticks of the whole machine in which a process ran, the hypervisor's other guests included. */
static uint64_t host_ticks(void)
{
    unsigned long user = 0, nice_user = 0, kernel = 0, steal = 0;
    FILE *f = fopen("/proc/stat", "re");
    int got =
        f ? fscanf(f, "cpu %lu %lu %lu %*u %*u %*u %*u %lu", &user, &nice_user, &kernel, &steal)
          : 0;
    if (f)
        fclose(f);
    return got == 4 ? user + nice_user + kernel + steal : 0;
}

void load_start(struct load *load, struct engine *e)
{
    load->started_ns = clock_now_ns();
    load->own = own_ticks(e);
    load->machine = host_ticks();
}

double load_of_others(const struct load *load, struct engine *e)
{
    double ticks = (double)(clock_now_ns() - load->started_ns) / (double)NS_PER_S *
                   (double)sysconf(_SC_CLK_TCK) * (double)sysconf(_SC_NPROCESSORS_ONLN);
    double machine = (double)(host_ticks() - load->machine);
    double own = (double)(own_ticks(e) - load->own);
    return ticks > 0 && machine > own ? (machine - own) / ticks : 0;
}

void load_judge(const struct load *load, struct engine *e, bool kept, const char *what)
{
    double others = load_of_others(load, e);
    if (kept)
        return;
    if (others > LOAD_OTHERS_MAX)
        test_skip("%s, but other processes used %.0f %% of the CPUs: not judged", what,
                  100 * others);
    test_fail("%s (other processes used %.0f %% of the CPUs)", what, 100 * others);
}
