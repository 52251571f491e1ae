/* SPDX-License-Identifier: Apache-2.0 */
/* Samples the memory of an engine externally: usage of its cgroup every 10 ms, or what /proc counts
 * of its processes every 20 ms. For their shares of file pages the kernel walks all pages that they
 * have mapped, which takes milliseconds: every tenth time, and when the processes are others. */
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "tests/harness/internal.h"

#define SAMPLE_MS    10
#define PROCESSES_MS 20
#define FILES_EVERY  10
#define FAMILY_MAX   64
#define SEGMENTS_MAX 64

struct sampler {
    char path[PATH_MAX]; /* of a cgroup, or "" */
    pid_t pid;           /* of a supervisor */
    pid_t family[FAMILY_MAX], family_before[FAMILY_MAX];
    size_t family_count;
    uint64_t file_bytes; /* of the family before */
    pthread_t thread;
    atomic_bool stop;
    _Atomic uint64_t peak, samples;
};

/* ---- /proc ---- */

/* The supervisor and its children, which its first thread starts. */
static void find_family(struct sampler *s)
{
    char path[64];
    int pid;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)s->pid, (int)s->pid);
    FILE *f = fopen(path, "re");
    s->family_count = 0;
    s->family[s->family_count++] = s->pid;
    while (f && s->family_count < FAMILY_MAX && fscanf(f, "%d", &pid) == 1)
        s->family[s->family_count++] = pid;
    if (f)
        fclose(f);
}

/* The sum of these fields of a process in this file of /proc. */
static uint64_t fields(pid_t pid, const char *file, const char *const keys[], size_t count)
{
    char path[64], line[256];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, file);
    FILE *f = fopen(path, "re");
    uint64_t bytes = 0;
    while (f && fgets(line, sizeof line, f))
        for (size_t i = 0; i < count; i++)
            if (strncmp(line, keys[i], strlen(keys[i])) == 0)
                bytes += strtoull(line + strlen(keys[i]), NULL, 10) * KIB;
    if (f)
        fclose(f);
    return bytes;
}

/* Private pages, without shared memory. */
static uint64_t own_bytes(pid_t pid)
{
    static const char *const keys[] = {"RssAnon:", "VmSwap:"};
    return fields(pid, "status", keys, ARRAY_LEN(keys));
}

/* The proportional share of file pages. */
static uint64_t file_bytes(pid_t pid)
{
    static const char *const key = "Pss_File:";
    return fields(pid, "smaps_rollup", &key, 1);
}

uint64_t process_private_bytes(pid_t pid)
{
    static const char *const keys[] = {"Anonymous:", "Swap:"};
    uint64_t bytes = fields(pid, "smaps_rollup", keys, ARRAY_LEN(keys));
    CHECK(bytes > 0, "cannot read smaps_rollup of process %d", (int)pid);
    return bytes;
}

/* The segments: the supervisor has one or two descriptors of each (one may be read-only). */
static uint64_t segment_bytes(pid_t pid)
{
    char path[80], target[64];
    ino_t seen[SEGMENTS_MAX];
    size_t count = 0;
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *dir = opendir(path);
    uint64_t bytes = 0;
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        struct stat st;
        snprintf(path, sizeof path, "/proc/%d/fd/%.20s", (int)pid, entry->d_name);
        ssize_t n = readlink(path, target, sizeof target - 1);
        if (n <= 0)
            continue;
        target[n] = 0;
        if (strncmp(target, "/dev/shm/", 9) != 0 || stat(path, &st) != 0)
            continue;
        size_t i = 0;
        while (i < count && seen[i] != st.st_ino)
            i++;
        if (i == count && count < SEGMENTS_MAX) {
            seen[count++] = st.st_ino;
            bytes += (uint64_t)st.st_blocks * 512;
        }
    }
    if (dir)
        closedir(dir);
    return bytes;
}

static void measure_files(struct sampler *s)
{
    s->file_bytes = 0;
    for (size_t i = 0; i < s->family_count; i++)
        s->file_bytes += file_bytes(s->family[i]);
}

static uint64_t processes_usage(struct sampler *s)
{
    memcpy(s->family_before, s->family, sizeof s->family);
    memset(s->family, 0, sizeof s->family);
    find_family(s);
    if (atomic_load(&s->samples) % FILES_EVERY == 0 ||
        memcmp(s->family_before, s->family, sizeof s->family) != 0)
        measure_files(s);
    uint64_t bytes = segment_bytes(s->pid) + s->file_bytes;
    for (size_t i = 0; i < s->family_count; i++)
        bytes += own_bytes(s->family[i]);
    return bytes;
}

/* ---- sampling ---- */

static void *sampler_thread(void *arg)
{
    struct sampler *s = arg;
    while (!atomic_load(&s->stop)) {
        uint64_t usage = s->path[0] ? cgroup_usage(s->path) : processes_usage(s);
        if (usage > atomic_load(&s->peak))
            atomic_store(&s->peak, usage);
        atomic_fetch_add(&s->samples, 1);
        poll(NULL, 0, s->path[0] ? SAMPLE_MS : PROCESSES_MS);
    }
    return NULL;
}

static struct sampler *start(const char *cgroup, pid_t pid)
{
    struct sampler *s = calloc(1, sizeof *s);
    CHECK(s, "no memory");
    snprintf(s->path, sizeof s->path, "%s", cgroup);
    s->pid = pid;
    CHECK(pthread_create(&s->thread, NULL, sampler_thread, s) == 0, "no thread");
    cleanup_sampler(s);
    return s;
}

struct sampler *sampler_start(const char *cgroup)
{
    return start(cgroup, 0);
}

struct sampler *sampler_start_processes(const struct engine *e)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)e->pid, (int)e->pid);
    CHECK(access(path, R_OK) == 0, "%s: %s", path, strerror(errno));
    return start("", e->pid);
}

uint64_t sampler_peak(const struct sampler *s, uint64_t *samples)
{
    if (samples)
        *samples = atomic_load(&s->samples);
    return atomic_load(&s->peak);
}

void sampler_reset(struct sampler *s)
{
    atomic_store(&s->peak, 0);
    atomic_store(&s->samples, 0);
}

uint64_t sampler_stop(struct sampler *s)
{
    cleanup_sampler_gone(s);
    atomic_store(&s->stop, true);
    pthread_join(s->thread, NULL);
    uint64_t peak = atomic_load(&s->peak);
    free(s);
    return peak;
}
