/* SPDX-License-Identifier: Apache-2.0 */
/* Storage devices: their parameters, the copies of each loader, and which copies are in quarantine
 * (procs/engine/child/run_storage.h). */
#include "config/storage.h"

#include <inttypes.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/assert.h"
#include "lib/base/log.h"
#include "lib/model/limits.h"
#include "procs/engine/child/run_storage.h"
#include "procs/engine/supervisor/start/start.h"
#include "procs/engine/supervisor/supervisor.h"

#define SERVER_PROGRAM "sluice-loader-%s" /* scheme of its row in lib/io/backends.tbl.h */

/* ---- servers --------------------------------------------------------------------------------- */

/* The URL with this address in place of its host. */
static int put_address(const char *url, const struct io_url *parsed, const char *address,
                       char to[PARAM_TEXT_BYTES], struct error *error)
{
    int n = snprintf(to, PARAM_TEXT_BYTES, "%.*s%s%s", (int)parsed->host_at, url, address,
                     url + parsed->host_at + parsed->host_bytes);
    if (n < 0 || (size_t)n >= PARAM_TEXT_BYTES)
        return error_set(error, ERR_BAD_INPUT, "%.200s: too long with the address of its host",
                         url);
    return 0;
}

static int resolve_host(const char *url, const struct io_url *parsed, char to[PARAM_TEXT_BYTES],
                        struct error *error)
{
    char text[INET6_ADDRSTRLEN], address[INET6_ADDRSTRLEN + 2];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    int rc = getaddrinfo(parsed->host, NULL, &hints, &found);
    if (rc != 0)
        return error_set(error, ERR_BAD_INPUT, "%.200s: %s", url, gai_strerror(rc));
    rc = getnameinfo(found->ai_addr, found->ai_addrlen, text, sizeof text, NULL, 0, NI_NUMERICHOST);
    bool six = found->ai_family == AF_INET6;
    freeaddrinfo(found);
    if (rc != 0)
        return error_set(error, ERR_BAD_INPUT, "%.200s: %s", url, gai_strerror(rc));
    snprintf(address, sizeof address, six ? "[%s]" : "%s", text);
    return put_address(url, parsed, address, to, error);
}

int storage_address(struct supervisor *s, const char *url, char to[PARAM_TEXT_BYTES],
                    struct error *error)
{
    struct io_url parsed;
    char program[PATH_MAX + 64];
    if (io_url_parse(url, &parsed, error) != 0)
        return -1;
    const char *scheme = io_backend_info(parsed.backend)->scheme;
    snprintf(program, sizeof program, "%s/" SERVER_PROGRAM, s->programs, scheme);
    if (access(program, X_OK) != 0)
        return error_set(error, ERR_BAD_INPUT,
                         "%.200s: %s is not there; it is in the package sluice-%s, and is built "
                         "where the library of it is installed",
                         url, program, scheme);
    snprintf(to, PARAM_TEXT_BYTES, "%s", url);
    if (!parsed.tcp || io_url_numeric(&parsed))
        return 0;
    if (parsed.certificates[0])
        return error_set(error, ERR_BAD_INPUT,
                         "%.200s: with TLS, give the address in numbers, and let the certificate "
                         "of the server name it",
                         url);
    return resolve_host(url, &parsed, to, error);
}

/* Puts the address of a server's host into the parameter, which children read. */
static int server_take(struct supervisor *s, const char *url, struct error *error)
{
    char numeric[PARAM_TEXT_BYTES], before[PARAM_TEXT_BYTES];
    char *devices = s->params.devices;
    if (!io_url_is(url))
        return 0;
    if (storage_address(s, url, numeric, error) != 0)
        return -1;
    memcpy(before, devices, sizeof before);
    const char *at = strstr(before, url);
    sl_assert(at != NULL);
    int n = snprintf(devices, sizeof before, "%.*s%s%s", (int)(at - before), before, numeric,
                     at + strlen(url));
    if (n < 0 || (size_t)n >= sizeof before)
        return error_set(error, ERR_BAD_INPUT, "--devices is too long with the address of %.200s",
                         url);
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
    snprintf(program, sizeof program, SERVER_PROGRAM, server->scheme);
    return program;
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
    struct storage_paths paths;
    struct params *p = &s->params;
    uint32_t count = storage_count(p);
    if (count == 0)
        return 0;
    if (run_files(s->model) == 0 && p->loaders == 1 && count <= SERVICE_LOADERS_MAX)
        p->loaders = count;
    if (count != p->loaders)
        return error_set(error, ERR_BAD_INPUT,
                         "--devices names %" PRIu32 " devices for %" PRIu64
                         " loaders; give one for each",
                         count, p->loaders);
    for (uint32_t i = 0; i < count; i++)
        if (storage_take(p, i, &s->storage, &paths, error) != 0 ||
            server_take(s, paths.path, error) != 0 || server_take(s, paths.mirror, error) != 0)
            return -1;
    return 0;
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
    }
    return list;
}

void storage_clear_quarantine(struct supervisor *s, struct child_record *c)
{
    if (c->service != SERVICE_LOADER || !c->clear_quarantine)
        return;
    c->clear_quarantine = false;
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
