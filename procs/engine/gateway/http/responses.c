/* SPDX-License-Identifier: Apache-2.0 */
/* Responses: their headers, and the bytes that wait to be read by clients, which are counted. */
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "procs/engine/gateway/http/http.h"

#define RETRY_AFTER "1"
/* No external resources, and only our script. */
#define POLICY                                                                                     \
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src data:; "     \
    "connect-src 'self'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'"

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

void exchange_header(struct exchange *x, const char *name, const char *value)
{
    header(x->ready, name, value);
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
    struct http *h = x->http;
    if (!response)
        x->gone = true;
    if (status >= 500)
        counter_add(h->child->process, CTR_GATEWAY_requests_failed, 1);
    else if (status >= 400)
        counter_add(h->child->process, CTR_GATEWAY_requests_bad, 1);
    x->ready = response;
    x->status = status;
    exchange_resume(x);
}

void exchange_respond(struct exchange *x, unsigned status, struct MHD_Response *response)
{
    common_headers(response);
    if (x->shared_origin)
        auth_share(x, response);
    if (status == MHD_HTTP_SERVICE_UNAVAILABLE || status == MHD_HTTP_TOO_MANY_REQUESTS)
        header(response, MHD_HTTP_HEADER_RETRY_AFTER, RETRY_AFTER);
    set_response(x, status, response);
}

/* NULL without memory, or without a text. */
static struct MHD_Response *text_response(const char *type, char *text, size_t bytes,
                                          enum MHD_ResponseMemoryMode mode)
{
    struct MHD_Response *response =
        text ? MHD_create_response_from_buffer(bytes, text, mode) : NULL;
    header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    return response;
}

void exchange_text(struct exchange *x, unsigned status, const char *type, char *text, size_t bytes)
{
    struct MHD_Response *response = text_response(type, text, bytes, MHD_RESPMEM_MUST_FREE);
    if (!response)
        free(text);
    x->sent_bytes = bytes;
    exchange_respond(x, status, response);
}

void exchange_json(struct exchange *x, unsigned status, json_t *object)
{
    char *text = object ? json_dumps(object, JSON_COMPACT) : NULL;
    json_decref(object);
    exchange_text(x, status, "application/json", text, text ? strlen(text) : 0);
}

/* ---- counted responses ----------------------------------------------------------------------- */

void exchange_too_much(struct exchange *x)
{
    struct error error;
    error_set(&error, ERR_NO_MEMORY, BUFFERS_FULL);
    exchange_error(x, &error, NULL);
}

void exchange_counted(struct exchange *x, char *text, size_t bytes)
{
    if (!quota_take(&x->http->quota, bytes, false)) {
        free(text);
        exchange_too_much(x);
        return;
    }
    x->response_bytes = bytes;
    exchange_text(x, MHD_HTTP_OK, "application/json", text, bytes);
}

struct shared {
    struct http *http;
    const char *type;
    char *text;
    size_t bytes, users;
};

struct shared *shared_new(struct http *h, const char *type, char *text, size_t bytes)
{
    struct shared *shared = text ? calloc(1, sizeof *shared) : NULL;
    if (!shared || !quota_take(&h->quota, bytes, true)) {
        free(shared);
        free(text);
        return NULL;
    }
    *shared = (struct shared){h, type, text, bytes, 1};
    return shared;
}

void shared_release(struct shared *shared)
{
    if (!shared || --shared->users > 0)
        return;
    quota_give(&shared->http->quota, shared->bytes, true);
    free(shared->text);
    free(shared);
}

void exchange_shared(struct exchange *x, struct shared *shared)
{
    if (!shared) {
        exchange_too_much(x);
        return;
    }
    shared->users++;
    x->shared = shared;
    x->sent_bytes = shared->bytes;
    exchange_respond(
        x, MHD_HTTP_OK,
        text_response(shared->type, shared->text, shared->bytes, MHD_RESPMEM_PERSISTENT));
}
