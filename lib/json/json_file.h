/* SPDX-License-Identifier: Apache-2.0 */
/* JSON objects of untrusted files: size-limited, errors in one line. */
#ifndef SLUICE_JSON_JSON_FILE_H
#define SLUICE_JSON_JSON_FILE_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/error.h"

/* Parses a JSON object; duplicate keys are rejected. NULL with ERR_BAD_INPUT: the error has the
 * position, not the file. The caller owns the reference. */
json_t *json_text(const char *text, size_t bytes, struct error *error);

/* json_text for a text of at most `max` bytes that has `format` as "format" and `version` as
 * "version". */
json_t *json_record(const char *text, size_t bytes, size_t max, const char *format, int version,
                    struct error *error);

/* json_text for a file of at most `max` bytes. The error names the path. Also ERR_IO,
 * ERR_NO_MEMORY. */
json_t *json_file(const char *path, uint64_t max, struct error *error);

/* json_file for the files of others, with limits of depth and of memory (reader.h). */
json_t *json_foreign_file(const char *path, uint64_t max, struct error *error);

/* The bytes of such a file, whatever they are; the caller frees them. */
char *json_file_bytes(const char *path, uint64_t max, size_t *bytes, struct error *error);

#endif
