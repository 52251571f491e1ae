/* JSON of foreign files: an object, read under limits, errors in one line. For lib/model only. */
#ifndef SLUICE_JSON_JSON_FILE_H
#define SLUICE_JSON_JSON_FILE_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/error.h"

/* The object a text is. No key twice. NULL with ERR_BAD_INPUT: the error tells where, not in what
 * file. */
json_t *json_text(const char *text, size_t bytes, struct error *error);

/* The object a file is, of at most `max` bytes. The error names the path. */
json_t *json_file(const char *path, uint64_t max, struct error *error);

#endif
