/* SPDX-License-Identifier: Apache-2.0 */
/* For parsers that read the files of a directory: the input as records, each of which becomes a
 * file.
 *
 *   name (1 byte: an index of fuzz_names, modulo their number, but for its highest bit) | bytes (3,
 *   little-endian) | zeros (2, in units of 4) | that many bytes, at most those that are left
 *
 * A safetensors file gets its length before its header, and its data is those zeros; unless the
 * highest bit of the name is set, then it is just the bytes. */
#ifndef SLUICE_TESTS_FUZZ_DIR_H
#define SLUICE_TESTS_FUZZ_DIR_H

#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"

#define FUZZ_RECORD_BYTES 6
#define FUZZ_AS_IS        0x80
#define FUZZ_GGUF         7
#define FUZZ_MORE         "additional_chat_templates"

static const char *const fuzz_names[] = {
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "model.safetensors.index.json",
    "model.safetensors",
    "a.safetensors",
    "b.safetensors",
    "model.gguf",
    "tiktoken.model",
    "hy.tiktoken",
    "chat_template.jinja",
    "chat_template.json",
    "tokenizer.model",
    FUZZ_MORE "/tool_use.jinja",
    FUZZ_MORE "/default.jinja",
};

static char fuzz_dir[64]; /* "": not made yet */

static inline void fuzz_dir_clear(void)
{
    char path[PATH_MAX];
    for (size_t i = 0; i < ARRAY_LEN(fuzz_names); i++) {
        snprintf(path, sizeof path, "%s/%s", fuzz_dir, fuzz_names[i]);
        unlink(path);
    }
}

static inline void fuzz_dir_remove(void)
{
    char path[PATH_MAX];
    fuzz_dir_clear();
    snprintf(path, sizeof path, "%s/" FUZZ_MORE, fuzz_dir);
    rmdir(path);
    rmdir(fuzz_dir);
}

static inline void fuzz_write(const char *name, bool headed, const uint8_t *data, size_t bytes,
                              size_t zeros)
{
    char path[PATH_MAX];
    uint64_t length = bytes;
    snprintf(path, sizeof path, "%s/%s", fuzz_dir, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    sl_assert(fd >= 0);
    if (headed)
        sl_assert(write(fd, &length, sizeof length) == sizeof length);
    sl_assert(write(fd, data, bytes) == (ssize_t)bytes);
    sl_assert(ftruncate(fd, (off_t)((headed ? sizeof length : 0) + bytes + zeros)) == 0);
    close(fd);
}

/* Makes the directory of an input again. Returns its path; *gguf: it has a GGUF file. */
static inline const char *fuzz_dir_make(const uint8_t *data, size_t size, bool *gguf)
{
    if (!fuzz_dir[0]) {
        const char *base =
            getenv("TMPDIR"); /* libFuzzer ends without atexit: its caller removes this */
        snprintf(fuzz_dir, sizeof fuzz_dir, "%.40s/sluice-fuzz.XXXXXX", base ? base : "/dev/shm");
        char more[PATH_MAX];
        sl_assert(mkdtemp(fuzz_dir));
        snprintf(more, sizeof more, "%s/" FUZZ_MORE, fuzz_dir);
        sl_assert(mkdir(more, 0700) == 0);
        atexit(fuzz_dir_remove);
    }
    fuzz_dir_clear();
    *gguf = false;
    for (size_t at = 0; size - at >= FUZZ_RECORD_BYTES;) {
        const uint8_t *head = data + at;
        size_t number = (head[0] & ~(unsigned)FUZZ_AS_IS) % ARRAY_LEN(fuzz_names);
        const char *name = fuzz_names[number];
        size_t bytes = head[1] | (size_t)head[2] << 8 | (size_t)head[3] << 16;
        size_t zeros = 4 * (head[4] | (size_t)head[5] << 8);
        at += FUZZ_RECORD_BYTES;
        bytes = bytes < size - at ? bytes : size - at;
        bool headed =
            strstr(name, ".safetensors") && !strstr(name, ".json") && !(head[0] & FUZZ_AS_IS);
        fuzz_write(name, headed, data + at, bytes, zeros);
        *gguf |= number == FUZZ_GGUF;
        at += bytes;
    }
    return fuzz_dir;
}

#endif
