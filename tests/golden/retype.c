/* SPDX-License-Identifier: Apache-2.0 */
/* golden_retype IN.gguf F16|F32|Q8_0 OUT.gguf: writes the model with all tensors that are not F32
 * as the given type. F16 rounds to nearest, F32 is exact, Q8_0 is as in the Python package gguf;
 * they are the same bytes on every machine. The build makes models of the golden tests with it;
 * golden_hash checks the hashes of these files, or of their logits. */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/kernels/kernels.h"
#include "lib/model/gguf/write.h"
#include "lib/tensor/half.h"

#define FILE_TYPE     "general.file_type"
#define Q8_0_ELEMENTS 32
#define Q8_0_BYTES    34

static ssize_t read_fd(void *arg, void *buf, size_t n, uint64_t offset)
{
    return pread(*(int *)arg, buf, n, (off_t)offset);
}

static bool is_file_type(const struct gguf *g, uint32_t key)
{
    const struct gguf_key *k = &g->keys[key];
    return k->name_bytes == strlen(FILE_TYPE) &&
           memcmp(g->header + k->name_at, FILE_TYPE, k->name_bytes) == 0;
}

/* The numbers of these types in FILE_TYPE are those of ggml. */
static void put_header(struct gguf_writer *w, const struct gguf *g, uint32_t type)
{
    for (uint32_t i = 0; i < g->key_count; i++)
        if (is_file_type(g, i))
            gguf_put_u32(w, FILE_TYPE, type);
        else
            gguf_put_copy(w, g, i);
    for (uint32_t i = 0; i < g->tensor_count; i++) {
        const struct model_tensor *t = &g->tensors[i];
        gguf_put_tensor(w, t->name, t->type == TENSOR_F32 ? gguf_type_of(t) : type, t->dims, t->ne);
    }
}

static void put_half(void *out, float value)
{
    uint16_t half = f32_to_f16(value);
    memcpy(out, &half, sizeof half);
}

/* A block of Q8_0: a scale in F16 and bytes, which its F32 value divided. Halves are rounded away
 * from zero. */
static void quantise_block(const float *f32, char *out)
{
    float most = 0;
    for (size_t i = 0; i < Q8_0_ELEMENTS; i++)
        most = fmaxf(most, fabsf(f32[i]));
    float scale = most / 127, inverse = scale > 0 ? 1 / scale : 0;
    put_half(out, scale);
    for (size_t i = 0; i < Q8_0_ELEMENTS; i++)
        out[2 + i] = (char)(int8_t)roundf(f32[i] * inverse);
}

static void retype_row(const struct kernel_matrix *m, uint32_t row, uint32_t type, float *f32,
                       void *out)
{
    kernel_ops_of(ISA_GENERIC)->row_to_f32(m, row, f32);
    if (type == TENSOR_F32)
        memcpy(out, f32, m->k * sizeof *f32);
    for (uint32_t i = 0; type == TENSOR_F16 && i < m->k; i++)
        put_half((char *)out + i * sizeof(uint16_t), f32[i]);
    for (uint32_t i = 0; type == TENSOR_Q8_0 && i < m->k / Q8_0_ELEMENTS; i++)
        quantise_block(f32 + i * Q8_0_ELEMENTS, (char *)out + i * Q8_0_BYTES);
}

static int write_tensor(struct gguf_writer *w, int fd, const struct model_tensor *t, uint64_t bytes,
                        uint32_t type, struct error *error)
{
    uint32_t k = (uint32_t)t->ne[0], rows = (uint32_t)(t->bytes / t->row_bytes);
    char *data = malloc(t->bytes), *out = malloc(bytes);
    float *f32 = malloc(k * sizeof *f32);
    sl_assert(data && out && f32);
    sl_assert(pread(fd, data, t->bytes, (off_t)t->file_offset) == (ssize_t)t->bytes);
    struct kernel_matrix m = {data, t->row_bytes, k, rows, (enum tensor_type)t->type};
    for (uint32_t r = 0; r < rows; r++)
        retype_row(&m, r, type, f32, out + (size_t)r * (bytes / rows));
    int status = gguf_writer_data(w, out, bytes, error);
    free(f32);
    free(out);
    free(data);
    return status;
}

static int retype(const struct gguf *g, int fd, uint32_t type, const char *path,
                  struct error *error)
{
    struct gguf_writer *w = gguf_writer_new(g->alignment);
    sl_assert(w);
    put_header(w, g, type);
    int status = gguf_writer_layout(w, error) || gguf_writer_start(w, path, error) ? -1 : 0;
    for (uint32_t i = 0; i < g->tensor_count && status == 0; i++) {
        const struct model_tensor *t = &g->tensors[i];
        status = write_tensor(w, fd, t, gguf_writer_tensor_bytes(w, i),
                              t->type == TENSOR_F32 ? TENSOR_F32 : type, error);
    }
    status = status || gguf_writer_end(w, error) ? -1 : 0;
    gguf_writer_free(w);
    return status;
}

/* False: none of the three. */
static bool type_of(const char *name, uint32_t *type)
{
    static const enum tensor_type types[] = {TENSOR_F16, TENSOR_F32, TENSOR_Q8_0};
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        *type = types[i];
        if (strcmp(tensor_type_info(types[i])->name, name) == 0)
            return true;
    }
    return false;
}

int main(int argc, char **argv)
{
    struct error error = {0};
    struct stat st;
    struct gguf g;
    uint32_t type;
    int fd = argc == 4 ? open(argv[1], O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0 || fstat(fd, &st) != 0 || !type_of(argv[2], &type)) {
        fprintf(stderr, "usage: golden_retype IN.gguf F16|F32|Q8_0 OUT.gguf\n");
        return 2;
    }
    struct gguf_source source = {.read = read_fd, .arg = &fd, .bytes = (uint64_t)st.st_size};
    int status = gguf_open(&g, &source, &error);
    if (status == 0) {
        status = retype(&g, fd, type, argv[3], &error);
        gguf_close(&g);
    }
    close(fd);
    if (status)
        fprintf(stderr, "golden_retype: %s\n", error.text);
    return status ? 1 : 0;
}
