/* SPDX-License-Identifier: Apache-2.0 */
/* Reads JSON piece by piece with a machine that knows what the grammar permits next. */
#include "lib/json/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"

#define READER_MAGIC 0x4e4a5352u
#define WINDOW_BYTES (64 * KIB)
#define DEPTH_MAX    2048

/* What the grammar permits next. */
enum expect { EXPECT_VALUE, EXPECT_FIRST, EXPECT_AFTER, EXPECT_END };

struct json_reader {
    uint32_t magic;
    struct json_limits limits;
    int fd;       /* -1: a text in memory, which is the window */
    char *window; /* owned; NULL for a text */
    const char *start, *at, *end;
    uint64_t passed; /* bytes before the window */
    char *text;      /* of a key, string or number */
    size_t bytes, capacity;
    uint64_t values;
    int64_t integer;
    double real;
    enum json_event last;
    enum expect expect;
    struct error error;
    unsigned depth;
    char open[DEPTH_MAX]; /* '{' or '[' */
};

/* ---- opening ---- */

static struct json_reader *reader_new(const struct json_limits *limits, struct error *error)
{
    struct json_reader *r = calloc(1, sizeof *r);
    sl_assert(limits->depth <= DEPTH_MAX);
    if (!r) {
        error_set(error, ERR_NO_MEMORY, "out of memory (JSON)");
        return NULL;
    }
    r->magic = READER_MAGIC;
    r->limits = *limits;
    r->fd = -1;
    r->expect = EXPECT_VALUE;
    return r;
}

struct json_reader *json_reader_text_of(const char *text, size_t bytes,
                                        const struct json_limits *limits, struct error *error)
{
    struct json_reader *r = reader_new(limits, error);
    if (!r)
        return NULL;
    r->start = r->at = text;
    r->end = text + bytes;
    return r;
}

static int open_file(struct json_reader *r, const char *path, struct error *error)
{
    struct stat st;
    r->window = malloc(WINDOW_BYTES);
    if (!r->window)
        return error_set(error, ERR_NO_MEMORY, "out of memory (JSON)");
    r->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO is rejected, not waited for */
    if (r->fd < 0)
        return error_set_errno(error, ERR_BAD_INPUT, errno, "cannot open %.250s", path);
    if (fstat(r->fd, &st) != 0 || !S_ISREG(st.st_mode) || (uint64_t)st.st_size > r->limits.bytes)
        return error_set(error, ERR_BAD_INPUT,
                         "%.250s: not a regular file of at most %" PRIu64 " bytes", path,
                         r->limits.bytes);
    r->start = r->at = r->end = r->window;
    return 0;
}

struct json_reader *json_reader_file(const char *path, const struct json_limits *limits,
                                     struct error *error)
{
    struct json_reader *r = reader_new(limits, error);
    if (r && open_file(r, path, error) != 0) {
        json_reader_close(r);
        return NULL;
    }
    return r;
}

void json_reader_close(struct json_reader *r)
{
    if (!r)
        return;
    OBJ_CHECK(r, READER_MAGIC);
    if (r->fd >= 0)
        close(r->fd);
    free(r->window);
    free(r->text);
    r->magic = 0;
    free(r);
}

/* ---- errors ---- */

static uint64_t position(const struct json_reader *r)
{
    return r->passed + (uint64_t)(r->at - r->start);
}

void json_reader_fail(struct json_reader *r, enum error_code code, const char *text)
{
    if (r->error.code == ERR_NONE)
        error_set(&r->error, code, "%.300s", text);
    r->last = JSON_EVENT_ERROR;
}

static enum json_event invalid(struct json_reader *r, const char *what)
{
    if (r->error.code == ERR_NONE)
        error_set(&r->error, ERR_BAD_INPUT, "invalid JSON: %s (at byte %" PRIu64 ")", what,
                  position(r));
    return r->last = JSON_EVENT_ERROR;
}

/* ---- bytes ---- */

/* The next byte, which stays; -1 at the end and after an error of the file. */
static int peek(struct json_reader *r)
{
    if (r->at < r->end)
        return (unsigned char)*r->at;
    if (r->fd < 0 || r->error.code != ERR_NONE)
        return -1;
    ssize_t n;
    do
        n = read(r->fd, r->window, WINDOW_BYTES);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        error_set_errno(&r->error, ERR_IO, errno, "cannot read");
    if (n <= 0)
        return -1;
    r->passed += (uint64_t)(r->end - r->window);
    r->at = r->window;
    r->end = r->window + n;
    if (r->passed + (uint64_t)n > r->limits.bytes) { /* it grew */
        invalid(r, "too long");
        return -1;
    }
    return (unsigned char)*r->at;
}

static int take(struct json_reader *r)
{
    int c = peek(r);
    if (c >= 0)
        r->at++;
    return c;
}

static int skip_space(struct json_reader *r)
{
    int c;
    while ((c = peek(r)) == ' ' || c == '\t' || c == '\n' || c == '\r')
        r->at++;
    return c;
}

/* False after an error. */
static bool append(struct json_reader *r, char c)
{
    if (r->bytes + 1 >= r->capacity) {
        size_t capacity = r->capacity ? 2 * r->capacity : 256;
        char *bigger = realloc(r->text, capacity);
        if (!bigger) {
            json_reader_fail(r, ERR_NO_MEMORY, "out of memory (JSON)");
            return false;
        }
        r->text = bigger;
        r->capacity = capacity;
    }
    if (r->bytes >= r->limits.string) {
        invalid(r, "a string that is too long");
        return false;
    }
    r->text[r->bytes++] = c;
    r->text[r->bytes] = 0;
    return true;
}

static bool start_text(struct json_reader *r)
{
    r->bytes = 0;
    if (!append(r, 0))
        return false;
    r->bytes = 0;
    return true;
}

/* ---- strings ---- */

static bool hex4(struct json_reader *r, uint32_t *value)
{
    *value = 0;
    for (int i = 0; i < 4; i++) {
        int c = take(r);
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0) {
            invalid(r, "an escape without four digits");
            return false;
        }
        *value = *value << 4 | (uint32_t)digit;
    }
    return true;
}

static bool append_utf8(struct json_reader *r, uint32_t c)
{
    if (c < 0x80)
        return append(r, (char)c);
    if (c < 0x800)
        return append(r, (char)(0xc0 | c >> 6)) && append(r, (char)(0x80 | (c & 0x3f)));
    if (c < 0x10000)
        return append(r, (char)(0xe0 | c >> 12)) && append(r, (char)(0x80 | (c >> 6 & 0x3f))) &&
               append(r, (char)(0x80 | (c & 0x3f)));
    return append(r, (char)(0xf0 | c >> 18)) && append(r, (char)(0x80 | (c >> 12 & 0x3f))) &&
           append(r, (char)(0x80 | (c >> 6 & 0x3f))) && append(r, (char)(0x80 | (c & 0x3f)));
}

/* After "\u". */
static bool unicode_escape(struct json_reader *r)
{
    uint32_t c, low;
    if (!hex4(r, &c))
        return false;
    if (c >= 0xd800 && c <= 0xdbff) {
        if (take(r) != '\\' || take(r) != 'u' || !hex4(r, &low) || low < 0xdc00 || low > 0xdfff) {
            invalid(r, "half of a surrogate pair");
            return false;
        }
        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
    } else if ((c >= 0xdc00 && c <= 0xdfff) || c == 0) {
        invalid(r, c ? "half of a surrogate pair" : "a NUL character");
        return false;
    }
    return append_utf8(r, c);
}

static bool escape(struct json_reader *r)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    int c = take(r);
    if (c == 'u')
        return unicode_escape(r);
    const char *found = c > 0 ? strchr(from, c) : NULL;
    if (!found) {
        invalid(r, "an unknown escape");
        return false;
    }
    return append(r, to[found - from]);
}

/* The bytes after the first of a UTF-8 character. */
static bool continuation(struct json_reader *r, unsigned first)
{
    unsigned more = first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : 1;
    unsigned low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    unsigned high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    bool valid = first >= 0xc2 && first <= 0xf4 && append(r, (char)first);
    for (unsigned i = 0; valid && i < more; i++) {
        int c = take(r);
        valid = c >= (int)low && c <= (int)high && append(r, (char)c);
        low = 0x80;
        high = 0xbf;
    }
    if (!valid)
        invalid(r, "no UTF-8");
    return valid;
}

/* After the quotation mark. */
static bool string(struct json_reader *r)
{
    if (!start_text(r))
        return false;
    for (;;) {
        int c = take(r);
        if (c == '"')
            return true;
        if (c < 0x20) {
            invalid(r, c < 0 ? "an unfinished string" : "a control character in a string");
            return false;
        }
        if (c == '\\' ? !escape(r) : c < 0x80 ? !append(r, (char)c) : !continuation(r, (unsigned)c))
            return false;
    }
}

/* ---- numbers and words ---- */

static bool digits(struct json_reader *r)
{
    size_t before = r->bytes;
    for (int c; (c = peek(r)) >= '0' && c <= '9';)
        if (!append(r, (char)take(r)))
            return false;
    return r->bytes > before;
}

static bool one_of(struct json_reader *r, const char *set)
{
    int c = peek(r);
    return c > 0 && strchr(set, c) && append(r, (char)take(r));
}

static enum json_event number(struct json_reader *r)
{
    bool real = false;
    if (!start_text(r))
        return JSON_EVENT_ERROR;
    (void)one_of(r, "-");
    if (!one_of(r, "0") && !digits(r))
        return invalid(r, "no value");
    if (one_of(r, ".")) {
        real = true;
        if (!digits(r))
            return invalid(r, "a number without a fraction");
    }
    if (one_of(r, "eE")) {
        real = true;
        (void)one_of(r, "+-");
        if (!digits(r))
            return invalid(r, "a number without an exponent");
    }
    errno = 0;
    if (real) {
        r->real = strtod(r->text, NULL);
        return isfinite(r->real) ? JSON_EVENT_REAL : invalid(r, "a number that is too large");
    }
    r->integer = strtoll(r->text, NULL, 10);
    return errno == 0 ? JSON_EVENT_INTEGER : invalid(r, "a number that is too large");
}

static enum json_event word(struct json_reader *r, const char *expected, enum json_event event)
{
    for (; *expected; expected++)
        if (take(r) != *expected)
            return invalid(r, "no value");
    return event;
}

/* ---- structure ---- */

static enum json_event enter(struct json_reader *r, char open)
{
    r->at++;
    if (r->depth == r->limits.depth)
        return invalid(r, "nested too deeply");
    r->open[r->depth++] = open;
    r->expect = EXPECT_FIRST;
    return open == '{' ? JSON_EVENT_OBJECT : JSON_EVENT_ARRAY;
}

static enum json_event leave(struct json_reader *r)
{
    char open = r->open[--r->depth];
    r->at++;
    r->expect = r->depth ? EXPECT_AFTER : EXPECT_END;
    return open == '{' ? JSON_EVENT_OBJECT_END : JSON_EVENT_ARRAY_END;
}

static enum json_event scalar(struct json_reader *r, int c)
{
    r->expect = r->depth ? EXPECT_AFTER : EXPECT_END;
    switch (c) {
    case '"': r->at++; return string(r) ? JSON_EVENT_STRING : JSON_EVENT_ERROR;
    case 't': return word(r, "true", JSON_EVENT_TRUE);
    case 'f': return word(r, "false", JSON_EVENT_FALSE);
    case 'n': return word(r, "null", JSON_EVENT_NULL);
    default: return number(r);
    }
}

static enum json_event value(struct json_reader *r, int c)
{
    return c == '{' || c == '[' ? enter(r, (char)c) : scalar(r, c);
}

static enum json_event key(struct json_reader *r, int c)
{
    if (c != '"')
        return invalid(r, "no key");
    r->at++;
    if (!string(r))
        return JSON_EVENT_ERROR;
    if (skip_space(r) != ':')
        return invalid(r, "a key without a value");
    r->at++;
    r->expect = EXPECT_VALUE;
    return JSON_EVENT_KEY;
}

static enum json_event after(struct json_reader *r, int c)
{
    if (c == (r->open[r->depth - 1] == '{' ? '}' : ']'))
        return leave(r);
    if (c != ',')
        return invalid(r, c < 0 ? "an unfinished document" : "no comma");
    r->at++;
    c = skip_space(r);
    return r->open[r->depth - 1] == '{' ? key(r, c) : value(r, c);
}

static enum json_event first(struct json_reader *r, int c)
{
    bool object = r->open[r->depth - 1] == '{';
    if (c == (object ? '}' : ']'))
        return leave(r);
    return object ? key(r, c) : value(r, c);
}

enum json_event json_next(struct json_reader *r)
{
    OBJ_CHECK(r, READER_MAGIC);
    if (r->error.code != ERR_NONE)
        return r->last = JSON_EVENT_ERROR;
    int c = skip_space(r);
    switch (r->expect) {
    case EXPECT_FIRST: r->last = first(r, c); break;
    case EXPECT_AFTER: r->last = after(r, c); break;
    case EXPECT_END:
        r->last = c < 0 ? JSON_EVENT_END : invalid(r, "text after the document");
        break;
    case EXPECT_VALUE: r->last = value(r, c); break;
    }
    if (r->error.code != ERR_NONE)
        r->last = JSON_EVENT_ERROR;
    return r->last;
}

const char *json_reader_text(const struct json_reader *r)
{
    return r->text ? r->text : "";
}

size_t json_reader_bytes(const struct json_reader *r)
{
    return r->bytes;
}

int64_t json_reader_integer(const struct json_reader *r)
{
    return r->integer;
}

double json_reader_real(const struct json_reader *r)
{
    return r->real;
}

void json_reader_allow_values(struct json_reader *r, uint64_t values)
{
    r->values = 0;
    r->limits.values = values;
}

bool json_reader_count_value(struct json_reader *r)
{
    if (r->values++ < r->limits.values)
        return true;
    invalid(r, "too many values");
    return false;
}

enum json_event json_last_event(const struct json_reader *r)
{
    return r->last;
}

int json_reader_end(struct json_reader *r, struct error *error)
{
    if (r->error.code == ERR_NONE)
        json_next(r);
    if (r->error.code == ERR_NONE && r->last != JSON_EVENT_END)
        invalid(r, "an unfinished document");
    if (r->error.code == ERR_NONE)
        return 0;
    return error_set(error, r->error.code, "%s", r->error.text);
}
