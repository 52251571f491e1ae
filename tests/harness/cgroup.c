#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/harness/internal.h"

#define SAMPLE_MS 10
#define V1_ROOT   "/sys/fs/cgroup/memory"
#define V2_ROOT   "/sys/fs/cgroup"

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

void cgroup_make(char path[PATH_MAX])
{
    static unsigned made;
    struct stat st;
    bool v1 = stat(V1_ROOT "/memory.usage_in_bytes", &st) == 0 ||
              stat(V1_ROOT "/memory.limit_in_bytes", &st) == 0;
    if (!v1 && stat(V2_ROOT "/cgroup.controllers", &st) != 0)
        test_skip("no memory cgroup is mounted");
    snprintf(path, PATH_MAX, "%s/sluice-test-%d-%u", v1 ? V1_ROOT : V2_ROOT, (int)getpid(), ++made);
    if (!v1)
        write_text(V2_ROOT, "cgroup.subtree_control", "+memory");
    if (mkdir(path, 0755) != 0)
        test_skip("cannot make the memory cgroup %s: %s", path, strerror(errno));
    cleanup_cgroup(path);
    char usage[PATH_MAX + 32];
    snprintf(usage, sizeof usage, "%s/%s", path, v1 ? "memory.usage_in_bytes" : "memory.current");
    if (access(usage, R_OK) != 0)
        test_skip("the memory controller is not available in %s", path);
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

/* Groups of the engine's own may lie below. */
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
    uint64_t deadline = deadline_in(2000); /* dead processes leave a little later */
    while (rmdir(path) != 0 && errno == EBUSY && deadline_tick(deadline))
        continue;
}

/* ---- sampling ---- */

struct sampler {
    char path[PATH_MAX];
    pthread_t thread;
    atomic_bool stop;
    _Atomic uint64_t peak, samples;
};

static void *sampler_thread(void *arg)
{
    struct sampler *s = arg;
    while (!atomic_load(&s->stop)) {
        uint64_t usage = cgroup_usage(s->path);
        if (usage > atomic_load(&s->peak))
            atomic_store(&s->peak, usage);
        atomic_fetch_add(&s->samples, 1);
        poll(NULL, 0, SAMPLE_MS);
    }
    return NULL;
}

struct sampler *sampler_start(const char *cgroup)
{
    struct sampler *s = calloc(1, sizeof *s);
    CHECK(s, "no memory");
    snprintf(s->path, sizeof s->path, "%s", cgroup);
    CHECK(pthread_create(&s->thread, NULL, sampler_thread, s) == 0, "no thread");
    cleanup_sampler(s);
    return s;
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

/* ---- programs nobody has in memory yet ---- */

void engine_use_fresh_programs(struct engine *e)
{
    struct command c;
    snprintf(e->libexec, sizeof e->libexec, "%s/fresh", test_dir());
    /* Written, synced, and dropped from the page cache: whoever reads them next pays for them. */
    static const char script[] =
        "mkdir -p \"$1/lib\"; cp \"$0\"/sluice-* \"$1\"\n"
        "for f in \"$1\"/sluice-*; do ldd \"$f\"; done | awk '$3 ~ /^\\// {print $3}' | sort -u |\n"
        "  while read -r l; do cp -L \"$l\" \"$1/lib\"; done\n"
        "find \"$1\" -type f | while read -r f; do\n"
        "  dd of=\"$f\" oflag=nocache conv=notrunc,fdatasync count=0 status=none; done\n";
    command_run(&c, NULL, 60000,
                (const char *const[]){"/bin/sh", "-ec", script, test_libexec(), e->libexec, NULL});
    CHECK(c.status == 0, "cannot copy the programs: %s", c.err);
    command_free(&c);
}
