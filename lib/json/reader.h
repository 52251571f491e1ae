/* SPDX-License-Identifier: Apache-2.0 */
/* A pull parser for JSON of untrusted files: the document is read in pieces, its parts are returned
 * one after the other, and memory is that of the longest string.
 *
 *   struct json_reader *r = json_reader_file("tokenizer.json", &limits, &error);
 *   if (json_next(r) == JSON_EVENT_OBJECT)
 *       while (json_next(r) == JSON_EVENT_KEY)
 *           if (strcmp(json_reader_text(r), "version") == 0)
 *               value = json_read_value(r);
 *           else
 *               json_skip_value(r);
 *   if (json_reader_end(r, &error) != 0) ...   // any error of the calls above
 *   json_reader_close(r);
 *
 * It accepts what jansson accepts, but no NUL after a number: UTF-8 without NUL, integers of 64
 * bits, finite reals. After an error every call returns JSON_EVENT_ERROR. Duplicate keys are
 * rejected by json_read_value only: who takes the keys of an object one by one has to decide about
 * them. */
#ifndef SLUICE_JSON_READER_H
#define SLUICE_JSON_READER_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/base/error.h"

struct json_limits {
    uint64_t bytes;  /* of the document */
    uint64_t string; /* bytes of a string */
    uint64_t values; /* made by json_read_value, all together: a value takes about 100 bytes */
    unsigned depth;  /* of objects and arrays */
};

#define JSON_LIMITS_DEFAULT                                                                        \
    {                                                                                              \
        .bytes = (uint64_t)64 << 20, .string = (uint64_t)4 << 20, .values = 400000, .depth = 64    \
    }

enum json_event {
    JSON_EVENT_ERROR,
    JSON_EVENT_OBJECT,
    JSON_EVENT_OBJECT_END,
    JSON_EVENT_ARRAY,
    JSON_EVENT_ARRAY_END,
    JSON_EVENT_KEY,
    JSON_EVENT_STRING,
    JSON_EVENT_INTEGER,
    JSON_EVENT_REAL,
    JSON_EVENT_TRUE,
    JSON_EVENT_FALSE,
    JSON_EVENT_NULL,
    JSON_EVENT_END
};

struct json_reader;

/* Both: NULL with ERR_BAD_INPUT, ERR_IO or ERR_NO_MEMORY. The text must outlive the reader. */
struct json_reader *json_reader_text_of(const char *text, size_t bytes,
                                        const struct json_limits *limits, struct error *error);
struct json_reader *json_reader_file(const char *path, const struct json_limits *limits,
                                     struct error *error);
void json_reader_close(struct json_reader *r);

enum json_event json_next(struct json_reader *r);

/* The text of the last KEY or STRING, terminated and valid until the next call, and its bytes; the
 * value of the last INTEGER or REAL. */
const char *json_reader_text(const struct json_reader *r);
size_t json_reader_bytes(const struct json_reader *r);
int64_t json_reader_integer(const struct json_reader *r);
double json_reader_real(const struct json_reader *r);

/* The next value (not a key) as jansson's; NULL after an error, and where an array or object ends,
 * which is then the last event. */
json_t *json_read_value(struct json_reader *r);
/* Skips the next value; false after an error. */
bool json_skip_value(struct json_reader *r);
enum json_event json_last_event(const struct json_reader *r);

/* From here on, json_read_value makes at most `values` values. */
void json_reader_allow_values(struct json_reader *r, uint64_t values);

/* Counts a value that is made; false beyond the limit. */
bool json_reader_count_value(struct json_reader *r);

/* Reports an error of the caller's at the present position, unless there was one. */
void json_reader_fail(struct json_reader *r, enum error_code code, const char *text);

/* 0 if there was no error and nothing follows the document. The error has the position, not the
 * file. */
int json_reader_end(struct json_reader *r, struct error *error);

#endif
