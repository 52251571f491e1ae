/* SPDX-License-Identifier: Apache-2.0 */
/* Reads small JSON files as a whole, with a limit of size and checks of the file's kind. */
#include "lib/json/json_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/json/reader.h"
#include "lib/text/printable.h"

json_t *json_text(const char *text, size_t bytes, struct error *error)
{
    json_error_t why;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &why);
    if (!root) {
        error_set(error, ERR_BAD_INPUT, "invalid JSON: %s (at byte %d)",
                  printable(why.text, strnlen(why.text, sizeof why.text)).text, why.position);
        return NULL;
    }
    if (!json_is_object(root)) {
        json_decref(root);
        error_set(error, ERR_BAD_INPUT, "not a JSON object");
        return NULL;
    }
    return root;
}

json_t *json_record(const char *text, size_t bytes, size_t max, const char *format, int version,
                    struct error *error)
{
    if (bytes > max) {
        error_set(error, ERR_BAD_INPUT, "longer than %zu bytes", max);
        return NULL;
    }
    json_t *root = json_text(text, bytes, error);
    const char *have = json_string_value(json_object_get(root, "format"));
    bool known = have && strcmp(have, format) == 0;
    if (!root || (known && json_integer_value(json_object_get(root, "version")) == version))
        return root;
    json_decref(root);
    error_set(error, ERR_BAD_INPUT, "'%s' is missing or wrong", known ? "version" : "format");
    return NULL;
}

char *json_file_bytes(const char *path, uint64_t max, size_t *bytes, struct error *error)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO is rejected, not waited for */
    if (fd < 0) {
        error_set_errno(error, ERR_BAD_INPUT, errno, "cannot open %.250s", path);
        return NULL;
    }
    char *text = NULL;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || (uint64_t)st.st_size > max)
        error_set(error, ERR_BAD_INPUT, "%.250s: not a regular file of at most %" PRIu64 " bytes",
                  path, max);
    else if (!(text = malloc((size_t)st.st_size + 1)))
        error_set(error, ERR_NO_MEMORY, "out of memory (%.250s)", path);
    for (*bytes = 0; text && *bytes < (size_t)st.st_size;) {
        ssize_t n = read(fd, text + *bytes, (size_t)st.st_size - *bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            error_set_errno(error, ERR_IO, errno, "cannot read %.250s", path);
            free(text);
            text = NULL;
        } else if (n == 0) {
            break;
        } else {
            *bytes += (size_t)n;
        }
    }
    close(fd);
    return text;
}

json_t *json_file(const char *path, uint64_t max, struct error *error)
{
    size_t bytes;
    struct error why;
    char *text = json_file_bytes(path, max, &bytes, error);
    if (!text)
        return NULL;
    json_t *root = json_text(text, bytes, &why);
    free(text);
    if (!root)
        error_set(error, why.code, "%.200s: %.180s", path, why.text);
    return root;
}

json_t *json_foreign_file(const char *path, uint64_t max, struct error *error)
{
    struct json_limits limits = JSON_LIMITS_DEFAULT;
    struct error why;
    limits.bytes = max;
    struct json_reader *r = json_reader_file(path, &limits, error);
    if (!r)
        return NULL;
    json_t *root = json_read_value(r);
    int status = json_reader_end(r, &why);
    if (status == 0 && !json_is_object(root))
        status = error_set(&why, ERR_BAD_INPUT, "not a JSON object");
    json_reader_close(r);
    if (status == 0)
        return root;
    error_set(error, why.code, "%.200s: %.180s", path, why.text);
    json_decref(root);
    return NULL;
}
