/* SPDX-License-Identifier: Apache-2.0 */
/* Requests from the HTTP library: routing, bodies, and their end. The library runs on our
 * thread, only inside http_run. A connection that waits for the engine is suspended and costs
 * only memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "procs/engine/gateway/http/http.h"

#define POOL_BYTES      8192 /* per connection: the head (HEAD_BYTES_MAX) and the response's */
#define POOL_STEP_BYTES 1024
#define DISCARD_TIMES   4 /* times --http-body; more disconnects the client */

/* ---- routing --------------------------------------------------------------------------------- */

/* The error names the paths that exist, as many as it has space for. */
static void unknown_path(struct exchange *x)
{
    const struct http_service *s = x->http->service;
    char text[400];
    size_t n = (size_t)snprintf(text, sizeof text, "no such path; there are");
    for (size_t i = 0; i < s->count; i++) {
        const struct http_route *r = &s->routes[i];
        if (n + strlen(r->method) + strlen(r->path) + sizeof ", , ..." > sizeof text) {
            snprintf(text + n, sizeof text - n, ", ...");
            break;
        }
        n += (size_t)snprintf(text + n, sizeof text - n, "%s %s %s", i ? "," : "", r->method,
                              r->path);
    }
    exchange_status_error(x, MHD_HTTP_NOT_FOUND, text);
}

/* Whether a request with this path is on the route. */
static bool on_path(const struct http_route *route, const char *path, char rest[PATH_REST_BYTES])
{
    size_t n = strlen(route->path);
    if (n == 1 || route->path[n - 1] != '/')
        return strcmp(route->path, path) == 0;
    if (strncmp(route->path, path, n) != 0)
        return false;
    snprintf(rest, PATH_REST_BYTES, "%s", strlen(path + n) < PATH_REST_BYTES ? path + n : "");
    return true;
}

/* The methods of a path. */
static void say_allowed(struct exchange *x, const char *path)
{
    const struct http_service *s = x->http->service;
    char rest[PATH_REST_BYTES], all[64] = "";
    for (size_t i = 0; i < s->count; i++) {
        const char *method = s->routes[i].method;
        size_t n = strlen(all);
        if (on_path(&s->routes[i], path, rest))
            snprintf(all + n, sizeof all - n, "%s%s%s", n > 0 ? ", " : "", method,
                     strcmp(method, "GET") == 0 ? ", HEAD" : "");
    }
    exchange_status_error(x, MHD_HTTP_METHOD_NOT_ALLOWED, "method not allowed for this path");
    exchange_header(x, MHD_HTTP_HEADER_ALLOW, all);
}

/* Finds the route. Rejects requests that cannot be handled. */
static void route_request(struct exchange *x, const char *method, const char *path)
{
    const struct http_service *s = x->http->service;
    bool known = false;
    if (strcmp(method, "HEAD") == 0)
        method = "GET";
    for (size_t i = 0; i < s->count && !x->route; i++) {
        bool here = on_path(&s->routes[i], path, x->rest);
        known |= here;
        x->dialect = here ? s->routes[i].dialect : x->dialect;
        if (here && strcmp(s->routes[i].method, method) == 0)
            x->route = &s->routes[i];
    }
    if (auth_preflight(x, method))
        return;
    if (!x->route && known)
        say_allowed(x, path);
    else if (!x->route)
        unknown_path(x);
    else
        auth_admits(x);
}

/* ---- the library's callbacks ----------------------------------------------------------------- */

static enum MHD_Result queue_response(struct exchange *x)
{
    if (x->gone || !x->ready) {
        x->http->closing = true;
        return MHD_NO;
    }
    enum MHD_Result result = MHD_queue_response(x->connection, x->status, x->ready);
    MHD_destroy_response(x->ready); /* the connection holds its own reference */
    x->ready = NULL;
    /* A stream of events has no time limit. Other responses must be read in time. */
    if (x->started && !x->stream)
        connection_rests(x->connection);
    return result;
}

static enum MHD_Result first_call(struct http *h, struct MHD_Connection *connection,
                                  const char *path, const char *method, void **slot)
{
    struct exchange *x = calloc(1, sizeof *x);
    if (!x)
        return MHD_NO;
    *x = (struct exchange){.magic = EXCHANGE_MAGIC,
                           .http = h,
                           .gateway = h->gateway,
                           .connection = connection,
                           .dialect = h->service->otherwise,
                           .body.unvalidated = true};
    *slot = x;
    counter_add(h->child->process, CTR_GATEWAY_requests, 1);
    http_log_begin(x, method, path);
    route_request(x, method, path);
    /* Expect: 100-continue gets the response before the body. */
    if (x->ready && MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Expect"))
        return queue_response(x);
    return MHD_YES;
}

static enum MHD_Result take_body(struct exchange *x, const char *data, size_t bytes)
{
    struct http *h = x->http;
    const struct params *p = h->child->params;
    /* A body that is not read is only counted. */
    if (!x->ready && !x->gone && strcmp(x->route->method, "POST") == 0) {
        if (x->body.bytes + bytes > p->http_body)
            exchange_status_error(x, MHD_HTTP_CONTENT_TOO_LARGE,
                                  "the body is longer than --http-body");
        else if (x->body.bytes + bytes > quota_guests_max(&h->quota))
            exchange_status_error(x, MHD_HTTP_CONTENT_TOO_LARGE,
                                  "the body is longer than half of --http-buffer");
        else if (!buffer_add(&h->quota, &x->body, data, bytes))
            exchange_too_much(x);
        else
            return MHD_YES;
        buffer_free(&h->quota, &x->body);
    }
    x->discarded += bytes;
    return x->discarded > DISCARD_TIMES * p->http_body ? MHD_NO : MHD_YES;
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *connection, const char *path,
                                  const char *method, const char *version, const char *data,
                                  size_t *bytes, void **slot)
{
    struct http *h = arg;
    struct exchange *x = *slot;
    (void)version;
    if (!x)
        return first_call(h, connection, path, method, slot);
    OBJ_CHECK(x, EXCHANGE_MAGIC);
    if (*bytes > 0) {
        size_t n = *bytes;
        *bytes = 0;
        return take_body(x, data, n);
    }
    if (!x->started && !x->ready && !x->gone) {
        x->started = true;
        h->responding++;
        connection_works(connection);
        x->route->start(x);
    }
    if (x->ready || x->gone)
        return queue_response(x);
    x->suspended = true;
    MHD_suspend_connection(connection);
    return MHD_YES;
}

static void on_end(void *arg, struct MHD_Connection *connection, void **slot,
                   enum MHD_RequestTerminationCode why)
{
    struct http *h = arg;
    struct exchange *x = *slot;
    (void)why;
    if (!x)
        return;
    OBJ_CHECK(x, EXCHANGE_MAGIC);
    *slot = NULL;
    if (x->started)
        h->responding--;
    child_progress(h->child);
    h->service->ended(x);
    http_log_end(x);
    connection_rests(connection);
    buffer_free(&h->quota, &x->body);
    if (x->ready)
        MHD_destroy_response(x->ready);
    shared_release(x->shared);
    quota_give(&h->quota, x->response_bytes, false);
    x->magic = 0;
    free(x);
}

/* ---- the daemon ------------------------------------------------------------------------------ */

int http_start(struct http *h, const struct http_service *service, struct error *error)
{
    const struct params *p = h->child->params;
    h->magic = HTTP_MAGIC;
    h->service = service;
    snprintf(h->key, sizeof h->key, "%s", p->http_key);
    auth_read_own_address(h);
    h->quota.limit = p->http_buffer;
    unsigned connections = connections_max(p);
    h->daemon = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG, 0,
        NULL, NULL, on_request, h, MHD_OPTION_EXTERNAL_LOGGER, log_library_message, h,
        MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_CONNECTION_LIMIT, connections,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)p->http_timeout,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)POOL_BYTES,
        MHD_OPTION_CONNECTION_MEMORY_INCREMENT, (size_t)POOL_STEP_BYTES,
        MHD_OPTION_NOTIFY_COMPLETED, on_end, h, MHD_OPTION_NOTIFY_CONNECTION, connection_event, h,
        MHD_OPTION_END);
    if (!h->daemon)
        return error_set(error, ERR_FAILED, "the HTTP library failed to start");
    return acceptor_open(h, connections, error);
}

void http_run(struct http *h)
{
    acceptor_run(h);
    MHD_run(h->daemon);
    log_cause(h);
    h->closing = false;
    counter_set(h->child->process, CTR_GATEWAY_connections, acceptor_connections(h));
}

int http_fd(const struct http *h)
{
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(h->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    return info ? info->epoll_fd : -1;
}
