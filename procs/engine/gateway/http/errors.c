/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that are rejected or malformed: what the client gets, and what is logged of them. */
#include <stdio.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "procs/engine/gateway/http/http.h"

#define LOG_EVERY_NS            (10 * NS_PER_S)
#define LOG_LINES               20 /* per LOG_EVERY_NS: untrusted clients must not fill the log */
#define LIBRARY_RESPONSE_FORMAT "Error processing request (HTTP response code is %u"

void log_rejection(struct http *h, const char *why)
{
    uint64_t now = clock_now_ns();
    h->rejected_count++;
    if (now >= h->log_due_ns) {
        h->log_due_ns = now + LOG_EVERY_NS;
        h->log_lines = 0;
    }
    if (h->log_lines == LOG_LINES)
        return;
    h->log_lines++;
    /* It can contain untrusted bytes, and some terminals also interpret control characters beyond
     * ASCII (C1). */
    char text[200];
    size_t n = 0;
    for (; why[n] && n < sizeof text - 1; n++)
        text[n] = (unsigned char)why[n] < ' ' || (unsigned char)why[n] >= 0x7f ? ' ' : why[n];
    text[n] = 0;
    uint64_t count = h->rejected_count - h->rejected_logged;
    if (count == 1)
        log_warn("request rejected: %s", text);
    else
        log_warn("%llu requests rejected since the last line; the last one: %s",
                 (unsigned long long)count, text);
    h->rejected_logged = h->rejected_count;
}

static void count_malformed(struct http *h, const char *why)
{
    counter_add(h->child->process, CTR_GATEWAY_requests_malformed, 1);
    log_rejection(h, why);
}

void log_cause(struct http *h)
{
    if (h->cause[0])
        count_malformed(h, h->cause);
    h->cause[0] = 0;
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

void log_library_message(void *http, const char *fmt, va_list list)
{
    struct http *h = http;
    char text[CAUSE_BYTES], line[CAUSE_BYTES + 16];
    unsigned status;
    if (h->closing)
        return; /* caused by our own call */
    vsnprintf(text, sizeof text, fmt, list);
    if (reports_disconnect(text))
        return;
    text[strcspn(text, "\n")] = 0;
    if (h->cause[0] && sscanf(text, LIBRARY_RESPONSE_FORMAT, &status) == 1) {
        snprintf(line, sizeof line, "%u, %s", status, h->cause);
        h->cause[0] = 0;
        count_malformed(h, line);
        return;
    }
    log_cause(h);
    if (reports_cause(text))
        snprintf(h->cause, sizeof h->cause, "%s", text);
    else
        count_malformed(h, text);
}

unsigned error_http_status(enum error_code code)
{
    switch (code) {
    case ERR_BAD_INPUT:
    case ERR_CONTEXT:
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

static void respond_error(struct exchange *x, unsigned status, const struct error *error,
                          const char *param)
{
    char line[320];
    snprintf(line, sizeof line, "%u, %.280s", status, error->text);
    log_rejection(x->http, line);
    exchange_json(x, status, x->http->service->error(x->dialect, status, error, param));
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
