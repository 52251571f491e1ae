/* SPDX-License-Identifier: Apache-2.0 */
/* nested_models IN.gguf OUT_DIR: writes the model once for every form of lower precision that
 * nested.sh compares, with experts as F16 after quantisation. Separate forms come from lib/quant.
 * Nested forms store a base and differences: a higher precision is the lower one plus one entry.
 *
 *   prefix   the 8-bit codes of a row; lower precisions are their first 4 and 2 bits, decoded to
 *            the middle of the range of the missing bits
 *   fitted   the same codes, with a scale and zero per precision (fitted by squared error)
 *   residual 2 bits by lib/quant; 2 more bits for the error; 4 more bits for the remaining error */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/model/gguf/write.h"
#include "lib/model/limits.h"
#include "lib/quant/quant.h"
#include "lib/tensor/tensor_type.h"

#define THREADS 4
#define K_MAX   4096

static void through(enum tensor_type type, const float *w, uint32_t k, float *out)
{
    static _Thread_local unsigned char row[K_MAX * 2];
    struct kernel_matrix m = {.data = row, .k = k, .n = 1, .type = type};
    sl_assert(k <= K_MAX && tensor_type_row_bytes(type, k, &m.row_bytes));
    sl_assert(quant_rows(type, w, k, 1, row, NULL) == 0);
    quant_dequantise(&m, 0, 1, out);
}

/* The 8-bit codes of C8 as numbers, derived from its decoded values: the smallest step is the
 * scale. */
static void codes_of(const float *w, uint32_t k, float *code)
{
    float low = w[0], high = w[0];
    for (uint32_t i = 0; i < k; i++) {
        low = w[i] < low ? w[i] : low;
        high = w[i] > high ? w[i] : high;
    }
    float scale = high > low ? (high - low) / 255 : 1;
    for (uint32_t i = 0; i < k; i++)
        code[i] = (float)(int)((w[i] - low) / scale + 0.5f);
}

/* out = a * q + b with the minimum squared error. */
static void fit(const float *q, const float *w, uint32_t k, float *out)
{
    double sq = 0, sw = 0, sqq = 0, sqw = 0, n = k;
    for (uint32_t i = 0; i < k; i++) {
        sq += q[i];
        sw += w[i];
        sqq += (double)q[i] * q[i];
        sqw += (double)q[i] * w[i];
    }
    double det = n * sqq - sq * sq, a = det != 0 ? (n * sqw - sq * sw) / det : 0;
    double b = (sw - a * sq) / n;
    for (uint32_t i = 0; i < k; i++)
        out[i] = (float)(a * q[i] + b);
}

static void prefix(const float *w, uint32_t k, int bits, bool fitted, float *out)
{
    float code[K_MAX], low = w[0], high = w[0];
    int drop = 8 - bits;
    codes_of(w, k, code);
    for (uint32_t i = 0; i < k; i++) {
        low = w[i] < low ? w[i] : low;
        high = w[i] > high ? w[i] : high;
        code[i] = (float)((int)code[i] >> drop << drop) + (float)((1 << drop) - 1) / 2;
    }
    if (fitted) {
        fit(code, w, k, out);
        return;
    }
    for (uint32_t i = 0; i < k; i++)
        out[i] = low + code[i] * (high - low) / 255;
}

static void residual(const float *w, uint32_t k, int parts, const enum tensor_type *types,
                     float *out)
{
    float rest[K_MAX], part[K_MAX];
    memcpy(rest, w, k * sizeof *w);
    memset(out, 0, k * sizeof *out);
    for (int p = 0; p < parts; p++) {
        through(types[p], rest, k, part);
        for (uint32_t i = 0; i < k; i++) {
            out[i] += part[i];
            rest[i] -= part[i];
        }
    }
}

static const enum tensor_type by_row[] = {TENSOR_C2, TENSOR_C2, TENSOR_C4};

/* FORM(name, statement that computes `out` from row `w` of k elements) */
#define FORMS(X)                                                                                   \
    X(separate_8, through(TENSOR_C8, w, k, out))                                                   \
    X(separate_4, through(TENSOR_C4, w, k, out))                                                   \
    X(separate_2, through(TENSOR_C2, w, k, out))                                                   \
    X(prefix_8, prefix(w, k, 8, false, out))                                                       \
    X(prefix_4, prefix(w, k, 4, false, out))                                                       \
    X(prefix_2, prefix(w, k, 2, false, out))                                                       \
    X(fitted_4, prefix(w, k, 4, true, out))                                                        \
    X(fitted_2, prefix(w, k, 2, true, out))                                                        \
    X(residual_8, residual(w, k, 3, by_row, out))                                                  \
    X(residual_4, residual(w, k, 2, by_row, out))

typedef void row_form(const float *w, uint32_t k, float *out);

#define X(name, statement)                                                                         \
    static void name(const float *w, uint32_t k, float *out)                                       \
    {                                                                                              \
        statement;                                                                                 \
    }
FORMS(X)
#undef X

static const struct {
    const char *name;
    row_form *make;
} forms[] = {
#define X(name, statement) {#name, name},
    FORMS(X)
#undef X
};

struct rows {
    struct kernel_matrix from;
    uint32_t first, count;
    row_form *make;
    uint16_t *out;
    pthread_t thread;
};

static void *make_rows(void *arg)
{
    struct rows *r = arg;
    float w[K_MAX], out[K_MAX];
    const struct kernel_ops *ops = kernel_ops_select(NULL);
    for (uint32_t row = r->first; row < r->first + r->count; row++) {
        ops->row_to_f32(&r->from, row, w);
        r->make(w, r->from.k, out);
        ops->to_f16(out, r->from.k, r->out + (size_t)row * r->from.k);
    }
    return NULL;
}

/* An expert tensor in this form, as F16. */
static void *transform(const struct model_tensor *t, const void *data, row_form *make)
{
    struct rows part[THREADS];
    uint32_t rows = (uint32_t)(t->ne[1] * t->ne[2]);
    uint16_t *out = malloc(t->ne[0] * rows * 2);
    sl_assert(out && t->ne[0] <= K_MAX);
    for (uint32_t i = 0; i < THREADS; i++) {
        uint32_t first = rows / THREADS * i;
        part[i] =
            (struct rows){{data, t->row_bytes, (uint32_t)t->ne[0], rows, (enum tensor_type)t->type},
                          first,
                          i == THREADS - 1 ? rows - first : rows / THREADS,
                          make,
                          out,
                          0};
        sl_assert(pthread_create(&part[i].thread, NULL, make_rows, &part[i]) == 0);
    }
    for (uint32_t i = 0; i < THREADS; i++)
        pthread_join(part[i].thread, NULL);
    return out;
}

static bool is_expert(const struct model_tensor *t)
{
    return strstr(t->name, "_exps.") != NULL;
}

static ssize_t read_fd(void *arg, void *buf, size_t n, uint64_t offset)
{
    return pread(*(int *)arg, buf, n, (off_t)offset);
}

static int write_form(const struct gguf *g, int fd, const char *path, row_form *make,
                      struct error *error)
{
    struct gguf_writer *w = gguf_writer_new(g->alignment);
    for (uint32_t i = 0; i < g->key_count; i++)
        gguf_put_copy(w, g, i);
    for (uint32_t i = 0; i < g->tensor_count; i++) {
        const struct model_tensor *t = &g->tensors[i];
        gguf_put_tensor(w, t->name, is_expert(t) ? TENSOR_F16 : t->type, t->dims, t->ne);
    }
    int status = gguf_writer_layout(w, error) || gguf_writer_start(w, path, error) ? -1 : 0;
    for (uint32_t i = 0; i < g->tensor_count && status == 0; i++) {
        const struct model_tensor *t = &g->tensors[i];
        void *data = malloc(t->bytes), *made = NULL;
        sl_assert(data && pread(fd, data, t->bytes, (off_t)t->file_offset) == (ssize_t)t->bytes);
        if (is_expert(t))
            made = transform(t, data, make);
        status = gguf_writer_data(w, made ? made : data, gguf_writer_tensor_bytes(w, i), error);
        free(made);
        free(data);
    }
    status = status || gguf_writer_end(w, error) ? -1 : 0;
    gguf_writer_free(w);
    return status;
}

int main(int argc, char **argv)
{
    struct error error = {0};
    struct stat st;
    struct gguf g;
    int fd = argc == 3 ? open(argv[1], O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0 || fstat(fd, &st) != 0) {
        fprintf(stderr, "usage: nested_models IN.gguf OUT_DIR\n");
        return 2;
    }
    struct gguf_source source = {.read = read_fd, .arg = &fd, .bytes = (uint64_t)st.st_size};
    int status = gguf_open(&g, &source, &error);
    for (size_t i = 0; i < ARRAY_LEN(forms) && status == 0; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s.gguf", argv[2], forms[i].name);
        status = write_form(&g, fd, path, forms[i].make, &error);
        fprintf(stderr, "%s\n", forms[i].name);
    }
    if (status)
        fprintf(stderr, "nested_models: %s\n", error.text);
    return status ? 1 : 0;
}
