/* SPDX-License-Identifier: Apache-2.0 */
/* Storage devices: their parameters, the copies of each loader, and which copies are in quarantine
 * (procs/engine/child/run_storage.h). */
#include "config/storage.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/assert.h"
#include "lib/base/log.h"
#include "lib/model/limits.h"
#include "procs/engine/child/run_storage.h"
#include "procs/engine/supervisor/start/start.h"
#include "procs/engine/supervisor/supervisor.h"

#define SERVER_PROGRAM "sluice-loader-%s" /* module of its row in lib/io/backends.tbl.h */

/* ---- servers --------------------------------------------------------------------------------- */

/* Puts a text into a list of URLs, in place of `removed` bytes. */
static int put(char list[PARAM_TEXT_BYTES], const char *url, size_t at, size_t removed,
               const char *text, struct error *error)
{
    char before[PARAM_TEXT_BYTES];
    memcpy(before, list, sizeof before);
    int n = snprintf(list, sizeof before, "%.*s%s%s", (int)at, before, text, before + at + removed);
    if (n < 0 || (size_t)n >= sizeof before)
        return error_set(error, ERR_BAD_INPUT, "too long with '%.100s': %.200s", text, url);
    return 0;
}

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

static int resolve_host(const char *url, const struct io_url *parsed,
                        char address[INET6_ADDRSTRLEN], bool *six, struct error *error)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    int rc = getaddrinfo(parsed->host, NULL, &hints, &found);
    if (rc == 0) {
        rc = getnameinfo(found->ai_addr, found->ai_addrlen, address, INET6_ADDRSTRLEN, NULL, 0,
                         NI_NUMERICHOST);
        *six = found->ai_family == AF_INET6;
        freeaddrinfo(found);
    }
    return rc == 0 ? 0
                   : error_set(error, ERR_BAD_INPUT, "%.200s: the host %.100s: %s", url,
                               parsed->host, gai_strerror(rc));
}

/* A process with a sandbox cannot ask for an address. Network block devices get it in place of
 * their host; web servers as a setting, because requests and certificates have the name. */
static int put_address(char list[PARAM_TEXT_BYTES], const char *url, const struct io_url *parsed,
                       struct error *error)
{
    char address[INET6_ADDRSTRLEN], text[INET6_ADDRSTRLEN + 16];
    bool six = false;
    if (!parsed->tcp || !parsed->host[0] || io_url_numeric(parsed) || parsed->address[0])
        return 0;
    if (parsed->backend == IO_NBD && parsed->certificates[0])
        return error_set(error, ERR_BAD_INPUT,
                         "%.200s: with TLS, give the address in numbers, and let the certificate "
                         "of the server name it",
                         url);
    if (resolve_host(url, parsed, address, &six, error) != 0)
        return -1;
    if (parsed->backend == IO_NBD) {
        snprintf(text, sizeof text, six ? "[%s]" : "%s", address);
        return put(list, url, parsed->host_at, parsed->host_bytes, text, error);
    }
    snprintf(text, sizeof text, "%caddress=%s", parsed->separator, address);
    return put(list, url, strlen(url), 0, text, error);
}

/* NULL: it is not there, or empty, which is the same to other programs. */
static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

/* Of S3, where nothing else is given: the file that other programs read, too. */
static int put_credentials(char list[PARAM_TEXT_BYTES], const char *url,
                           const struct io_url *parsed, struct error *error)
{
    char path[PATH_MAX], text[3 * PATH_MAX + 32];
    const char *home = variable("HOME"), *named = variable("AWS_SHARED_CREDENTIALS_FILE");
    if (!parsed->s3 || parsed->credentials[0] || variable("AWS_ACCESS_KEY_ID"))
        return 0;
    if (!named && !home)
        return 0;
    int n =
        snprintf(path, sizeof path, "%s%s", named ? named : home, named ? "" : "/.aws/credentials");
    if (n < 0 || (size_t)n >= sizeof path || access(path, R_OK) != 0)
        return 0;
    n = snprintf(text, sizeof text, "%ccredentials=", parsed->separator);
    io_url_encode(path, text + n); /* ',' and ':' end an item of --devices */
    return put(list, url, strlen(url), 0, text, error);
}

/* Of Ceph, where nothing else is given: the file that its programs read, too. */
static int put_conf(char list[PARAM_TEXT_BYTES], const char *url, const struct io_url *parsed,
                    struct error *error)
{
    char text[3 * PATH_MAX + 32];
    const char *named = variable("CEPH_CONF"), *path = named ? named : "/etc/ceph/ceph.conf";
    if (parsed->backend != IO_RADOS || parsed->conf[0])
        return 0;
    if (strlen(path) >= PATH_MAX || access(path, R_OK) != 0)
        return error_set_errno(error, ERR_BAD_INPUT, errno, "%.200s: %.200s (conf= names another)",
                               url, path);
    int n = snprintf(text, sizeof text, "%cconf=", parsed->separator);
    io_url_encode(path, text + n);
    return put(list, url, strlen(url), 0, text, error);
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
    char whole[PARAM_TEXT_BYTES];
    if (io_url_parse(url, &parsed, error) != 0 || find_program(s, url, &parsed, error) != 0)
        return -1;
    memset(to, 0, PARAM_TEXT_BYTES);
    if (put(to, url, 0, 0, url, error) != 0 || put_credentials(to, url, &parsed, error) != 0 ||
        put_conf(to, url, &parsed, error) != 0)
        return -1;
    memcpy(whole, to, sizeof whole);
    if (io_url_parse(whole, &parsed, error) != 0)
        return -1;
    return put_address(to, whole, &parsed, error);
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
            put(s->params.devices, path, place_of(&s->params, device, mirror), strlen(path),
                numeric, error) != 0)
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
