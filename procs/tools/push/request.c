/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to web servers and S3 through libcurl, one at a time. What may pass (no connection, a
 * connection that breaks, 408, 429, 5xx, credentials that have expired) is tried again after a
 * pause that doubles; what the server refuses ends the program. Credentials are read for each
 * try, so that those that have expired are replaced. */
#include "procs/tools/push/request.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/random.h"
#include "lib/io/server/http/request.h"
#include "lib/io/server/http/sha256.h"
#include "procs/tools/push/watch.h"

#define PAUSE_FIRST_NS (200 * NS_PER_MS)
#define PAUSE_LAST_NS  (5 * NS_PER_S)
#define WAIT_MAX_S     60
#define CHUNK_BYTES    (256 * KIB)
#define BODY_MAX       (64 * KIB) /* of an answer that is not a file */

struct client {
    struct push *push;
    struct io_url url; /* of the manifest */
    CURL *easy;
    struct curl_slist *resolve, *headers;
    struct random random;
    /* Of the request that runs: */
    const struct request *request;
    struct answer *answer;
    uint64_t sent, got, body; /* got: that were kept; body: of an answer that is not a file */
    struct watch watch;
    const char *late;            /* why it has waited too long; NULL: it has not */
    char hash[SHA256_HEX_BYTES]; /* of its body */
    char why[CURL_ERROR_SIZE];
    bool right; /* an earlier request was */
};

/* ---- callbacks of the library ---------------------------------------------------------------- */

static size_t on_read(char *to, size_t size, size_t count, void *arg)
{
    struct client *c = arg;
    const struct request *r = c->request;
    uint64_t left = r->bytes - c->sent, n = size * count < left ? size * count : left;
    ssize_t got = n > 0 ? pread(r->file->fd, to, n, (off_t)(r->at + c->sent)) : 0;
    if (got < 0 || (got == 0 && n > 0))
        return CURL_READFUNC_ABORT;
    c->sent += (uint64_t)got;
    meter_moved(c->push, (uint64_t)got);
    return (size_t)got;
}

static int on_seek(void *arg, curl_off_t offset, int origin)
{
    struct client *c = arg;
    if (origin != SEEK_SET || offset < 0 || (uint64_t)offset > c->request->bytes)
        return CURL_SEEKFUNC_CANTSEEK;
    c->sent = (uint64_t)offset;
    return CURL_SEEKFUNC_OK;
}

static size_t on_body(char *from, size_t size, size_t count, void *arg)
{
    struct client *c = arg;
    size_t n = size * count;
    long status = 0;
    curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &status);
    bool file = c->request->method == METHOD_GET && status < 300;
    char *to = file ? c->request->to : c->answer->text;
    uint64_t room = file ? c->request->room : sizeof c->answer->text - 1;
    uint64_t kept = c->got < room ? room - c->got : 0;
    kept = n < kept ? n : kept;
    memcpy(to + c->got, from, kept);
    c->got += kept;
    if (file)
        return kept == n ? n : CURL_WRITEFUNC_ERROR;
    to[c->got] = 0;
    c->body += n;
    return c->body <= BODY_MAX ? n : CURL_WRITEFUNC_ERROR;
}

static void take_field(char *to, size_t room, const char *value, size_t bytes)
{
    while (bytes > 0 && strchr(" \t\r\n", value[bytes - 1]))
        bytes--;
    if (bytes < room) {
        memcpy(to, value, bytes);
        to[bytes] = 0;
    }
}

static size_t on_head(char *line, size_t size, size_t count, void *arg)
{
    struct client *c = arg;
    size_t n = size * count, name;
    const char *colon = memchr(line, ':', n);
    if (!colon)
        return n;
    name = (size_t)(colon - line);
    const char *value = colon + 1;
    while (value < line + n && *value == ' ')
        value++;
    size_t bytes = (size_t)(line + n - value);
    if (name == 4 && strncasecmp(line, "ETag", 4) == 0)
        take_field(c->answer->tag, sizeof c->answer->tag, value, bytes);
    else if (name == 13 && strncasecmp(line, "Last-Modified", 13) == 0)
        take_field(c->answer->modified, sizeof c->answer->modified, value, bytes);
    return n;
}

/* Called for what moves, and each second. */
static int on_progress(void *arg, curl_off_t all, curl_off_t got, curl_off_t size, curl_off_t sent)
{
    struct client *c = arg;
    (void)all, (void)size;
    bool whole = c->request->method != METHOD_PUT || (uint64_t)sent >= c->request->bytes;
    c->late = watch_look(&c->watch, (uint64_t)got + (uint64_t)sent, whole, clock_now_ns());
    return c->late != NULL;
}

/* ---- one try --------------------------------------------------------------------------------- */

/* S3 compares it with what arrives. */
static int hash_body(struct client *c, const struct request *r, struct error *error)
{
    struct sha256 s;
    sha256_start(&s);
    if (r->method == METHOD_POST)
        sha256_add(&s, r->text, strlen(r->text));
    char *chunk = r->method == METHOD_PUT && c->url.s3 ? malloc(CHUNK_BYTES) : NULL;
    for (uint64_t at = 0; chunk && at < r->bytes;) {
        uint64_t left = r->bytes - at;
        ssize_t n =
            pread(r->file->fd, chunk, left < CHUNK_BYTES ? left : CHUNK_BYTES, (off_t)(r->at + at));
        if (n <= 0) {
            free(chunk);
            return error_set_errno(error, ERR_IO, n < 0 ? errno : EIO, "cannot read %.200s",
                                   r->name);
        }
        sha256_add(&s, chunk, (size_t)n);
        at += (uint64_t)n;
    }
    free(chunk);
    sha256_end(&s, c->hash);
    return 0;
}

static bool set_method(struct client *c, const struct request *r)
{
    CURL *e = c->easy;
    switch (r->method) {
    case METHOD_HEAD: return curl_easy_setopt(e, CURLOPT_NOBODY, 1L) == CURLE_OK;
    case METHOD_GET: return curl_easy_setopt(e, CURLOPT_HTTPGET, 1L) == CURLE_OK;
    case METHOD_PUT:
        curl_easy_setopt(e, CURLOPT_READFUNCTION, on_read);
        curl_easy_setopt(e, CURLOPT_READDATA, c);
        curl_easy_setopt(e, CURLOPT_SEEKFUNCTION, on_seek);
        curl_easy_setopt(e, CURLOPT_SEEKDATA, c);
        curl_easy_setopt(e, CURLOPT_INFILESIZE_LARGE, (curl_off_t)r->bytes);
        return curl_easy_setopt(e, CURLOPT_UPLOAD, 1L) == CURLE_OK;
    default:
        curl_easy_setopt(e, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(r->text));
        return curl_easy_setopt(e, CURLOPT_POSTFIELDS, r->text) == CURLE_OK &&
               request_header(&c->headers, "Content-Type", "application/xml");
    }
}

static int sign(struct client *c, struct error *error)
{
    struct credentials credentials = {.id = ""};
    if (c->url.s3 && credentials_take(c->url.credentials, c->url.profile, &credentials, error) != 0)
        return -1;
    bool right = request_sign_headers(&c->headers, &credentials, c->hash) &&
                 request_sign(c->easy, &c->url, &credentials);
    credentials_forget(&credentials);
    return right ? 0 : error_set(error, ERR_NO_MEMORY, "out of memory (push)");
}

static int prepare(struct client *c, const struct request *r, struct error *error)
{
    char text[IO_URL_TEXT_BYTES], address[REQUEST_ADDRESS_BYTES];
    struct io_url url;
    if (push_url(c->push->url, r->name, text, error) != 0 || io_url_parse(text, &url, error) != 0)
        return -1;
    request_address(&url, r->query, address);
    curl_easy_reset(c->easy);
    request_forget(&c->headers);
    if (request_set(c->easy, &url, address, c->resolve) != 0 || !set_method(c, r))
        return error_set(error, ERR_NO_MEMORY, "out of memory (push)");
    if (sign(c, error) != 0)
        return -1;
    curl_easy_setopt(c->easy, CURLOPT_HTTPHEADER, c->headers);
    curl_easy_setopt(c->easy, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(c->easy, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(c->easy, CURLOPT_XFERINFODATA, c);
    curl_easy_setopt(c->easy, CURLOPT_ERRORBUFFER, c->why);
    curl_easy_setopt(c->easy, CURLOPT_HEADERFUNCTION, on_head);
    curl_easy_setopt(c->easy, CURLOPT_HEADERDATA, c);
    curl_easy_setopt(c->easy, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(c->easy, CURLOPT_WRITEDATA, c);
    return 0;
}

static void take_size(struct client *c, const struct request *r, struct answer *a)
{
    curl_off_t length = -1;
    curl_easy_getinfo(c->easy, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    a->bytes = r->method == METHOD_GET ? c->got : length > 0 ? (uint64_t)length : 0;
}

/* ---- judgement ------------------------------------------------------------------------------- */

/* What a status means that administrators meet first. */
static const char *hint(long status)
{
    static const struct {
        long status;
        const char *text;
    } hints[] = {
        {405, ": it permits no PUT (nginx: dav_methods PUT)"},
        {409, ": the directory is missing (nginx: create_full_put_path on)"},
        {413, ": the file is too large for it (nginx: client_max_body_size 0)"},
        {507, ": its disk is full"},
    };
    for (size_t i = 0; i < ARRAY_LEN(hints); i++)
        if (hints[i].status == status)
            return hints[i].text;
    return "";
}

/* Codes are of S3, which says 400, 403 or 409. */
static bool passes(long status, const char *code)
{
    static const char *const codes[] = {"ExpiredToken", "RequestTimeout", "OperationAborted"};
    for (size_t i = 0; i < ARRAY_LEN(codes); i++)
        if (strstr(code, codes[i]))
            return true;
    return status == 408 || status == 429 ||
           (status >= 500 && status != 501 && status != 505 && status != 507);
}

enum verdict { RIGHT, AGAIN, WRONG };

/* S3 may find an error after it has sent the head of an answer: it is in the body then. */
static enum verdict judge(struct client *c, const struct request *r, const struct answer *a,
                          CURLcode result, char why[ANSWER_TAG_BYTES])
{
    char code[REQUEST_CODE_BYTES];
    request_code(a->text, code);
    bool reads = r->method == METHOD_HEAD || r->method == METHOD_GET;
    if (result == CURLE_OK &&
        ((a->status >= 200 && a->status < 300 && !code[0]) || (reads && a->status == 404)))
        return RIGHT;
    if (a->status >= 300 || (a->status >= 200 && code[0])) {
        snprintf(why, ANSWER_TAG_BYTES, "it answers %ld%s%s", a->status, code, hint(a->status));
        /* An answer to HEAD has no code: credentials may have expired that were right before. */
        bool unsaid =
            r->method == METHOD_HEAD && c->right && (a->status == 400 || a->status == 403);
        return passes(a->status, code) || unsaid || a->status < 300 ? AGAIN : WRONG;
    }
    const char *text = c->why[0] ? c->why : curl_easy_strerror(result);
    text = result == CURLE_WRITE_ERROR ? "its answer is too long" : text;
    snprintf(why, ANSWER_TAG_BYTES, "%s", c->late ? c->late : text);
    if (c->late)
        return AGAIN;
    return result == CURLE_PEER_FAILED_VERIFICATION || result == CURLE_SSL_CERTPROBLEM ||
                   result == CURLE_ABORTED_BY_CALLBACK || result == CURLE_WRITE_ERROR
               ? WRONG
               : AGAIN;
}

static void wait_before(struct client *c, unsigned tries)
{
    uint64_t pause = PAUSE_FIRST_NS << tries;
    curl_off_t asked = 0;
    curl_easy_getinfo(c->easy, CURLINFO_RETRY_AFTER, &asked);
    pause = pause < PAUSE_LAST_NS ? pause : PAUSE_LAST_NS;
    pause = pause / 2 + (uint64_t)((double)(pause / 2) * random_unit(&c->random));
    if (asked > 0)
        pause = (uint64_t)(asked < WAIT_MAX_S ? asked : WAIT_MAX_S) * NS_PER_S;
    struct timespec t = {(time_t)(pause / NS_PER_S), (long)(pause % NS_PER_S)};
    clock_nanosleep(CLOCK_MONOTONIC, 0, &t, NULL);
}

int client_ask(struct client *c, const struct request *r, struct answer *a, struct error *error)
{
    char why[ANSWER_TAG_BYTES] = "", shown[IO_URL_TEXT_BYTES];
    enum verdict verdict = AGAIN;
    if (push_url(c->push->given, r->name, shown, error) != 0 || hash_body(c, r, error) != 0)
        return -1;
    for (unsigned i = 0; i < c->push->tries && verdict == AGAIN; i++) {
        if (i > 0) {
            fprintf(stderr, "push: %.300s: %s; it is tried again\n", shown, why);
            wait_before(c, i - 1);
        }
        *a = (struct answer){.status = 0};
        c->request = r;
        c->answer = a;
        c->sent = c->got = c->body = 0;
        c->late = NULL;
        c->why[0] = 0;
        if (prepare(c, r, error) != 0)
            return -1;
        bool reads = r->method == METHOD_HEAD || r->method == METHOD_GET;
        watch_start(&c->watch, reads, clock_now_ns());
        CURLcode result = curl_easy_perform(c->easy);
        curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &a->status);
        take_size(c, r, a);
        verdict = judge(c, r, a, result, why);
        c->right |= verdict == RIGHT;
        if (verdict != RIGHT)
            meter_piece(c->push, 0, false);
    }
    request_forget(&c->headers);
    return verdict == RIGHT
               ? 0
               : error_set(error, a->status == 404 ? ERR_GONE : ERR_IO, "%.250s: %s", shown, why);
}

/* ---- life ------------------------------------------------------------------------------------ */

struct client *client_open(struct push *p, struct error *error)
{
    struct client *c = calloc(1, sizeof *c);
    if (!c) {
        error_set(error, ERR_NO_MEMORY, "out of memory (push)");
        return NULL;
    }
    c->push = p;
    random_seed(&c->random, clock_now_ns(), (uint64_t)getpid());
    if (io_url_parse(p->url, &c->url, error) == 0) {
        bool right = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
        c->easy = right ? curl_easy_init() : NULL;
        if (c->easy && request_resolve(&c->url, &c->resolve) == 0)
            return c;
        error_set(error, ERR_FAILED, "libcurl cannot be used");
    }
    client_close(c);
    return NULL;
}

void client_close(struct client *c)
{
    if (c->easy)
        curl_easy_cleanup(c->easy);
    request_forget(&c->headers);
    curl_slist_free_all(c->resolve);
    curl_global_cleanup();
    free(c);
}

bool client_is_s3(const struct client *c)
{
    return c->url.s3;
}
