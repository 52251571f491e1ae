/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of ranges, and what is wrong with an answer. */
#include "lib/io/server/http/transfer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/io/server/http/request.h"

#define HTTP_PARTIAL  206
#define HTTP_CHANGED  412
#define HTTP_NO_RANGE 416
#define DIGITS_MAX    18 /* of a number in a header */

#define TEXT_BYTES_MAX (64 * KIB) /* read of an answer without the range */

/* ---- the answer ------------------------------------------------------------------------------ */

/* A number and what follows it. NULL: no number. */
static const char *number(const char *text, uint64_t *value)
{
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > DIGITS_MAX)
        return NULL;
    *value = strtoull(text, NULL, 10);
    return text + digits;
}

/* "bytes FIRST-LAST/SIZE" */
static void take_range(struct transfer *t, const char *value)
{
    uint64_t first, last, size;
    const char *at = strncasecmp(value, "bytes ", 6) == 0 ? number(value + 6, &first) : NULL;
    at = at && *at == '-' ? number(at + 1, &last) : NULL;
    at = at && *at == '/' ? number(at + 1, &size) : NULL;
    if (!at || *at || last < first || last >= size)
        return;
    t->first = first;
    t->last = last;
    t->found.size = size;
}

/* A date, which is also permitted, is a while. */
static void take_wait(struct transfer *t, const char *value)
{
    const char *end = number(value, &t->wait_s);
    if (!end || *end || t->wait_s == 0)
        t->wait_s = 1;
    if (t->wait_s > TRANSFER_WAIT_MAX_S)
        t->wait_s = TRANSFER_WAIT_MAX_S;
}

static void copy(char *to, size_t bytes, const char *value)
{
    if (strlen(value) < bytes)
        strcpy(to, value);
}

static void take_field(struct transfer *t, const char *name, const char *value)
{
    if (strcasecmp(name, "Content-Range") == 0)
        take_range(t, value);
    else if (strcasecmp(name, "ETag") == 0)
        copy(t->found.tag, sizeof t->found.tag, value);
    else if (strcasecmp(name, "Last-Modified") == 0)
        copy(t->found.modified, sizeof t->found.modified, value);
    else if (strcasecmp(name, "Retry-After") == 0)
        take_wait(t, value);
    else if (strcasecmp(name, "Location") == 0)
        snprintf(t->location, sizeof t->location, "%s", value);
    else if (strcasecmp(name, "Content-Encoding") == 0)
        t->encoded = strcasecmp(value, "identity") != 0;
}

static void forget_answer(struct transfer *t)
{
    t->found = (struct identity){.size = 0};
    t->status = 0;
    t->first = t->last = t->wait_s = 0;
    t->encoded = false;
    t->location[0] = t->body[0] = 0;
    t->body_bytes = 0;
    t->text_bytes = 0;
}

void transfer_head_line(struct transfer *t, const char *line, size_t bytes)
{
    char text[1024];
    while (bytes > 0 && strchr("\r\n \t", line[bytes - 1]))
        bytes--;
    if (bytes == 0 || bytes >= sizeof text)
        return;
    memcpy(text, line, bytes);
    text[bytes] = 0;
    if (strncmp(text, "HTTP/", 5) == 0) { /* an earlier one was of an interim answer */
        forget_answer(t);
        const char *space = strchr(text, ' ');
        t->status = space ? strtol(space + 1, NULL, 10) : 0;
        return;
    }
    char *colon = strchr(text, ':');
    if (!colon)
        return;
    *colon = 0;
    take_field(t, text, colon + 1 + strspn(colon + 1, " \t"));
}

/* The file is the one that was there before, as far as the server says. */
static bool same(const struct transfer *t)
{
    const struct identity *was = t->identity, *is = &t->found;
    if (was->size == 0)
        return true;
    if (was->size != is->size)
        return false;
    if (was->tag[0] && is->tag[0])
        return strcmp(was->tag, is->tag) == 0;
    return !was->modified[0] || !is->modified[0] || strcmp(was->modified, is->modified) == 0;
}

static bool answers(const struct transfer *t)
{
    return t->status == HTTP_PARTIAL && !t->encoded && t->found.size > 0 && t->first == t->offset &&
           t->last - t->first + 1 == t->bytes;
}

/* ---- callbacks ------------------------------------------------------------------------------- */

static size_t on_head(char *line, size_t size, size_t count, void *arg)
{
    transfer_head_line(arg, line, size * count);
    return size * count;
}

/* An answer without the range is read only if it is an error and short, which keeps its
 * connection. */
static size_t keep_text(struct transfer *t, const char *from, size_t n)
{
    size_t room = sizeof t->body - 1 -
                  (t->body_bytes < sizeof t->body - 1 ? t->body_bytes : sizeof t->body - 1);
    size_t kept = n < room ? n : room;
    memcpy(t->body + t->body_bytes, from, kept);
    t->body_bytes += (uint32_t)kept;
    t->body[t->body_bytes] = 0;
    t->text_bytes += n;
    return t->status >= 300 && t->text_bytes <= TEXT_BYTES_MAX ? n : CURL_WRITEFUNC_ERROR;
}

static size_t on_body(char *from, size_t size, size_t count, void *arg)
{
    struct transfer *t = arg;
    size_t n = size * count;
    if (t->status != HTTP_PARTIAL)
        return keep_text(t, from, n);
    if (!answers(t) || !same(t) || n > t->bytes - t->got)
        return CURL_WRITEFUNC_ERROR;
    memcpy(t->to + t->got, from, n);
    t->got += (uint32_t)n;
    return n;
}

/* ---- one transfer ---------------------------------------------------------------------------- */

int transfer_create(struct transfer *t)
{
    *t = (struct transfer){.easy = curl_easy_init()};
    if (!t->easy)
        return -1;
    curl_easy_setopt(t->easy, CURLOPT_PRIVATE, t);
    curl_easy_setopt(t->easy, CURLOPT_ERRORBUFFER, t->error);
    curl_easy_setopt(t->easy, CURLOPT_HEADERFUNCTION, on_head);
    curl_easy_setopt(t->easy, CURLOPT_HEADERDATA, t);
    curl_easy_setopt(t->easy, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(t->easy, CURLOPT_WRITEDATA, t);
    return 0;
}

void transfer_destroy(struct transfer *t)
{
    if (t->easy)
        curl_easy_cleanup(t->easy);
    t->easy = NULL;
}

void transfer_begin(struct transfer *t, struct slot *slot, const struct identity *identity)
{
    char range[48];
    t->slot = slot;
    t->identity = identity;
    t->to = slot ? slot->read.buffer : &t->byte;
    t->offset = slot ? slot->read.file_offset : 0;
    t->bytes = slot ? slot->bytes : 1;
    t->got = 0;
    t->error[0] = 0;
    forget_answer(t);
    sl_assert(t->bytes > 0);
    snprintf(range, sizeof range, "%" PRIu64 "-%" PRIu64, t->offset, t->offset + t->bytes - 1);
    curl_easy_setopt(t->easy, CURLOPT_RANGE, range);
}

/* ---- the end --------------------------------------------------------------------------------- */

static enum transfer_end say(char why[REMOTE_WHY_BYTES], enum transfer_end end, const char *text)
{
    snprintf(why, REMOTE_WHY_BYTES, "%s", text);
    return end;
}

/* S3 does not name the address of a bucket that is in another region. */
static void say_redirect(const struct transfer *t, const char *code, char why[REMOTE_WHY_BYTES])
{
    if (t->location[0])
        snprintf(why, REMOTE_WHY_BYTES,
                 "it redirects to %s%s; redirects are not followed, so name that address",
                 t->location, code);
    else
        snprintf(why, REMOTE_WHY_BYTES,
                 "it answers %ld%s, a redirect; redirects are not followed, so name the address "
                 "where it is",
                 t->status, code);
}

/* The server has answered something else than the range. */
static enum transfer_end judge_status(const struct transfer *t, char why[REMOTE_WHY_BYTES])
{
    char code[REQUEST_CODE_BYTES];
    request_code(t->body, code);
    if (t->status == HTTP_CHANGED || (t->status == HTTP_NO_RANGE && t->identity->size > 0))
        return say(why, TRANSFER_CHANGED, "the file was replaced on the server");
    if (t->status >= 200 && t->status < 300)
        return say(why, TRANSFER_REFUSED, "it does not serve ranges");
    if (t->status >= 300 && t->status < 400) {
        say_redirect(t, code, why);
        return TRANSFER_REFUSED;
    }
    bool later = t->status == 408 || t->status == 429 || t->status >= 500;
    if (later && t->wait_s > 0) {
        snprintf(why, REMOTE_WHY_BYTES, "it answers %ld%s and asks to wait for %" PRIu64 " s",
                 t->status, code, t->wait_s);
        return TRANSFER_BUSY;
    }
    snprintf(why, REMOTE_WHY_BYTES, "it answers %ld%s", t->status, code);
    return later ? TRANSFER_BROKEN : TRANSFER_REFUSED;
}

/* Whether the failure was before a request could be sent. */
static bool no_connection(const struct transfer *t, CURLcode code)
{
    curl_off_t connected = 0;
    switch (code) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_PEER_FAILED_VERIFICATION: return true;
    case CURLE_OPERATION_TIMEDOUT:
        curl_easy_getinfo(t->easy, CURLINFO_PRETRANSFER_TIME_T, &connected);
        return connected == 0;
    default: return false;
    }
}

enum transfer_end transfer_judge(const struct transfer *t, CURLcode code,
                                 char why[REMOTE_WHY_BYTES])
{
    if (t->status >= 200 && t->status != HTTP_PARTIAL)
        return judge_status(t, why);
    if (t->status == HTTP_PARTIAL) {
        if (t->found.size > 0 && !same(t))
            return say(why, TRANSFER_CHANGED, "the file was replaced on the server");
        if (!answers(t))
            return say(why, TRANSFER_BROKEN, "it sends other bytes than were requested");
        if (code == CURLE_OK && t->got == t->bytes)
            return TRANSFER_RIGHT;
        if (code == CURLE_OK)
            return say(why, TRANSFER_BROKEN, "it sends fewer bytes than it promised");
    }
    const char *text = t->error[0] ? t->error : curl_easy_strerror(code);
    return say(why, no_connection(t, code) ? TRANSFER_AWAY : TRANSFER_BROKEN, text);
}
