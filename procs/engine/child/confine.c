/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the sandbox rules of a child from its service and the files it needs, and applies them. */
#include "procs/engine/child/confine.h"

#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/sandbox/sandbox.h"
#include "procs/engine/child/run_cache.h"
#include "procs/engine/child/run_storage.h"

#define DEVICES_MAX     32 /* /dev/nvidia0 and so on */
#define DIRECTORIES_MAX 16 /* of LD_LIBRARY_PATH */
#define RULES_MAX       (32 + DEVICES_MAX + DIRECTORIES_MAX + 9 * RUN_SOURCES * RUN_COPIES_MAX)

struct rules {
    size_t count;
    struct sandbox_rule rule[RULES_MAX];
    char path[RULES_MAX][PATH_MAX];
};

static bool has_gpu(const struct child *child)
{
    return child->service == SERVICE_COMPUTE && child->procs.head->gpus.count > 0;
}

static bool has_cache(const struct child *child, struct run_cache *cache)
{
    const struct procs_head *head = child->procs.head;
    return run_cache(child->params, child->model, head->model_path, head->model_identity,
                     child->number, cache);
}

/* What its servers need. */
static enum sandbox_profile profile_of_loader(const struct child *child)
{
    struct run_servers servers;
    bool opens = false, tcp = false, ceph = false;
    run_servers(child->params, child->model, child->procs.head->model_path, child->number,
                &servers);
    for (uint32_t i = 0; i < servers.count; i++) {
        opens |= servers.url[i].tls || servers.url[i].credentials[0];
        ceph |= servers.url[i].backend == IO_RADOS;
        tcp |= servers.url[i].tcp;
    }
    if (has_cache(child, &(struct run_cache){.slots = 0}))
        return ceph    ? SANDBOX_LOADER_CEPH_CACHE
               : opens ? SANDBOX_LOADER_TLS_CACHE
               : tcp   ? SANDBOX_LOADER_NET_CACHE
                       : SANDBOX_LOADER_CACHE;
    if (ceph)
        return SANDBOX_LOADER_CEPH;
    return opens ? SANDBOX_LOADER_TLS : tcp ? SANDBOX_LOADER_NET : SANDBOX_LOADER;
}

static enum sandbox_profile profile_of(const struct child *child)
{
    bool files = child->params->prefix_dir[0] != 0;
    if (has_gpu(child))
        return files ? SANDBOX_COMPUTE_GPU_FILES : SANDBOX_COMPUTE_GPU;
    switch (child->service) {
    case SERVICE_LOADER: return profile_of_loader(child);
    case SERVICE_CACHE: return SANDBOX_CACHE;
    case SERVICE_PREDICTOR: return SANDBOX_PREDICTOR;
    case SERVICE_COMPUTE: return files ? SANDBOX_COMPUTE_FILES : SANDBOX_COMPUTE;
    case SERVICE_GATEWAY: return child->params->http_log[0] ? SANDBOX_GATEWAY_LOG : SANDBOX_GATEWAY;
    case SERVICE_RECORDER: return SANDBOX_RECORDER;
    case SERVICE_SUPERVISOR:
    case SERVICE__COUNT: break;
    }
    sl_panic("service %d has no sandbox", (int)child->service);
}

static void add(struct rules *r, const char *path, uint32_t access)
{
    sl_assert(r->count < RULES_MAX);
    if (!*path || strlen(path) >= PATH_MAX)
        return;
    strcpy(r->path[r->count], path);
    r->rule[r->count] = (struct sandbox_rule){r->path[r->count], access};
    r->count++;
}

/* The directory of a file, or the nearest one above it that exists: a device may be mounted
 * later. */
static void add_directory_of(struct rules *r, const char *file, uint32_t access)
{
    char path[PATH_MAX];
    if (strlen(file) >= sizeof path)
        return;
    strcpy(path, file);
    for (char *slash; (slash = strrchr(path, '/')); *slash = 0) {
        slash[slash == path] = 0;
        if (faccessat(AT_FDCWD, path, F_OK, 0) == 0) {
            add(r, path, access);
            return;
        }
        if (slash == path)
            return;
    }
    add(r, ".", access);
}

/* Directories, not files: a file that was replaced by another one is found and reported, and one
 * that returns is used again. */
static void add_copies(struct rules *r, const struct child *child)
{
    for (int source = 0; source < RUN_SOURCES; source++) {
        struct run_copies copies;
        struct error error;
        char target[PATH_MAX];
        if (run_copies(child->params, child->model, child->procs.head->model_path, child->number,
                       (enum run_source)source, &copies, &error) != 0)
            continue; /* the loader reports it */
        for (uint32_t i = 0; i < copies.count; i++) {
            if (io_url_is(copies.path[i]))
                continue;
            add_directory_of(r, copies.path[i], SANDBOX_READ);
            if (realpath(copies.path[i], target)) /* it may be a link */
                add_directory_of(r, target, SANDBOX_READ);
        }
    }
}

static void add_authorities(struct rules *r)
{
    static const char *const readable[] = SANDBOX_AUTHORITIES;
    for (size_t i = 0; i < ARRAY_LEN(readable); i++)
        add(r, readable[i], SANDBOX_READ);
}

/* Landlock knows ports, not addresses. The library reads keys for each connection. */
static void add_servers(struct rules *r, const struct child *child)
{
    struct run_servers servers;
    run_servers(child->params, child->model, child->procs.head->model_path, child->number,
                &servers);
    for (uint32_t i = 0; i < servers.count; i++) {
        const struct io_url *url = &servers.url[i];
        if (url->tcp)
            add(r, url->ports, SANDBOX_CONNECT);
        add(r, url->certificates, SANDBOX_READ);
        add(r, url->psk_file, SANDBOX_READ);
        if (url->credentials[0]) /* a file that is replaced by another one */
            add_directory_of(r, url->credentials, SANDBOX_READ);
        if (url->conf[0]) /* with keyrings, by default */
            add_directory_of(r, url->conf, SANDBOX_READ);
        if (url->backend == IO_HTTP)
            add_authorities(r);
    }
}

/* That file alone: the supervisor has made it. */
static void add_cache(struct rules *r, const struct child *child)
{
    struct run_cache cache;
    if (has_cache(child, &cache))
        add(r, cache.path, SANDBOX_FILE);
}

/* A driver names its threads, for which the C library writes a file of each thread; drivers of
 * version 570 and later report an error of the operating system if that fails. The descriptor stays
 * open, so that this directory keeps the inode of the rule. */
static void add_own_threads(struct rules *r)
{
    static const char threads[] = "/proc/self/task";
    (void)open(threads, O_PATH | O_DIRECTORY | O_CLOEXEC);
    add(r, threads, SANDBOX_DEVICE);
}

/* All of them: CUDA's numbers are not those of the files, and a driver that cannot open one has
 * other numbers. */
static void add_gpu_devices(struct rules *r)
{
    static const char *const devices[] = {"/dev/nvidiactl", "/dev/nvidia-uvm",
                                          "/dev/nvidia-uvm-tools", "/dev/nvidia-caps",
                                          "/dev/dxg" /* WSL 2 */};
    char path[64];
    for (size_t i = 0; i < ARRAY_LEN(devices); i++)
        add(r, devices[i], SANDBOX_DEVICE);
    for (int i = 0; i < DEVICES_MAX; i++) {
        snprintf(path, sizeof path, "/dev/nvidia%d", i);
        if (faccessat(AT_FDCWD, path, F_OK, 0) == 0)
            add(r, path, SANDBOX_DEVICE);
    }
}

/* Libraries of the driver, which the process opens itself. */
static void add_libraries(struct rules *r)
{
    static const char *const readable[] = {
        "/etc",       "/lib", "/lib64",     "/usr/lib",           "/usr/lib64",
        "/usr/local", "/opt", "/nix/store", "/run/opengl-driver", "/run/nvidia"};
    for (size_t i = 0; i < ARRAY_LEN(readable); i++)
        add(r, readable[i], SANDBOX_READ);
    const char *listed = getenv("LD_LIBRARY_PATH");
    char *copy = listed ? strdup(listed) : NULL, *rest = copy;
    for (int i = 0; i < DIRECTORIES_MAX && rest; i++)
        add(r, strsep(&rest, ":"), SANDBOX_READ);
    free(copy);
}

/* The driver of the GPUs, and the module with the kernels. */
static void add_gpu(struct rules *r, const struct child *child)
{
    add_directory_of(r, child->procs.head->gpus.module, SANDBOX_READ);
    add_gpu_devices(r);
    add_libraries(r);
    add(r, "/proc", SANDBOX_READ);
    add(r, "/sys", SANDBOX_READ);
    add_own_threads(r);
}

/* What the start still opens, and what the process opens later. */
static void rules_make(struct rules *r, const struct child *child)
{
    const struct params *p = child->params;
    add(r, "/dev/urandom", SANDBOX_READ);
    add(r, "/sys/devices/system/cpu", SANDBOX_READ); /* the C library counts CPUs there */
    switch (child->service) {
    case SERVICE_LOADER:
        add_copies(r, child);
        add_servers(r, child);
        add_cache(r, child);
        break;
    case SERVICE_RECORDER: add_directory_of(r, p->trace, SANDBOX_WRITE); break;
    case SERVICE_GATEWAY:
        if (p->http_log[0])
            add_directory_of(r, p->http_log, SANDBOX_WRITE);
        break;
    case SERVICE_COMPUTE:
        add(r, p->prefix_dir, SANDBOX_FILES);
        add(r, child->run_dir, SANDBOX_SOCKETS);
        break;
    case SERVICE_CACHE: add(r, child->run_dir, SANDBOX_SOCKETS); break;
    default: break;
    }
    if (has_gpu(child))
        add_gpu(r, child);
}

static bool wanted(const struct child *child)
{
    return strcmp(child->params->sandbox, "off") != 0;
}

static void must(int rc, const struct error *error)
{
    if (rc != 0)
        log_fatal(1, "%s (--sandbox off starts without it)", error->text);
}

static void publish(struct child *child, uint32_t parts)
{
    atomic_store_explicit(&child->process->sandbox, parts, memory_order_relaxed);
}

void confine_files(struct child *child)
{
    struct error error;
    uint32_t parts = 0;
    publish(child, 0);
    if (!wanted(child))
        return;
    /* Both read a file at their first use. */
    tzset();
    json_object_seed(0);
    struct rules *rules = calloc(1, sizeof *rules);
    if (!rules)
        log_fatal(1, "out of memory (sandbox)");
    rules_make(rules, child);
    must(sandbox_files(rules->rule, rules->count, &parts, &error), &error);
    free(rules);
    publish(child, parts);
}

static void keep_violation(const char *text, void *arg)
{
    struct process *process = arg;
    size_t n = strnlen(text, PROCS_MESSAGE_BYTES - 1);
    memcpy(process->exit_message, text, n);
    process->exit_message[n] = 0;
}

void confine_calls(struct child *child)
{
    struct error error;
    uint32_t parts = atomic_load_explicit(&child->process->sandbox, memory_order_relaxed);
    char text[SANDBOX_TEXT_BYTES];
    if (!wanted(child))
        return;
    must(sandbox_calls(profile_of(child), keep_violation, child->process, &parts, &error), &error);
    publish(child, parts);
    if (strcmp(child->params->sandbox, "require") == 0 && (parts & SANDBOX_ALL) != SANDBOX_ALL)
        log_fatal(2, "--sandbox require: the kernel provides only %s", sandbox_text(parts, text));
}
