/* SPDX-License-Identifier: Apache-2.0 */
/* System facts without measurement: CPUs, memory, instruction sets, io_uring, cgroups, /dev/shm,
 * limits. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/io/io.h"
#include "lib/kernels/kernels.h"
#include "lib/memory/available.h"
#include "lib/sandbox/sandbox.h"
#include "lib/tunings/tunings.h"
#include "procs/tools/doctor/doctor.h"

#define FREED_LISTS_MANY (64 * MIB)
#define STREAM_BYTES_MIN (256 * MIB)

unsigned host_cpus(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? (unsigned)CPU_COUNT(&set) : 1;
}

/* The text after the colon of the first line that starts with `key` (key "": the first line). "" if
 * none. */
static void line_of(const char *path, const char *key, char *out, size_t bytes)
{
    char line[4096]; /* the flags of a CPU are one line */
    FILE *f = fopen(path, "re");
    *out = 0;
    while (f && fgets(line, sizeof line, f)) {
        if (strncmp(line, key, strlen(key)) != 0)
            continue;
        line[strcspn(line, "\n")] = 0;
        const char *from = *key ? strchr(line, ':') : line;
        from = from ? from + (*key ? 1 : 0) : "";
        snprintf(out, bytes, "%s", from + strspn(from, " \t"));
        break;
    }
    if (f)
        fclose(f);
}

static uint64_t meminfo(const char *key)
{
    char text[64];
    line_of("/proc/meminfo", key, text, sizeof text);
    return strtoull(text, NULL, 10) * KIB;
}

/* The first CPU of each shared cache counts its size. */
uint64_t host_cache_bytes(void)
{
    uint64_t bytes = 0;
    char path[96], text[64];
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/cache/index3/shared_cpu_list",
                 cpu);
        line_of(path, "", text, sizeof text);
        if (*text && strtol(text, NULL, 10) == cpu) {
            snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/cache/index3/size", cpu);
            line_of(path, "", text, sizeof text);
            bytes += strtoull(text, NULL, 10) * KIB; /* "32768K" */
        }
    }
    return bytes;
}

uint64_t host_available_bytes(void)
{
    uint64_t bytes = memory_available();
    return bytes < UINT64_MAX ? bytes : 0;
}

uint64_t host_stream_bytes(void)
{
    uint64_t wanted = 4 * host_cache_bytes(), most = host_available_bytes() / 4;
    wanted = wanted > STREAM_BYTES_MIN ? wanted : STREAM_BYTES_MIN;
    wanted = wanted < most ? wanted : most;
    return align_down(wanted > 16 * MIB ? wanted : 16 * MIB, PAGE_BYTES);
}

static void size_finding(struct findings *f, const char *section, const char *name, uint64_t bytes,
                         const char *meaning)
{
    char text[16];
    finding(f, section, name, json_integer((json_int_t)bytes), bytes_format(bytes, text), "%s",
            meaning);
}

static void examine_processors(struct findings *f)
{
    char text[64];
    struct utsname system;
    char name[TUNINGS_CPU_BYTES];
    tunings_cpu(name);
    finding(f, "cpu", "model", json_string(*name ? name : "unknown"), NULL, "%s", "");
    finding(f, "cpu", "cpus", json_integer(host_cpus()), NULL,
            "CPUs this process may use: the default of --threads");
    line_of("/proc/cpuinfo", "cpu MHz", text, sizeof text);
    if (*text) /* not of ARM */
        finding(f, "cpu", "mhz", json_real(strtod(text, NULL)), NULL,
                "current clock rate; decoding scales with it up to the memory bandwidth");
    size_finding(f, "cpu", "cache", host_cache_bytes(),
                 "of the last level, all together; memory is measured over four times as much");
    if (uname(&system) == 0)
        finding(f, "cpu", "kernel", json_string(system.release), NULL, "%s", "");
}

static void examine_kernels(struct findings *f)
{
    for (int i = 0; i < ISA__COUNT; i++) {
        finding(f, "instructions", kernel_isa_name((uint64_t)i),
                json_boolean(kernel_ops_of((enum kernel_isa)i) != NULL), NULL, "%s",
                kernel_isa_meaning((uint64_t)i));
    }
    finding(f, "instructions", "chosen", json_string(kernel_ops_select(NULL)->name), NULL,
            "used with --isa auto");
}

/* Maximum size of the kernel's per-CPU lists of freed pages, which are in order of freeing; since
 * Linux 6.7 up to 1/8 of the memory. 0: an older kernel, or not reported. */
static uint64_t freed_lists_bytes(void)
{
    char line[128];
    uint64_t max = 0, pages;
    FILE *f = fopen("/proc/zoneinfo", "re");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, " high_max: %" SCNu64, &pages) == 1 && pages > max)
            max = pages;
    if (f)
        fclose(f);
    return max * (uint64_t)sysconf(_SC_PAGESIZE);
}

static bool is_virtual(void)
{
    char text[4096];
    line_of("/proc/cpuinfo", "flags", text, sizeof text);
    return strstr(text, " hypervisor") != NULL;
}

static void examine_memory(struct findings *f, struct host_facts *facts)
{
    struct statvfs fs;
    char text[64];
    finding(f, "memory", "page_bytes", json_integer(sysconf(_SC_PAGESIZE)), NULL,
            "an engine starts with %u only", PAGE_BYTES);
    size_finding(f, "memory", "total", meminfo("MemTotal"), "");
    size_finding(f, "memory", "available", host_available_bytes(), "--budget 0 uses half of it");
    size_finding(f, "memory", "swap", meminfo("SwapTotal"),
                 "an engine must not be swapped out: keep the budget below the available memory");
    facts->swap = meminfo("SwapTotal") > 0;
    if (statvfs("/dev/shm", &fs) == 0) {
        facts->shm_free = (uint64_t)fs.f_bavail * fs.f_frsize;
        size_finding(f, "memory", "dev_shm", (uint64_t)fs.f_blocks * fs.f_frsize,
                     "contains arena and KV cache: a larger budget fails");
        size_finding(f, "memory", "dev_shm_free", (uint64_t)fs.f_bavail * fs.f_frsize,
                     "free space of it");
    } else {
        finding(f, "memory", "dev_shm", json_null(), "missing", "required to start an engine");
    }
    line_of("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "", text, sizeof text);
    char *chosen = strchr(text, '['); /* "always [never] deny" */
    if (chosen)
        chosen[strcspn(chosen, "]")] = 0;
    finding(f, "memory", "shmem_huge_pages", json_string(chosen ? chosen + 1 : "unknown"), NULL,
            "not relevant: sluice requests huge pages itself (--huge-pages)");
    size_finding(
        f, "memory", "freed_lists", freed_lists_bytes(),
        "maximum per CPU: an engine gets these non-contiguous pages first; virtual storage "
        "devices read slower into them");
    facts->freed_pages = is_virtual() && freed_lists_bytes() >= FREED_LISTS_MANY;
}

static void examine_uring(struct findings *f, struct host_facts *facts)
{
    struct error error;
    int fd;
    char text[16];
    struct io *io = io_backend_uring.open(&(struct io_source){.depth = 8}, &fd, &error);
    if (io)
        io_backend_uring.close(io);
    facts->io_uring = io != NULL;
    line_of("/proc/sys/kernel/io_uring_disabled", "", text, sizeof text);
    finding(f, "reading", "io_uring", json_boolean(io != NULL), NULL, "%s",
            io ? "used with --backend auto" : error.text);
    if (*text)
        finding_quiet(f, "reading", "io_uring_disabled", json_integer(strtol(text, NULL, 10)));
    finding(f, "reading", "pread", json_true(), NULL,
            "used if io_uring is not available: blocking threads");
}

static void limit_finding(struct findings *f, const char *name, int which, bool bytes,
                          const char *meaning)
{
    struct rlimit limit;
    char text[32];
    if (getrlimit((__rlimit_resource_t)which, &limit) != 0)
        return;
    if (limit.rlim_cur == RLIM_INFINITY)
        snprintf(text, sizeof text, "unlimited");
    else if (bytes)
        bytes_format(limit.rlim_cur, text);
    else
        snprintf(text, sizeof text, "%llu", (unsigned long long)limit.rlim_cur);
    finding(f, "limits", name,
            limit.rlim_cur == RLIM_INFINITY ? json_null()
                                            : json_integer((json_int_t)limit.rlim_cur),
            text, "%s", meaning);
}

static void examine_sandbox(struct findings *f)
{
    unsigned landlock;
    uint32_t parts = sandbox_available(&landlock);
    bool all = (parts & SANDBOX_ALL) == SANDBOX_ALL && !sandbox_disabled();
    finding(f, "sandbox", "seccomp", json_boolean((parts & SANDBOX_SECCOMP) != 0), NULL,
            "restricts the system calls of each process");
    finding(f, "sandbox", "landlock", json_integer(landlock), NULL,
            "version; 0: none. Restricts files, from 4 on also TCP");
    finding(f, "sandbox", "complete", json_boolean(all), NULL, "%s",
            all ? "--sandbox auto is in effect completely"
                : "parts of --sandbox are not available here; --sandbox require fails at start");
}

static void examine_limits(struct findings *f)
{
    limit_finding(f, "memlock", RLIMIT_MEMLOCK, true,
                  "old kernels count io_uring rings; sluice locks no memory");
    limit_finding(f, "nofile", RLIMIT_NOFILE, false,
                  "one per client connection; 1024 is enough for one engine");
    limit_finding(f, "nproc", RLIMIT_NPROC, false,
                  "counts the threads of all processes of this user");
}

/* ---- cgroups ---- */

/* Mount point of the memory controller of that cgroup version; "" if none. */
static void find_mount(int version, char out[PATH_MAX])
{
    char line[2 * PATH_MAX], where[PATH_MAX], type[64], options[512];
    FILE *f = fopen("/proc/self/mounts", "re");
    *out = 0;
    while (f && !*out && fgets(line, sizeof line, f)) {
        if (sscanf(line, "%*s %4095s %63s %511s", where, type, options) != 3)
            continue;
        if (version == 2 ? strcmp(type, "cgroup2") == 0
                         : strcmp(type, "cgroup") == 0 && strstr(options, ",memory"))
            snprintf(out, PATH_MAX, "%s", where);
    }
    if (f)
        fclose(f);
}

/* The cgroup directory of this process in that hierarchy. */
static bool own_group(int version, char out[PATH_MAX])
{
    char mount[PATH_MAX], line[PATH_MAX + 128];
    find_mount(version, mount);
    FILE *f = *mount ? fopen("/proc/self/cgroup", "re") : NULL;
    bool found = false;
    while (f && !found && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        char *controllers = strchr(line, ':');
        char *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group)
            continue;
        *group++ = 0;
        found = version == 2 ? strncmp(line, "0:", 2) == 0 : strstr(controllers, "memory") != NULL;
        if (found)
            found =
                snprintf(out, PATH_MAX, "%s%s", mount, strcmp(group, "/") ? group : "") < PATH_MAX;
    }
    if (f)
        fclose(f);
    return found;
}

/* Whether a child group with a memory limit can be created; removes it. */
static bool can_make_group(int version, const char *parent, const char **why)
{
    char child[PATH_MAX], limit[PATH_MAX];
    *why = "cannot create a group (no permission)";
    if (snprintf(child, sizeof child, "%s/sluice-doctor-%ld", parent, (long)getpid()) >=
            (int)sizeof child ||
        mkdir(child, 0755) != 0)
        return false;
    int n = snprintf(limit, sizeof limit, "%s/%s", child,
                     version == 2 ? "memory.max" : "memory.limit_in_bytes");
    bool fine = n < (int)sizeof limit && access(limit, W_OK) == 0;
    *why = fine ? "" : "groups can be created, but the memory controller is not delegated";
    rmdir(child);
    return fine;
}

static void examine_cgroups(struct findings *f)
{
    bool any = false;
    for (int version = 2; version >= 1; version--) {
        char group[PATH_MAX], name[16];
        const char *why = "not mounted";
        bool there = own_group(version, group);
        bool fine = there && can_make_group(version, group, &why);
        any = any || fine;
        snprintf(name, sizeof name, "v%d", version);
        finding(f, "cgroup", name, json_boolean(fine), fine ? "usable" : "not usable", "%s",
                fine ? "a memory cgroup can be created" : why);
    }
    finding(f, "cgroup", "hard_limit", json_boolean(any), NULL, "%s",
            any ? "--cgroup auto runs the engine in a cgroup limited to the budget"
                : "only the ledger enforces the budget; --cgroup require fails at start");
}

void host_examine(struct findings *f, struct host_facts *facts)
{
    examine_processors(f);
    examine_kernels(f);
    examine_memory(f, facts);
    examine_uring(f, facts);
    examine_sandbox(f);
    examine_limits(f);
    examine_cgroups(f);
}
