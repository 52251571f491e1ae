/* SPDX-License-Identifier: Apache-2.0 */
/* Storage devices: their parameters, the copies of each loader, and which copies are in quarantine
 * (procs/engine/child/run_storage.h). */
#include "config/storage.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/assert.h"
#include "lib/base/log.h"
#include "lib/io/server/address.h"
#include "lib/model/limits.h"
#include "procs/engine/child/run_storage.h"
#include "procs/engine/supervisor/start/start.h"
#include "procs/engine/supervisor/supervisor.h"

#define SERVER_PROGRAM "sluice-loader-%s" /* module of its row in lib/io/backends.tbl.h */

_Static_assert(PARAM_TEXT_BYTES == IO_URL_TEXT_BYTES, "a parameter has a URL");

/* ---- servers --------------------------------------------------------------------------------- */

/* Where the URL of a device is in the parameter. */
static size_t place_of(const struct params *p, uint32_t device, bool mirror)
{
    const char *at = p->devices;
    for (uint32_t i = 0; i < device; i++)
        at += strcspn(at, ",") + 1;
    if (mirror) {
        at = strstr(at, ":mirror=");
        sl_assert(at != NULL);
        at += strlen(":mirror=");
    }
    return (size_t)(at - p->devices);
}

static int find_program(struct supervisor *s, const char *url, const struct io_url *parsed,
                        struct error *error)
{
    char program[PATH_MAX + 64];
    const char *module = io_backend_info(parsed->backend)->module;
    snprintf(program, sizeof program, "%s/" SERVER_PROGRAM, s->programs, module);
    if (access(program, X_OK) != 0)
        return error_set(error, ERR_BAD_INPUT,
                         "%.200s: %s is not there; it is in the package sluice-%s, and is built "
                         "where the library of it is installed",
                         url, program, module);
    return 0;
}

int storage_address(struct supervisor *s, const char *url, char to[PARAM_TEXT_BYTES],
                    struct error *error)
{
    struct io_url parsed;
    if (io_url_parse(url, &parsed, error) != 0 || find_program(s, url, &parsed, error) != 0)
        return -1;
    return io_address_complete(url, to, error);
}

/* The parameter is read again after each change, which makes it longer. */
static int servers_take(struct supervisor *s, uint32_t device, struct error *error)
{
    struct storage_paths paths;
    char numeric[PARAM_TEXT_BYTES];
    for (int mirror = 0; mirror < 2; mirror++) {
        if (storage_take(&s->params, device, &s->storage, &paths, error) != 0)
            return -1;
        const char *path = mirror ? paths.mirror : paths.path;
        if (!io_url_is(path))
            continue;
        if (storage_address(s, path, numeric, error) != 0 ||
            io_address_put(s->params.devices, path, place_of(&s->params, device, mirror),
                           strlen(path), numeric, error) != 0)
            return -1;
    }
    return 0;
}

const struct io_backend_info *storage_server(const struct supervisor *s, uint32_t loader)
{
    struct run_servers servers;
    run_servers(&s->params, s->model, s->options.model, loader, &servers);
    return servers.count > 0 ? io_backend_info(servers.url[0].backend) : NULL;
}

const char *storage_program(const struct supervisor *s, enum service service, uint32_t number)
{
    static char program[64]; /* of the main thread, which starts processes */
    const struct io_backend_info *server =
        service == SERVICE_LOADER ? storage_server(s, number) : NULL;
    if (!server)
        return service_info(service)->program;
    snprintf(program, sizeof program, SERVER_PROGRAM, server->module);
    return program;
}

bool storage_needs_secrets(const struct supervisor *s, enum service service, uint32_t number)
{
    struct run_servers servers;
    if (service != SERVICE_LOADER)
        return false;
    run_servers(&s->params, s->model, s->options.model, number, &servers);
    for (uint32_t i = 0; i < servers.count; i++)
        if (servers.url[i].s3 && !servers.url[i].credentials[0])
            return true;
    return false;
}

/* Of those that its program has the library of: threads, and private memory or that of sockets. */
static uint64_t bytes_of(const struct supervisor *s, uint32_t loader, bool sockets,
                         uint32_t *threads)
{
    struct run_servers servers;
    uint64_t bytes = 0;
    *threads = 0;
    run_servers(&s->params, s->model, s->options.model, loader, &servers);
    for (uint32_t i = 0; i < servers.count; i++) {
        const struct io_backend_info *info = io_backend_info(servers.url[i].backend);
        if (servers.url[i].backend != servers.url[0].backend)
            continue;
        *threads += info->threads;
        bytes += !sockets ? info->private_bytes : servers.url[i].tcp ? info->socket_bytes : 0;
    }
    return bytes;
}

uint64_t storage_server_bytes(const struct supervisor *s, uint32_t loader)
{
    uint32_t threads;
    return bytes_of(s, loader, false, &threads) + s->device_cache_bytes[loader];
}

uint32_t storage_server_threads(const struct supervisor *s, uint32_t loader)
{
    uint32_t threads;
    (void)bytes_of(s, loader, false, &threads);
    return threads;
}

uint64_t storage_socket_bytes(const struct supervisor *s)
{
    uint64_t bytes = 0;
    uint32_t threads;
    for (uint32_t loader = 0; loader < s->params.loaders; loader++)
        bytes += bytes_of(s, loader, true, &threads);
    return bytes;
}

bool storage_uses_tcp(const struct supervisor *s)
{
    struct run_servers servers;
    for (uint32_t loader = 0; loader < s->params.loaders; loader++) {
        run_servers(&s->params, s->model, s->options.model, loader, &servers);
        for (uint32_t i = 0; i < servers.count; i++)
            if (servers.url[i].tcp)
                return true;
    }
    return false;
}

/* ---- devices --------------------------------------------------------------------------------- */

int storage_resolve(struct supervisor *s, struct error *error)
{
    struct params *p = &s->params;
    uint32_t count = storage_count(p);
    if (count == 0)
        return device_cache_check(s, error);
    if (run_files(s->model) == 0 && p->loaders == 1 && count <= SERVICE_LOADERS_MAX)
        p->loaders = count;
    if (count != p->loaders)
        return error_set(error, ERR_BAD_INPUT,
                         "--devices names %" PRIu32 " devices for %" PRIu64
                         " loaders; give one for each",
                         count, p->loaders);
    for (uint32_t i = 0; i < count; i++)
        if (servers_take(s, i, error) != 0)
            return -1;
    return device_cache_check(s, error);
}

const struct params *storage_params(struct supervisor *s, uint32_t loader)
{
    struct error error;
    int rc = storage_take(&s->params, loader, &s->storage, NULL, &error);
    sl_assert(rc == 0); /* storage_resolve checked all of them */
    return &s->storage;
}

static void add_quarantined(json_t *list, uint32_t loader, const char *path, uint32_t word)
{
    char line[MODEL_PATH_BYTES + 128];
    snprintf(line, sizeof line, "loader.%" PRIu32 " %s: %s", loader, path,
             run_errno_text(quarantine_errno(word)));
    json_t *text = json_string(line); /* NULL when a path is not UTF-8 */
    json_array_append_new(list, text ? text : json_string("?"));
}

json_t *storage_quarantined(const struct supervisor *s)
{
    json_t *list = json_array();
    for (uint32_t loader = 0; loader < s->params.loaders; loader++) {
        uint32_t word =
            atomic_load_explicit(&s->directory.head->quarantined[loader], memory_order_acquire);
        for (uint32_t source = 0; source < RUN_SOURCES && word != 0; source++) {
            struct run_copies copies;
            struct error error;
            if (run_copies(&s->params, s->model, s->options.model, loader, (enum run_source)source,
                           &copies, &error) != 0)
                continue;
            for (uint32_t i = 0; i < copies.count; i++)
                if (word & quarantine_bit((enum run_source)source, i))
                    add_quarantined(list, loader, copies.path[i], word);
        }
        if (word & QUARANTINE_CACHE)
            add_quarantined(list, loader, "its cache", word);
    }
    return list;
}

void storage_clear_quarantine(struct supervisor *s, struct child_record *c)
{
    if (c->service != SERVICE_LOADER || !c->clear_quarantine)
        return;
    c->clear_quarantine = false;
    const struct directory_file *first =
        &s->directory.head->files[c->number][run_file_index(RUN_EXPERTS, 0)];
    if (atomic_load(&first->identity) == 0)
        device_cache_empty(s, c->number);
    for (uint32_t i = 0; i < DIRECTORY_FILES_MAX; i++) /* what its servers have now is right */
        atomic_store(&s->directory.head->files[c->number][i].identity, 0);
    _Atomic uint32_t *word = &s->directory.head->quarantined[c->number];
    uint32_t before = atomic_load_explicit(word, memory_order_relaxed);
    uint32_t left = files_renew(s, c->number, before);
    if (left != 0)
        left |= (uint32_t)quarantine_errno(before) << QUARANTINE_ERRNO_SHIFT;
    atomic_store_explicit(word, left, memory_order_release);
    if (before != 0)
        log_info("loader.%" PRIu32 " replaced: the quarantine of its devices is %s", c->number,
                 left ? "cleared in part" : "cleared");
}
