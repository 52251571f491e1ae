/* SPDX-License-Identifier: Apache-2.0 */
/* The reverse of a converter: for every element of a tensor of the checkpoint, the element of GGUF
 * that was made of it. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/assert.h"
#include "lib/model/gguf/gguf.h"
#include "lib/model/limits.h"
#include "lib/tensor/half.h"
#include "lib/tensor/tensor_type.h"
#include "tests/unit/lib/model/hf_make.h"

#define PARTS 2

enum kind {
    COPY,          /* also without dimensions of size 1, and one expert of a 3-D tensor */
    EITHER,        /* COPY of the tensor that the layer has */
    MINUS_1,       /* COPY, less 1 */
    SHARD,         /* rows of a tensor, from its number times their count on */
    NUMBERS,       /* a key with numbers of 64 bits */
    POWER,         /* of two factors of a vector, the first: powers of two */
    OVER_POWER,    /* and the second */
    OF_LATENT,     /* of sqrt(hidden size / elements) times a vector */
    LOG,           /* log |x| of vectors and matrices */
    GROUPS,        /* a vector, in rows */
    HALVES,        /* rows of the first tensor, then of the second */
    TURNED,        /* [plane][column][row] */
    TURNED_HALVES, /* TURNED of two tensors, columns of the first, then of the second */
    IN_TURN,       /* TURNED of two tensors, their rows in turn */
    BIASES,        /* [row][column] of two, columns in turn */
    KEYS_VALUES,   /* per head: rows of the second, and before them the columns of the first */
    Q_PAIRS,       /* of each head, first the even rows, then the odd ones */
    K_PAIRS,
    QKVZ,   /* per k head: q, k, its v heads, their z */
    QKV,    /* q, k, and v heads by k head */
    V_ROWS, /* v heads by k head */
    V_COLUMNS,
    V_NUMBERS, /* a row, or an element, for each v head */
    V_LOG,
};

/* arch NULL: any. In the name, "#" is a layer's or expert's number. */
static const struct rule {
    const char *arch, *name;
    enum kind kind;
    const char *gguf[PARTS];
} rules[] = {
#define HF_MADE_OF(arch, name, kind, ...) {(arch), (name), kind, {__VA_ARGS__}},
#include "tests/unit/lib/model/hf_make_moved.tbl.h"
};

struct tensor {
    uint64_t planes, rows, columns;
    bool half;
    char *data;
};

struct moved {
    const struct gguf *g;
    const json_t *config;
    int fd;
    struct tensor part[PARTS];
    uint64_t heads, kv_heads, k_heads, share, size, hidden, first;
};

static uint64_t field(const struct moved *k, const char *name)
{
    return (uint64_t)json_integer_value(json_object_get(k->config, name));
}

static bool has(const struct moved *k, const char *name)
{
    for (uint32_t i = 0; i < k->g->tensor_count; i++)
        if (strcmp(k->g->tensors[i].name, name) == 0)
            return true;
    return false;
}

static struct tensor load(const struct moved *k, const char *name)
{
    for (uint32_t i = 0; i < k->g->tensor_count; i++) {
        const struct model_tensor *t = &k->g->tensors[i];
        if (strcmp(t->name, name) != 0)
            continue;
        bool column = t->ne[0] == 1; /* a vector in the checkpoint */
        bool flat = t->ne[1] == 1;   /* no planes */
        struct tensor out = {.planes = flat ? 1 : t->ne[2],
                             .rows = column ? 1
                                     : flat ? t->ne[2]
                                            : t->ne[1],
                             .columns = column ? t->ne[1] : t->ne[0],
                             .half = t->type == TENSOR_F16,
                             .data = malloc(t->bytes)};
        sl_assert(out.half || t->type == TENSOR_F32);
        sl_assert(pread(k->fd, out.data, t->bytes, (off_t)t->file_offset) == (ssize_t)t->bytes);
        return out;
    }
    sl_panic("no tensor %s", name);
}

static void put(const struct tensor *t, uint64_t plane, uint64_t row, uint64_t column, char *out)
{
    unsigned each = t->half ? 2 : 4;
    sl_assert(plane < t->planes && row < t->rows && column < t->columns);
    memcpy(out, t->data + ((plane * t->rows + row) * t->columns + column) * each, each);
}

static void put_float(const struct tensor *t, uint64_t row, uint64_t column, bool logarithm,
                      char *out)
{
    float x;
    put(t, 0, row, column, (char *)&x);
    x = logarithm ? logf(fabsf(x)) : x - 1;
    memcpy(out, &x, sizeof x);
}

static void put_divided(const struct tensor *t, uint64_t column, double by, char *out)
{
    float x;
    put(t, 0, 0, column, (char *)&x);
    x = (float)((double)x / by);
    memcpy(out, &x, sizeof x);
}

/* Both factors are exact. */
static void put_power(const struct tensor *t, uint64_t column, bool power, char *out)
{
    float by = (float)(1 << column % 4), x;
    put(t, 0, 0, column, (char *)&x);
    x = power ? by : x / by;
    memcpy(out, &x, sizeof x);
}

/* The number in GGUF of v head h of the checkpoint. */
static uint64_t v_head(const struct moved *k, uint64_t h)
{
    return h % k->share * k->k_heads + h / k->share;
}

static uint64_t v_row(const struct moved *k, uint64_t row)
{
    return v_head(k, row / k->size) * k->size + row % k->size;
}

static void put_qkvz(const struct moved *k, uint64_t row, uint64_t column, char *out)
{
    uint64_t d = k->size, group = row / (2 * d + 2 * k->share * d);
    uint64_t at = row % (2 * d + 2 * k->share * d), wide = k->share * d;
    if (at < d)
        put(&k->part[0], 0, group * d + at, column, out);
    else if (at < 2 * d)
        put(&k->part[0], 0, (k->k_heads + group) * d + at - d, column, out);
    else if (at < 2 * d + wide)
        put(&k->part[0], 0, 2 * k->k_heads * d + group * wide + at - 2 * d, column, out);
    else
        put(&k->part[1], 0, group * wide + at - 2 * d - wide, column, out);
}

static uint64_t pair_row(uint64_t row, uint64_t rows, uint64_t heads)
{
    uint64_t n = rows / heads, at = row % n;
    return row - at + (at < n / 2 ? 2 * at : 2 * (at - n / 2) + 1);
}

/* Element (plane, row, column) of the checkpoint's tensor; e: the expert of COPY. */
static void put_element(const struct moved *k, enum kind kind, uint64_t e, uint64_t p, uint64_t r,
                        uint64_t c, char *out)
{
    const struct tensor *a = &k->part[0];
    uint64_t qk = 2 * k->k_heads * k->size, head = a->columns + k->part[1].rows;
    switch (kind) {
    case COPY:
    case EITHER: put(a, e + p, r, c, out); break;
    case MINUS_1: put_float(a, 0, c, false, out); break;
    case NUMBERS: break;
    case SHARD: put(a, 0, k->first + r, c, out); break;
    case POWER: put_power(a, c, true, out); break;
    case OVER_POWER: put_power(a, c, false, out); break;
    case OF_LATENT: put_divided(a, c, sqrt((double)k->hidden / (double)a->columns), out); break;
    case LOG: put_float(a, r, c, true, out); break;
    case V_LOG: put_float(a, 0, v_head(k, c), true, out); break;
    case GROUPS: put(a, 0, c / a->columns, c % a->columns, out); break;
    case HALVES: put(&k->part[r >= a->rows], p, r % a->rows, c, out); break;
    case TURNED: put(a, p, c, r, out); break;
    case TURNED_HALVES: put(&k->part[c >= a->rows], p, c % a->rows, r, out); break;
    case IN_TURN: put(&k->part[c % 2], p, c / 2, r, out); break;
    case BIASES: put(&k->part[c % 2], 0, r, c / 2, out); break;
    case KEYS_VALUES:
        if (r % head < a->columns)
            put(a, r / head, c, r % head, out);
        else
            put(&k->part[1], r / head, r % head - a->columns, c, out);
        break;
    case Q_PAIRS: put(a, 0, pair_row(r, a->rows, k->heads), c, out); break;
    case K_PAIRS: put(a, 0, pair_row(r, a->rows, k->kv_heads), c, out); break;
    case QKVZ: put_qkvz(k, r, c, out); break;
    case QKV: put(a, 0, r < qk ? r : qk + v_row(k, r - qk), c, out); break;
    case V_ROWS: put(a, 0, v_row(k, r), c, out); break;
    case V_COLUMNS: put(a, 0, r, v_row(k, c), out); break;
    case V_NUMBERS:
        if (a->rows > 1)
            put(a, 0, v_head(k, r), c, out);
        else
            put(a, 0, 0, v_head(k, c), out);
        break;
    }
}

/* The rule for a name, and the numbers in it. */
static const struct rule *find_rule(const char *arch, const char *name, unsigned number[2])
{
    char plain[200], *at = plain;
    int numbers = 0;
    number[0] = number[1] = 0;
    for (const char *s = name; *s;) {
        sl_assert(at < plain + sizeof plain - 1);
        char *end = (char *)(uintptr_t)s;
        bool starts = (s > name && s[-1] == '.') || (s > name + 6 && !memcmp(s - 6, "shard_", 6));
        unsigned long n = starts ? strtoul(s, &end, 10) : 0;
        if (end != s && *end == '.') {
            sl_assert(numbers < 2);
            number[numbers++] = (unsigned)n;
            *at++ = '#';
            s = end;
        } else {
            *at++ = *s++;
        }
    }
    *at = 0;
    for (size_t i = 0; i < ARRAY_LEN(rules); i++)
        if ((!rules[i].arch || strcmp(rules[i].arch, arch) == 0) &&
            strcmp(rules[i].name, plain) == 0)
            return &rules[i];
    sl_panic("no rule for %s (%s)", name, arch);
}

static bool is_stack_of_two(const struct rule *rule) /* rows of all experts, one after the other */
{
    return rule->arch && strcmp(rule->arch, "dbrx") == 0 && strstr(rule->name, "experts");
}

/* Numbers of a key as I64. */
static char *make_numbers(const struct gguf *g, const char *arch, const char *name, size_t *bytes)
{
    char key[128];
    struct gguf_array a;
    snprintf(key, sizeof key, "%s.%s", arch, name);
    sl_assert(gguf_get_uints(g, key, &a, NULL) == 1 && a.left > 0);
    *bytes = a.left * sizeof(uint64_t);
    uint64_t *values = malloc(*bytes);
    for (uint64_t i = 0; a.left > 0; i++)
        sl_assert(gguf_array_uint(&a, key, &values[i], NULL) == 0);
    return (char *)values;
}

char *hf_make_moved(const struct gguf *g, int fd, const char *arch, const json_t *config,
                    const char *name, const json_t *shape, size_t *bytes, bool *half)
{
    unsigned number[2];
    struct moved k = {.g = g, .fd = fd, .config = config};
    const struct rule *rule = find_rule(arch, name, number);
    *half = false;
    if (rule->kind == NUMBERS)
        return make_numbers(g, arch, rule->gguf[0], bytes);
    k.heads = field(&k, "num_attention_heads");
    k.kv_heads = field(&k, "num_key_value_heads");
    k.k_heads = field(&k, "linear_num_key_heads");
    k.share = k.k_heads ? field(&k, "linear_num_value_heads") / k.k_heads : 0;
    k.size = field(&k, "linear_key_head_dim");
    k.hidden = field(&k, "hidden_size");
    for (int i = 0; i < PARTS && rule->gguf[i]; i++) {
        char full[MODEL_NAME_BYTES];
        snprintf(full, sizeof full, rule->gguf[i], number[0]);
        if (rule->kind != EITHER)
            k.part[i] = load(&k, full);
        else if (has(&k, full))
            k.part[0] = load(&k, full);
    }
    size_t dims = json_array_size(shape);
    uint64_t n[3] = {1, 1, 1}; /* planes, rows, columns */
    for (size_t d = 0; d < dims; d++) {
        uint64_t size = (uint64_t)json_integer_value(json_array_get(shape, d));
        if (dims <= 3)
            n[3 - dims + d] = size;
        else /* a vector */
            n[2] *= size;
    }
    if (dims == 3 && n[1] == 1) { /* of a convolution */
        n[1] = n[0];
        n[0] = 1;
    }
    if (is_stack_of_two(rule)) {
        n[0] = k.part[0].planes;
        n[1] /= n[0];
    }
    k.first = number[1] * n[1];
    unsigned each = k.part[0].half ? 2 : 4;
    char *out = malloc(n[0] * n[1] * n[2] * each);
    for (uint64_t p = 0, at = 0; p < n[0]; p++)
        for (uint64_t r = 0; r < n[1]; r++)
            for (uint64_t c = 0; c < n[2]; c++, at += each)
                put_element(&k, rule->kind, k.part[0].planes > 1 && n[0] == 1 ? number[1] : 0, p, r,
                            c, out + at);
    for (int i = 0; i < PARTS; i++)
        free(k.part[i].data);
    *bytes = n[0] * n[1] * n[2] * each;
    *half = each == 2;
    return out;
}
