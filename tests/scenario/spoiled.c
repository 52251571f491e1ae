/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a model file with numbers that are not finite. */
#include "tests/scenario/spoiled.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/model/gguf/gguf.h"
#include "lib/tensor/tensor_type.h"
#include "tests/harness/harness.h"

#define COPY_MS 60000

static ssize_t read_mapped(void *file, void *buf, size_t n, uint64_t offset)
{
    memcpy(buf, (const char *)file + offset, n);
    return (ssize_t)n;
}

#define EMBEDDINGS "token_embd.weight"
#define EVERY_ROW  UINT32_MAX

struct spoiling {
    const char *tensor;
    uint32_t row; /* of the embeddings */
    bool infinite;
};

/* The first float, or the scale of the first block. */
static void spoil_at(char *to, const struct model_tensor *t, bool infinite)
{
    static const uint32_t nan = 0x7fc00000, inf = 0x7f800000;
    static const uint16_t half_nan = 0x7e00, half_inf = 0x7c00;
    if (t->type == TENSOR_F32)
        memcpy(to, infinite ? &inf : &nan, sizeof nan);
    else
        memcpy(to, infinite ? &half_inf : &half_nan, sizeof half_nan);
}

/* The first number of the tensor, of each of its experts, or of each row of the embeddings, or of
 * one. */
static void spoil(char *file, const struct model_tensor *t, const struct spoiling *s)
{
    char *data = file + t->file_offset;
    if (s->row != EVERY_ROW) {
        CHECK(s->row < t->ne[1], "no token %u", s->row);
        spoil_at(data + s->row * t->row_bytes, t, s->infinite);
        return;
    }
    uint64_t each = t->dims == 3 ? t->bytes / t->ne[2] : t->dims == 2 ? t->row_bytes : t->bytes;
    bool all = t->dims == 3 || strcmp(t->name, EMBEDDINGS) == 0;
    for (uint64_t at = 0; at < t->bytes; at += all ? each : t->bytes)
        spoil_at(data + at, t, s->infinite);
}

static void make(char path[PATH_MAX], const char *model, const struct spoiling *s)
{
    struct error error;
    struct stat st;
    struct gguf g;
    struct command c;
    snprintf(path, PATH_MAX, "%s/spoiled.gguf", test_dir());
    command_run(&c, NULL, COPY_MS, (const char *const[]){"/bin/cp", model, path, NULL});
    CHECK(c.status == 0, "%.300s", c.err);
    command_free(&c);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    CHECK(fd >= 0 && fstat(fd, &st) == 0, "%s: %s", path, strerror(errno));
    char *file = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    CHECK(file != MAP_FAILED, "%s: %s", path, strerror(errno));
    struct gguf_source source = {.read = read_mapped, .arg = file, .bytes = (uint64_t)st.st_size};
    CHECK(gguf_open(&g, &source, &error) == 0, "%s", error.text);
    uint32_t found = 0;
    for (uint32_t i = 0; i < g.tensor_count; i++)
        if (strcmp(g.tensors[i].name, s->tensor) == 0) {
            spoil(file, &g.tensors[i], s);
            found++;
        }
    CHECK(found == 1, "no tensor %s", s->tensor);
    gguf_close(&g);
    munmap(file, (size_t)st.st_size);
}

void spoiled_model(char path[PATH_MAX], const char *model, const char *tensor, bool infinite)
{
    make(path, model, &(struct spoiling){tensor, EVERY_ROW, infinite});
}

void spoiled_token(char path[PATH_MAX], const char *model, uint32_t token)
{
    make(path, model, &(struct spoiling){EMBEDDINGS, token, false});
}
