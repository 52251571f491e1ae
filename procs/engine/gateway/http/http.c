/* SPDX-License-Identifier: Apache-2.0 */
/* Requests from the HTTP library: routing, authorisation, bodies, responses. The library runs on
 * our thread, only inside http_run. A connection that waits for the engine is suspended and costs
 * only memory. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "lib/base/assert.h"
#include "procs/engine/gateway/gateway.h"
#include "shm/segment/inherited_fds.h"

#define POOL_BYTES              8192 /* per connection: the head (HEAD_BYTES_MAX) and the response's */
#define POOL_STEP_BYTES         1024
#define DISCARD_TIMES           4 /* times --http-body; more disconnects the client */
#define LOG_EVERY_NS            (10 * NS_PER_S)
#define LOG_LINES               20 /* per LOG_EVERY_NS: untrusted clients must not fill the log */
#define RETRY_AFTER             "1"
#define HOST_BYTES              256
#define LIBRARY_RESPONSE_FORMAT "Error processing request (HTTP response code is %u"
/* No external resources, and only our script. */
#define POLICY                                                                                     \
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src data:; "     \
    "connect-src 'self'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'"

#define ROUTE(method, path, handler, speaks, open) extern const struct dialect speaks;
#define OTHERWISE(speaks)                          extern const struct dialect speaks;
#include "procs/engine/gateway/routes.tbl.h"

static const struct http_route routes[] = {
#define ROUTE(method, path, handler, speaks, open) {method, path, handler, &speaks, open},
#define OTHERWISE(speaks)
#include "procs/engine/gateway/routes.tbl.h"
};

const struct dialect *const http_dialect =
#define ROUTE(method, path, handler, speaks, open)
#define OTHERWISE(speaks) &speaks;
#include "procs/engine/gateway/routes.tbl.h"

    /* ---- rejected requests
     * ----------------------------------------------------------------------- */

    void log_rejection(struct gateway * g, const char *why)
{
    uint64_t now = clock_now_ns();
    g->rejected_count++;
    if (now >= g->log_due_ns) {
        g->log_due_ns = now + LOG_EVERY_NS;
        g->log_lines = 0;
    }
    if (g->log_lines == LOG_LINES)
        return;
    g->log_lines++;
    /* It can contain untrusted bytes, and some terminals also interpret control characters beyond
     * ASCII (C1). */
    char text[200];
    size_t n = 0;
    for (; why[n] && n < sizeof text - 1; n++)
        text[n] = (unsigned char)why[n] < ' ' || (unsigned char)why[n] >= 0x7f ? ' ' : why[n];
    text[n] = 0;
    uint64_t count = g->rejected_count - g->rejected_logged;
    if (count == 1)
        log_warn("request rejected: %s", text);
    else
        log_warn("%llu requests rejected since the last line; the last one: %s",
                 (unsigned long long)count, text);
    g->rejected_logged = g->rejected_count;
}

static void count_malformed(struct gateway *g, const char *why)
{
    counter_add(g->child.row, CTR_GATEWAY_requests_malformed, 1);
    log_rejection(g, why);
}

static void log_cause(struct gateway *g)
{
    if (g->cause[0])
        count_malformed(g, g->cause);
    g->cause[0] = 0;
}

static bool starts_with_any(const char *text, const char *const beginnings[], size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strncmp(text, beginnings[i], strlen(beginnings[i])) == 0)
            return true;
    return false;
}

/* Disconnects during a request or a response are not logged. The library reports them only as
 * text. */
static bool reports_disconnect(const char *text)
{
    static const char *const beginnings[] = {
        "Failed to send ",
        "Socket has been disconnected ",
        "Connection socket is closed ",
        "Connection was closed by remote side ",
    };
    return starts_with_any(text, beginnings, ARRAY_LEN(beginnings));
}

/* Messages that are followed by a second one with the response. */
static bool reports_cause(const char *text)
{
    static const char *const beginnings[] = {
        "Received HTTP/1.1 request without ",
        "Too large value of ",
        "Failed to parse ",
        "Not enough memory in pool ",
    };
    return starts_with_any(text, beginnings, ARRAY_LEN(beginnings));
}

/* Messages of the library: malformed requests, broken connections. Cause and response of one
 * request become one line. */
static void on_library_message(void *arg, const char *fmt, va_list list)
{
    struct gateway *g = arg;
    char text[CAUSE_BYTES], line[CAUSE_BYTES + 16];
    unsigned status;
    if (g->closing)
        return; /* caused by our own call */
    vsnprintf(text, sizeof text, fmt, list);
    if (reports_disconnect(text))
        return;
    text[strcspn(text, "\n")] = 0;
    if (g->cause[0] && sscanf(text, LIBRARY_RESPONSE_FORMAT, &status) == 1) {
        snprintf(line, sizeof line, "%u, %s", status, g->cause);
        g->cause[0] = 0;
        count_malformed(g, line);
        return;
    }
    log_cause(g);
    if (reports_cause(text))
        snprintf(g->cause, sizeof g->cause, "%s", text);
    else
        count_malformed(g, text);
}

unsigned error_http_status(enum error_code code)
{
    switch (code) {
    case ERR_BAD_INPUT:
    case ERR_BUDGET_TOO_SMALL: return MHD_HTTP_BAD_REQUEST;
    case ERR_NOT_FOUND: return MHD_HTTP_NOT_FOUND;
    case ERR_BUSY: return MHD_HTTP_TOO_MANY_REQUESTS;
    case ERR_NO_MEMORY:
    case ERR_GONE:
    case ERR_UNAVAILABLE:
    case ERR_CANCELLED: return MHD_HTTP_SERVICE_UNAVAILABLE;
    case ERR_TIMEOUT: return MHD_HTTP_GATEWAY_TIMEOUT;
    default: return MHD_HTTP_INTERNAL_SERVER_ERROR;
    }
}

/* ---- responses ------------------------------------------------------------------------------- */

void exchange_resume(struct exchange *x)
{
    OBJ_CHECK(x, EXCHANGE_MAGIC);
    if (!x->suspended)
        return;
    x->suspended = false;
    MHD_resume_connection(x->connection);
}

static void header(struct MHD_Response *response, const char *name, const char *value)
{
    if (response)
        MHD_add_response_header(response, name, value);
}

/* One request per connection: the acceptor has checked the head of the first one only, and a client
 * whose end of a request differs from ours must not get a second one read. */
static void common_headers(struct MHD_Response *response)
{
    header(response, MHD_HTTP_HEADER_CONNECTION, "close");
    header(response, "X-Content-Type-Options", "nosniff");
    header(response, "Content-Security-Policy", POLICY);
}

static void set_response(struct exchange *x, unsigned status, struct MHD_Response *response)
{
    OBJ_CHECK(x, EXCHANGE_MAGIC);
    sl_assert(!x->ready);
    struct gateway *g = x->gateway;
    if (!response)
        x->gone = true;
    if (status >= 500)
        counter_add(g->child.row, CTR_GATEWAY_requests_failed, 1);
    else if (status >= 400)
        counter_add(g->child.row, CTR_GATEWAY_requests_bad, 1);
    x->ready = response;
    x->status = status;
    exchange_resume(x);
}

void exchange_respond(struct exchange *x, unsigned status, struct MHD_Response *response)
{
    common_headers(response);
    if (status == MHD_HTTP_SERVICE_UNAVAILABLE || status == MHD_HTTP_TOO_MANY_REQUESTS)
        header(response, MHD_HTTP_HEADER_RETRY_AFTER, RETRY_AFTER);
    set_response(x, status, response);
}

/* Takes ownership of the text. */
static struct MHD_Response *text_response(const char *type, char *text, size_t bytes)
{
    struct MHD_Response *response =
        text ? MHD_create_response_from_buffer(bytes, text, MHD_RESPMEM_MUST_FREE) : NULL;
    if (!response)
        free(text);
    header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    return response;
}

void exchange_text(struct exchange *x, unsigned status, const char *type, char *text, size_t bytes)
{
    x->sent_bytes = bytes;
    exchange_respond(x, status, text_response(type, text, bytes));
}

void exchange_json(struct exchange *x, unsigned status, json_t *object)
{
    char *text = object ? json_dumps(object, JSON_COMPACT) : NULL;
    json_decref(object);
    exchange_text(x, status, "application/json", text, text ? strlen(text) : 0);
}

static void respond_error(struct exchange *x, unsigned status, const struct error *error,
                          const char *param)
{
    char line[320];
    snprintf(line, sizeof line, "%u, %.280s", status, error->text);
    log_rejection(x->gateway, line);
    exchange_json(x, status, x->dialect->error(status, error, param));
}

void exchange_error(struct exchange *x, const struct error *error, const char *param)
{
    respond_error(x, error_http_status(error->code), error, param);
}

void exchange_status_error(struct exchange *x, unsigned status, const char *text)
{
    struct error error;
    error_set(&error, status == MHD_HTTP_NOT_FOUND ? ERR_NOT_FOUND : ERR_BAD_INPUT, "%s", text);
    respond_error(x, status, &error, NULL);
}

/* ---- counted responses ----------------------------------------------------------------------- */

static void too_much(struct exchange *x)
{
    struct error error;
    error_set(&error, ERR_NO_MEMORY, BUFFERS_FULL);
    exchange_error(x, &error, NULL);
}

void exchange_completion(struct exchange *x, char *text, size_t bytes)
{
    if (!quota_take(&x->gateway->quota, bytes, false)) {
        free(text);
        too_much(x);
        return;
    }
    x->response_bytes = bytes;
    exchange_text(x, MHD_HTTP_OK, "application/json", text, bytes);
}

struct shared {
    struct gateway *gateway;
    struct MHD_Response *response;
    size_t bytes, users;
};

struct shared *shared_new(struct gateway *g, const char *type, char *text, size_t bytes)
{
    struct shared *shared = text ? calloc(1, sizeof *shared) : NULL;
    if (!shared || !quota_take(&g->quota, bytes, true)) {
        free(shared);
        free(text);
        return NULL;
    }
    *shared = (struct shared){g, text_response(type, text, bytes), bytes, 1};
    common_headers(shared->response);
    if (shared->response)
        return shared;
    shared_release(shared);
    return NULL;
}

void shared_release(struct shared *shared)
{
    if (!shared || --shared->users > 0)
        return;
    quota_give(&shared->gateway->quota, shared->bytes, true);
    if (shared->response)
        MHD_destroy_response(shared->response);
    free(shared);
}

void exchange_shared(struct exchange *x, struct shared *shared)
{
    if (!shared) {
        too_much(x);
        return;
    }
    shared->users++;
    x->shared = shared;
    x->sent_bytes = shared->bytes;
    set_response(x, MHD_HTTP_OK, shared->response);
}

/* ---- authorisation --------------------------------------------------------------------------- */

/* Takes equal time for right and wrong keys. */
static bool same_key(const char key[KEY_BYTES_MAX], const char *given)
{
    char padded[KEY_BYTES_MAX] = {0};
    unsigned char differs = strlen(given) >= sizeof padded;
    snprintf(padded, sizeof padded, "%s", given);
    for (size_t i = 0; i < sizeof padded; i++)
        differs |= (unsigned char)(padded[i] ^ key[i]);
    return differs == 0;
}

/* "Authorization: Bearer KEY", or KEY as the password browsers ask for. */
static bool authorised(struct gateway *g, struct MHD_Connection *connection)
{
    if (!g->key[0])
        return true;
    const char *value =
        MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_AUTHORIZATION);
    if (value && strncasecmp(value, "Bearer ", 7) == 0)
        return same_key(g->key, value + 7);
    char *password = NULL;
    char *user = MHD_basic_auth_get_username_password(connection, &password);
    bool right = password && same_key(g->key, password);
    MHD_free(user);
    MHD_free(password);
    return right;
}

/* The name in a Host header, without port and brackets. */
static bool host_name(const char *host, char out[HOST_BYTES])
{
    bool bracket = host[0] == '[';
    size_t n = bracket ? strcspn(host, "]") : strcspn(host, ":");
    if (n >= HOST_BYTES)
        return false;
    snprintf(out, HOST_BYTES, "%.*s", (int)(n - bracket), host + bracket);
    return true;
}

/* A page of another site in a browser of this machine must not use the gateway. */
static bool from_another_page(struct MHD_Connection *connection)
{
    const char *host = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Host");
    const char *origin = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Origin");
    const char *authority = origin ? strstr(origin, "://") : NULL;
    return origin && (!authority || !host || strcasecmp(authority + 3, host) != 0);
}

/* Nor must it reach a gateway without a key under a name of that site which resolves to this
 * machine: it is not the name of this machine. */
static bool foreign_name(const struct gateway *g, struct MHD_Connection *connection)
{
    const char *host = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Host");
    char name[HOST_BYTES];
    struct in6_addr address;
    if (!host || !g->loopback || g->key[0])
        return false;
    return !host_name(host, name) ||
           (strcasecmp(name, "localhost") != 0 && inet_pton(AF_INET, name, &address) != 1 &&
            inet_pton(AF_INET6, name, &address) != 1);
}

/* The error names the paths that exist. */
static void unknown_path(struct exchange *x)
{
    char text[400];
    int n = snprintf(text, sizeof text, "no such path; there are");
    for (size_t i = 0; i < ARRAY_LEN(routes) && n > 0 && (size_t)n < sizeof text; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, "%s %s %s", i ? "," : "", routes[i].method,
                      routes[i].path);
    exchange_status_error(x, MHD_HTTP_NOT_FOUND, text);
}

/* Finds the route. Rejects requests that cannot be handled. */
static void route_request(struct exchange *x, const char *method, const char *path)
{
    struct gateway *g = x->gateway;
    bool known = false;
    if (strcmp(method, "HEAD") == 0)
        method = "GET";
    for (size_t i = 0; i < ARRAY_LEN(routes) && !x->route; i++) {
        bool here = strcmp(routes[i].path, path) == 0;
        known |= here;
        x->dialect = here ? routes[i].dialect : x->dialect;
        if (here && strcmp(routes[i].method, method) == 0)
            x->route = &routes[i];
    }
    if (!x->route && known)
        exchange_status_error(x, MHD_HTTP_METHOD_NOT_ALLOWED, "method not allowed for this path");
    else if (!x->route)
        unknown_path(x);
    else if (from_another_page(x->connection))
        exchange_status_error(x, MHD_HTTP_FORBIDDEN, "cross-origin request from another site");
    else if (foreign_name(g, x->connection))
        exchange_status_error(x, MHD_HTTP_FORBIDDEN,
                              "the Host is no name of this machine: without a key, use localhost "
                              "or an address; with one (--http-key-file), any name");
    else if (!x->route->open && !authorised(g, x->connection)) {
        counter_add(g->child.row, CTR_GATEWAY_requests_unauthorised, 1);
        exchange_status_error(x, MHD_HTTP_UNAUTHORIZED,
                              "the key is missing or wrong (Authorization: Bearer KEY)");
        header(x->ready, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Basic realm=\"sluice\"");
    }
}

/* ---- the library's callbacks ----------------------------------------------------------------- */

static enum MHD_Result queue_response(struct exchange *x)
{
    if (x->gone || !x->ready) {
        x->gateway->closing = true;
        return MHD_NO;
    }
    enum MHD_Result result = MHD_queue_response(x->connection, x->status, x->ready);
    if (!x->shared)
        MHD_destroy_response(x->ready); /* the connection holds its own reference */
    x->ready = NULL;
    /* A stream of events has no time limit. Other responses must be read in time. */
    if (x->started && !x->stream)
        connection_rests(x->connection);
    return result;
}

static enum MHD_Result first_call(struct gateway *g, struct MHD_Connection *connection,
                                  const char *path, const char *method, void **slot)
{
    struct exchange *x = calloc(1, sizeof *x);
    if (!x)
        return MHD_NO;
    *x = (struct exchange){.magic = EXCHANGE_MAGIC,
                           .gateway = g,
                           .connection = connection,
                           .dialect = http_dialect,
                           .body.unvalidated = true};
    *slot = x;
    counter_add(g->child.row, CTR_GATEWAY_requests, 1);
    http_log_begin(x, method, path);
    route_request(x, method, path);
    /* Expect: 100-continue gets the response before the body. */
    if (x->ready && MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Expect"))
        return queue_response(x);
    return MHD_YES;
}

static enum MHD_Result take_body(struct exchange *x, const char *data, size_t bytes)
{
    struct gateway *g = x->gateway;
    const struct params *p = g->child.params;
    /* A body that is not read is only counted. */
    if (!x->ready && !x->gone && strcmp(x->route->method, "POST") == 0) {
        if (x->body.bytes + bytes > p->http_body)
            exchange_status_error(x, MHD_HTTP_CONTENT_TOO_LARGE,
                                  "the body is longer than --http-body");
        else if (x->body.bytes + bytes > quota_guests_max(&g->quota))
            exchange_status_error(x, MHD_HTTP_CONTENT_TOO_LARGE,
                                  "the body is longer than half of --http-buffer");
        else if (!buffer_add(&g->quota, &x->body, data, bytes))
            too_much(x);
        else
            return MHD_YES;
        buffer_free(&g->quota, &x->body);
    }
    x->discarded += bytes;
    return x->discarded > DISCARD_TIMES * p->http_body ? MHD_NO : MHD_YES;
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *connection, const char *path,
                                  const char *method, const char *version, const char *data,
                                  size_t *bytes, void **slot)
{
    struct gateway *g = arg;
    struct exchange *x = *slot;
    (void)version;
    if (!x)
        return first_call(g, connection, path, method, slot);
    OBJ_CHECK(x, EXCHANGE_MAGIC);
    if (*bytes > 0) {
        size_t n = *bytes;
        *bytes = 0;
        return take_body(x, data, n);
    }
    if (!x->started && !x->ready && !x->gone) {
        x->started = true;
        g->responding++;
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
    struct gateway *g = arg;
    struct exchange *x = *slot;
    (void)why;
    if (!x)
        return;
    OBJ_CHECK(x, EXCHANGE_MAGIC);
    *slot = NULL;
    if (x->started)
        g->responding--;
    child_progress(&g->child);
    if (x->stream)
        stream_client_left(x->stream);
    http_log_end(x);
    stats_forget(x);
    connection_rests(connection);
    buffer_free(&g->quota, &x->body);
    if (x->ready && !x->shared)
        MHD_destroy_response(x->ready);
    shared_release(x->shared);
    quota_give(&g->quota, x->response_bytes, false);
    x->magic = 0;
    free(x);
}

/* ---- the daemon ------------------------------------------------------------------------------ */

static void read_own_address(struct gateway *g)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } own = {0};
    socklen_t bytes = sizeof own;
    uint16_t port = 0;
    if (getsockname(INHERITED_HTTP, &own.any, &bytes) != 0)
        return;
    if (own.any.sa_family == AF_INET) {
        port = ntohs(own.v4.sin_port);
        g->loopback = ntohl(own.v4.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
    } else if (own.any.sa_family == AF_INET6) {
        port = ntohs(own.v6.sin6_port);
        g->loopback = IN6_IS_ADDR_LOOPBACK(&own.v6.sin6_addr);
    }
    counter_set(g->child.row, CTR_GATEWAY_port, port);
}

int http_start(struct gateway *g, struct error *error)
{
    const struct params *p = g->child.params;
    read_own_address(g);
    g->quota.limit = p->http_buffer;
    unsigned connections = connections_max(p);
    g->daemon = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG, 0,
        NULL, NULL, on_request, g, MHD_OPTION_EXTERNAL_LOGGER, on_library_message, g,
        MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_CONNECTION_LIMIT, connections,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)p->http_timeout,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)POOL_BYTES,
        MHD_OPTION_CONNECTION_MEMORY_INCREMENT, (size_t)POOL_STEP_BYTES,
        MHD_OPTION_NOTIFY_COMPLETED, on_end, g, MHD_OPTION_NOTIFY_CONNECTION, connection_event, g,
        MHD_OPTION_END);
    if (!g->daemon)
        return error_set(error, ERR_FAILED, "the HTTP library failed to start");
    return acceptor_open(g, connections, error);
}

void http_run(struct gateway *g)
{
    acceptor_run(g);
    MHD_run(g->daemon);
    log_cause(g);
    g->closing = false;
    counter_set(g->child.row, CTR_GATEWAY_connections, acceptor_connections(g));
}
