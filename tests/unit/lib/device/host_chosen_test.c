/* SPDX-License-Identifier: Apache-2.0 */
/* Operations that choose positions, and attention to these: against the rules written without
 * regard to speed, with every number of threads and division of the rows. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/base/random.h"
#include "lib/device/host/host.h"
#include "lib/device/pointers.h"

enum { POSITIONS = 700, ROWS = 9, FIRST = POSITIONS - ROWS, THREADS = 3 };

static struct random source;

static float *floats(size_t n)
{
    float *x = aligned_alloc(64, align_up(n * sizeof *x, 64));
    ck_assert_ptr_nonnull(x);
    for (size_t i = 0; i < n; i++)
        x[i] = (float)random_unit(&source) - 0.5f;
    return x;
}

static struct device *device_of(uint32_t threads)
{
    struct error error;
    struct device *d = host_device(kernel_ops_select("auto"), threads, 0, &error);
    ck_assert_ptr_nonnull(d);
    return d;
}

static struct device_matrix matrix(const float *w, uint32_t k, uint32_t n)
{
    return (struct device_matrix){.data = device_address(w),
                                  .row_bytes = k * sizeof(float),
                                  .k = k,
                                  .n = n,
                                  .type = TENSOR_F32};
}

/* ---- lists of the rows ---- */

enum { LISTS = 2 };

static struct lists {
    uint32_t at[ROWS * LISTS * POSITIONS], count[ROWS * LISTS];
} lists;

/* Of each row, one or two lists: every `step`-th position in steps from an offset of the list on,
 * and the last rows all. */
static struct device_chosen make_lists(uint32_t each, uint32_t step)
{
    for (uint32_t i = 0; i < ROWS * each; i++) {
        uint32_t n = 0, position = FIRST + i / each, every = i / each > ROWS - 3 ? 1 : step;
        for (uint32_t p = i % every; p <= position; p += every)
            lists.at[(size_t)i * POSITIONS + n++] = p;
        lists.count[i] = n;
    }
    return (struct device_chosen){.at = {(uintptr_t)lists.at},
                                  .count = {(uintptr_t)lists.count},
                                  .stride = POSITIONS,
                                  .lists = each};
}

/* ---- attention ---- */

enum { HEADS = 6, KV_HEADS = 2, SIZE = 32, INPUT = 24 };
#define Q_SIZE  (HEADS * SIZE)
#define KV_SIZE (KV_HEADS * SIZE)

static struct {
    float *w, *x;
    uint8_t *keys, *values;
    size_t bytes; /* of keys */
} in;

static void make_input(enum kv_type type)
{
    random_seed(&source, 5, 1);
    in.w = floats((size_t)INPUT * Q_SIZE);
    in.x = floats((size_t)INPUT * ROWS);
    in.bytes = kernel_kv_tile(type, KV_HEADS, SIZE, POSITIONS + KV_TILE, 0);
    in.keys = aligned_alloc(64, align_up(in.bytes, 64));
    in.values = aligned_alloc(64, align_up(in.bytes, 64));
    float *row = floats(SIZE);
    for (uint32_t i = 0; i < POSITIONS * KV_HEADS; i++)
        for (int side = 0; side < 2; side++) {
            uint8_t *base = side == 0 ? in.keys : in.values;
            for (int e = 0; e < SIZE; e++)
                row[e] = (float)random_unit(&source) - 0.5f;
            kernel_kv_store(kernel_ops_select("auto"), type,
                            side == 0 ? KV_SIDE_KEYS : KV_SIDE_VALUES, row, SIZE,
                            base + kernel_kv_tile(type, KV_HEADS, SIZE, i / KV_HEADS, i % KV_HEADS),
                            i / KV_HEADS % KV_TILE);
        }
    free(row);
}

static void free_input(void)
{
    free(in.w);
    free(in.x);
    free(in.keys);
    free(in.values);
}

/* The last ROWS positions, in parts of `step` rows; the caller frees the result. */
static float *attend(enum kv_type type, uint32_t threads, uint32_t step,
                     const struct device_chosen *chosen)
{
    struct device *d = device_of(threads);
    float *q = floats((size_t)Q_SIZE * ROWS), *k = floats((size_t)KV_SIZE * ROWS);
    float *v = floats((size_t)KV_SIZE * ROWS), *mix = floats((size_t)Q_SIZE * ROWS);
    uint32_t each = chosen->lists > 1 ? chosen->lists : 1;
    for (uint32_t first = 0, rows; first < ROWS; first += rows) {
        struct device_row row[ROWS];
        struct device_sequence sequence = {
            .keys = device_address(in.keys), .values = device_address(in.values), .kv_type = type};
        struct device_chosen part = *chosen;
        rows = step < ROWS - first ? step : ROWS - first;
        for (uint32_t r = 0; r < rows; r++)
            row[r] = (struct device_row){.position = FIRST + first + r};
        part.at =
            device_offset(part.at, (uint64_t)first * each * chosen->stride * sizeof(uint32_t));
        part.count = device_offset(part.count, (uint64_t)first * each * sizeof(uint32_t));
        const struct op_attention op = {
            .rows = rows,
            .sequences = 1,
            .row = row,
            .sequence = &sequence,
            .shape = {.heads = HEADS, .kv_heads = KV_HEADS, .key_size = SIZE, .value_size = SIZE},
            .heads = {.scale = {.base = 0.25f}},
            .chosen = part,
            .x = device_rows_of_floats(device_address(in.x + (size_t)first * INPUT), INPUT),
            .w_q = matrix(in.w, INPUT, Q_SIZE),
            .w_k = matrix(in.w, INPUT, KV_SIZE),
            .w_v = matrix(in.w, INPUT, KV_SIZE),
            .q = device_address(q),
            .k = device_address(k),
            .v = device_address(v),
            .mix = device_rows_of_floats(device_address(mix + (size_t)first * Q_SIZE), Q_SIZE)};
        d->ops->attention(d, &op);
    }
    d->ops->destroy(d);
    free(q);
    free(k);
    free(v);
    return mix;
}

static void check_same(const float *want, enum kv_type type, const struct device_chosen *chosen)
{
    static const uint32_t steps[] = {1, 2, ROWS};
    for (uint32_t threads = 1; threads <= THREADS; threads++)
        for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
            float *got = attend(type, threads, steps[i], chosen);
            ck_assert_mem_eq(got, want, sizeof *got * Q_SIZE * ROWS);
            free(got);
        }
}

static bool equal_heads(const float *a, const float *b, uint32_t row, uint32_t kv_head)
{
    size_t at = (size_t)row * Q_SIZE + (size_t)kv_head * (HEADS / KV_HEADS) * SIZE;
    return memcmp(a + at, b + at, sizeof *a * HEADS / KV_HEADS * SIZE) == 0;
}

/* Lists of all are no lists. The lists of key heads are those that each has alone. Rows and heads
 * are those of others' company. */
START_TEST(attention_is_over_lists)
{
    static const enum kv_type types[] = {KV_TYPE_F16, KV_TYPE_Q8_0};
    for (size_t t = 0; t < ARRAY_LEN(types); t++) {
        make_input(types[t]);
        struct device_chosen none = {.stride = 0}, all = make_lists(1, 1);
        float *full = attend(types[t], 1, ROWS, &none);
        check_same(full, types[t], &all);
        struct device_chosen own = make_lists(LISTS, 5);
        float *both = attend(types[t], 1, ROWS, &own);
        check_same(both, types[t], &own);
        for (uint32_t r = 0; r < ROWS; r++)
            for (uint32_t g = 0; g < KV_HEADS; g++)
                ck_assert_int_eq(equal_heads(both, full, r, g), r > ROWS - 3);
        struct device_chosen one = make_lists(1, 5);
        float *shared = attend(types[t], 1, ROWS, &one);
        check_same(shared, types[t], &one);
        for (uint32_t r = 0; r < ROWS; r++) /* lists with the same offset */
            for (uint32_t g = 0; g < KV_HEADS; g++)
                ck_assert_int_eq(equal_heads(both, shared, r, g),
                                 (r * LISTS + g) % 5 == r % 5 || r > ROWS - 3);
        free(full);
        free(both);
        free(shared);
        free_input();
    }
}
END_TEST

/* ---- MLA ---- */

enum { LATENT_HEADS = 70, NOPE = 16, ROPE = 8, RANK = 56, KEY = RANK + ROPE, VALUE = 12 };

static float *attend_latents(uint32_t threads, uint32_t step, const struct device_chosen *chosen,
                             const float *angles)
{
    const struct device_latent shape = {.heads = LATENT_HEADS,
                                        .nope = NOPE,
                                        .rope = ROPE,
                                        .value = VALUE,
                                        .rank = RANK,
                                        .key = KEY,
                                        .scale = {.base = 0.25f}};
    struct device *d = device_of(threads);
    const uint32_t mix_size = LATENT_HEADS * VALUE;
    struct device_limits limits = {.rows = ROWS,
                                   .latent = shape,
                                   .nope_forms = 1u << FORM_F32,
                                   .latent_forms = 1u << FORM_F32};
    random_seed(&source, 5, 2);
    float *w_q = floats((size_t)INPUT * LATENT_HEADS * (NOPE + ROPE));
    float *w = floats((size_t)LATENT_HEADS * RANK * (NOPE + VALUE));
    float *mix = floats((size_t)mix_size * ROWS);
    float *workspace = floats(d->ops->workspace(d, &limits) / sizeof(float) + 16);
    d->ops->use_workspace(d, &limits, device_address(workspace));
    for (uint32_t first = 0, rows; first < ROWS; first += rows) {
        struct device_row row[ROWS];
        struct device_sequence sequence = {.keys = device_address(in.keys), .kv_type = KV_TYPE_F16};
        struct device_chosen part = *chosen;
        rows = step < ROWS - first ? step : ROWS - first;
        for (uint32_t r = 0; r < rows; r++)
            row[r] = (struct device_row){.position = FIRST + first + r};
        part.at = device_offset(part.at, (uint64_t)first * chosen->stride * sizeof(uint32_t));
        part.count = device_offset(part.count, (uint64_t)first * sizeof(uint32_t));
        const struct op_latent_attention op = {
            .rows = rows,
            .sequences = 1,
            .row = row,
            .sequence = &sequence,
            .shape = shape,
            .chosen = part,
            .x = device_rows_of_floats(device_address(in.x + (size_t)first * INPUT), INPUT),
            .q = matrix(w_q, INPUT, LATENT_HEADS * (NOPE + ROPE)),
            .k_b = matrix(w, NOPE, LATENT_HEADS * RANK),
            .v_b = matrix(w + (size_t)LATENT_HEADS * RANK * NOPE, RANK, LATENT_HEADS * VALUE),
            .angle_stride = ROPE,
            .angles = device_address(angles + (size_t)first * ROPE),
            .mix = device_rows_of_floats(device_address(mix + (size_t)first * mix_size), mix_size)};
        d->ops->latent_attention(d, &op);
    }
    d->ops->destroy(d);
    free(w_q);
    free(w);
    free(workspace);
    return mix;
}

static void check_latents(const float *want, const struct device_chosen *chosen,
                          const float *angles)
{
    static const uint32_t steps[] = {1, 5, ROWS};
    for (uint32_t threads = 1; threads <= THREADS; threads++)
        for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
            float *got = attend_latents(threads, steps[i], chosen, angles);
            ck_assert_mem_eq(got, want, sizeof *got * LATENT_HEADS * VALUE * ROWS);
            free(got);
        }
}

START_TEST(latents_are_of_lists)
{
    make_input(KV_TYPE_F16); /* KEY is KV_SIZE: a latent is a row of all key heads */
    float *angles = floats((size_t)ROPE * ROWS);
    struct device_chosen none = {.stride = 0}, all = make_lists(1, 1);
    float *full = attend_latents(1, ROWS, &none, angles);
    check_latents(full, &all, angles);
    struct device_chosen some = make_lists(1, 7);
    float *part = attend_latents(1, 1, &some, angles);
    check_latents(part, &some, angles);
    size_t size = (size_t)LATENT_HEADS * VALUE;
    for (uint32_t r = 0; r < ROWS; r++)
        ck_assert_int_eq(memcmp(part + r * size, full + r * size, size * sizeof *part) == 0,
                         r > ROWS - 3);
    free(angles);
    free(full);
    free(part);
    free_input();
}
END_TEST

/* ---- the indexer ---- */

enum { INDEXERS = 3, INDEX_SIZE = 20, TURN_FIRST = 4, TURNED = 12 };

/* Keys of all positions, those of the second of two sequences. */
static void store_keys(struct device *d, struct device_sequence *sequence, const float *k,
                       uint32_t step)
{
    for (uint32_t first = 0, rows; first < POSITIONS; first += rows) {
        struct device_row row[POSITIONS];
        rows = step < POSITIONS - first ? step : POSITIONS - first;
        for (uint32_t r = 0; r < rows; r++)
            row[r] = (struct device_row){.sequence = 1, .position = first + r};
        d->ops->index_store(
            d, &(struct op_index_store){.rows = rows,
                                        .sequences = 2,
                                        .row = row,
                                        .sequence = sequence,
                                        .shape = {INDEX_PLAIN, INDEXERS, INDEX_SIZE, 1},
                                        .k = device_address(k + (size_t)first * INDEX_SIZE)});
    }
}

START_TEST(keys_and_scores)
{
    static const enum kv_type types[] = {KV_TYPE_F16, KV_TYPE_F32};
    random_seed(&source, 5, 3);
    float *k = floats((size_t)POSITIONS * INDEX_SIZE), *weights = floats(ROWS * INDEXERS);
    float *q = floats((size_t)ROWS * INDEXERS * INDEX_SIZE);
    for (int n = 0; n < (int)ARRAY_LEN(types) * INDEX__COUNT * THREADS; n++) {
        const enum index_form form = (enum index_form)(n % INDEX__COUNT);
        const enum kv_type type = types[n / INDEX__COUNT % 2];
        const struct device_index shape = {form, INDEXERS, INDEX_SIZE, 1};
        const uint32_t own = device_index_lists(&shape);
        struct device *d = device_of((uint32_t)n / (INDEX__COUNT * 2) + 1);
        float *keys = floats((size_t)(POSITIONS + KV_TILE) * INDEX_SIZE);
        float *score = floats((size_t)ROWS * INDEXERS * POSITIONS);
        float *want = floats((size_t)INDEXERS * POSITIONS);
        struct device_sequence sequence[2] = {{.index_type = type},
                                              {.index_type = type, .index = device_address(keys)}};
        struct device_row row[ROWS];
        store_keys(d, sequence, k, 97);
        for (uint32_t r = 0; r < ROWS; r++)
            row[r] = (struct device_row){.sequence = 1, .position = FIRST + r};
        d->ops->index_scores(d, &(struct op_index_scores){.rows = ROWS,
                                                          .sequences = 2,
                                                          .row = row,
                                                          .sequence = sequence,
                                                          .shape = shape,
                                                          .q = device_address(q),
                                                          .weights = device_address(weights),
                                                          .stride = POSITIONS,
                                                          .score = device_address(score)});
        for (uint32_t r = 0; r < ROWS; r++) {
            struct kernel_index a = {form,
                                     q + (size_t)r * INDEXERS * INDEX_SIZE,
                                     weights + (size_t)r * INDEXERS,
                                     keys,
                                     type,
                                     1,
                                     INDEXERS,
                                     INDEX_SIZE,
                                     want,
                                     POSITIONS};
            kernel_index_scores(kernel_ops_select("auto"), &a, 0, FIRST + r + 1);
            for (uint32_t i = 0; i < own; i++)
                ck_assert_mem_eq(score + (size_t)(r * own + i) * POSITIONS,
                                 want + (size_t)i * POSITIONS, sizeof *want * (FIRST + r + 1));
        }
        ck_assert(!d->not_finite);
        d->ops->destroy(d);
        free(keys);
        free(score);
        free(want);
    }
    free(k);
    free(weights);
    free(q);
}
END_TEST

/* Norm and rotation of a part of each head, as kernels have them. */
START_TEST(heads_are_normed_and_turned)
{
    random_seed(&source, 5, 4);
    const size_t n = (size_t)ROWS * INDEXERS * INDEX_SIZE;
    float *x = floats(n), *got = floats(n), *weight = floats(INDEX_SIZE),
          *angles = floats(ROWS * TURNED);
    const struct kernel_ops *ops = kernel_ops_select("auto");
    for (int how = 0; how < 4; how++) {
        struct device *d = device_of(2);
        const bool norm = how % 2 == 1, pairs = how / 2 == 1;
        memcpy(got, x, n * sizeof *x);
        d->ops->index_heads(d, &(struct op_index_heads){
                                   .rows = ROWS,
                                   .heads = INDEXERS,
                                   .size = INDEX_SIZE,
                                   .turn = {pairs ? ROPE_PAIRS : ROPE_HALVES, TURN_FIRST, TURNED},
                                   .eps = 1e-6f,
                                   .weight = device_address(norm ? weight : NULL),
                                   .angle_stride = TURNED,
                                   .angles = device_address(angles),
                                   .y = device_address(got)});
        for (uint32_t i = 0; i < ROWS * INDEXERS; i++) {
            float head[INDEX_SIZE];
            memcpy(head, x + (size_t)i * INDEX_SIZE, sizeof head);
            if (norm)
                ops->rms_norm(head, weight, INDEX_SIZE, 1e-6f, head);
            if (pairs)
                kernel_rope_pairs(head + TURN_FIRST, TURNED, angles + i / INDEXERS * TURNED);
            else
                ops->rope(head + TURN_FIRST, TURNED, angles + i / INDEXERS * TURNED);
            ck_assert_mem_eq(got + (size_t)i * INDEX_SIZE, head, sizeof head);
        }
        d->ops->destroy(d);
    }
    free(x);
    free(got);
    free(weight);
    free(angles);
}
END_TEST

enum { UNIT = 4, POOLED = POSITIONS / UNIT };

static struct {
    float k[POSITIONS * INDEX_SIZE], gates[POSITIONS * INDEX_SIZE], bias[UNIT * INDEX_SIZE];
    float weight[INDEX_SIZE];
} raw;

static const struct kernel_rope rope = {.dims = TURNED, .theta = 10000};

/* Keys of all units, in passes of `step` rows; the caller frees them. */
static float *pool_keys(uint32_t step, bool gates)
{
    struct device *d = device_of(1);
    float *keys = calloc((size_t)(POOLED + KV_TILE) * INDEX_SIZE, sizeof *keys);
    float state[2][2 * (UNIT - 1) * INDEX_SIZE];
    ck_assert_ptr_nonnull(keys);
    for (uint32_t first = 0, rows, pass = 0; first < POSITIONS; first += rows, pass++) {
        struct device_row row[POSITIONS];
        struct device_sequence sequence = {.index_type = KV_TYPE_F32,
                                           .index = device_address(keys),
                                           .next_state = device_address(state[pass % 2])};
        if (first > 0)
            sequence.state = device_address(state[(pass + 1) % 2]);
        rows = step < POSITIONS - first ? step : POSITIONS - first;
        for (uint32_t r = 0; r < rows; r++)
            row[r] = (struct device_row){.position = first + r};
        const size_t at = (size_t)first * INDEX_SIZE;
        const struct op_index_pool op = {.rows = rows,
                                         .sequences = 1,
                                         .row = row,
                                         .sequence = &sequence,
                                         .shape = {INDEX_PLAIN, INDEXERS, INDEX_SIZE, UNIT},
                                         .eps = 1e-6f,
                                         .weight = device_address(gates ? NULL : raw.weight),
                                         .turn = {ROPE_HALVES, 0, gates ? 0 : TURNED},
                                         .rope = gates ? (struct kernel_rope){.dims = 0} : rope,
                                         .k = device_address(raw.k + at),
                                         .gates = device_address(gates ? raw.gates + at : NULL),
                                         .gate_bias = device_address(raw.bias)};
        d->ops->index_pool(d, &op);
    }
    d->ops->destroy(d);
    return keys;
}

static double pooled(uint32_t unit, uint32_t e, bool gates)
{
    double sum = 0, all = 0;
    for (uint32_t j = 0; j < UNIT; j++) {
        size_t i = (size_t)(unit * UNIT + j) * INDEX_SIZE + e;
        double p = gates ? exp((double)raw.gates[i] + (double)raw.bias[j * INDEX_SIZE + e]) : 1;
        sum += p;
        all += p * (double)raw.k[i];
    }
    return all / sum;
}

static void check_pooled(const float *got, uint32_t unit, bool gates)
{
    float y[INDEX_SIZE], angles[TURNED];
    for (uint32_t e = 0; e < INDEX_SIZE; e++)
        y[e] = (float)pooled(unit, e, gates);
    if (!gates) {
        kernel_ops_select("auto")->rms_norm(y, raw.weight, INDEX_SIZE, 1e-6f, y);
        kernel_rope_table(&rope, unit * UNIT, angles);
        kernel_ops_select("auto")->rope(y, TURNED, angles);
    }
    for (uint32_t e = 0; e < INDEX_SIZE; e++)
        ck_assert_msg(fabsf(got[e] - y[e]) < 1e-5f, "unit %u, element %u: %g, not %g", unit, e,
                      (double)got[e], (double)y[e]);
}

/* Qwen3.8 (mean, norm, rotation at the first position) and GLM-5.3 (softmax of gates). */
START_TEST(units_are_pooled)
{
    static const uint32_t steps[] = {1, 3, 7, 64, POSITIONS};
    random_seed(&source, 5, 6);
    float *x = floats(sizeof raw / sizeof(float));
    memcpy(&raw, x, sizeof raw);
    for (int gates = 0; gates < 2; gates++) {
        float *want = pool_keys(POSITIONS, gates == 1);
        for (uint32_t unit = 0; unit < POOLED; unit++)
            check_pooled(want + (size_t)unit * INDEX_SIZE, unit, gates == 1);
        for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
            float *got = pool_keys(steps[i], gates == 1);
            ck_assert_mem_eq(got, want, sizeof *got * POOLED * INDEX_SIZE);
            free(got);
        }
        free(want);
    }
    free(x);
}
END_TEST

/* ---- the choice ---- */

/* The rule for one line, block by block: the number of larger blocks, and of equal ones before, is
 * below k. */
static uint32_t chosen_by_rule(const float *score, uint32_t position, const struct device_index *m,
                               const struct device_choice *c, uint32_t *at)
{
    uint32_t seen = (position + 1) / m->unit, blocks = (seen + c->block - 1) / c->block, n = 0;
    float most[POSITIONS];
    for (uint32_t b = 0; b < blocks; b++) {
        most[b] = b + c->local >= blocks ? INFINITY : -INFINITY;
        for (uint32_t i = b * c->block; i < seen && i < (b + 1) * c->block; i++)
            most[b] = fmaxf(most[b], score[i]);
    }
    for (uint32_t p = 0; p <= position; p++) {
        uint32_t b = p / m->unit / c->block, before = 0;
        for (uint32_t i = 0; i < blocks && p / m->unit < seen; i++)
            before += most[i] > most[b] || (most[i] == most[b] && i < b);
        if (p / m->unit >= seen || before < c->k)
            at[n++] = p;
    }
    return n;
}

/* GLM-5, Qwen3.8, MiniMax-M3 with small numbers, with and without ties. */
START_TEST(lists_follow_the_rule)
{
    static const struct {
        struct device_index index;
        struct device_choice choice;
    } cases[] = {
        {{INDEX_WEIGHTED, 4, 8, 1}, {20, 1, 0}}, {{INDEX_WEIGHTED, 4, 8, 1}, {POSITIONS, 1, 0}},
        {{INDEX_PLAIN, 4, 8, 4}, {16, 1, 0}},    {{INDEX_PLAIN, 4, 8, 4}, {174, 1, 0}},
        {{INDEX_HEADS, 3, 8, 1}, {4, 32, 1}},    {{INDEX_HEADS, 2, 8, 1}, {5, 7, 2}},
        {{INDEX_PLAIN, 1, 8, 3}, {6, 5, 1}},
    };
    static uint32_t at[ROWS * 3 * POSITIONS], count[ROWS * 3], want[POSITIONS];
    random_seed(&source, 5, 5);
    for (size_t i = 0; i < ARRAY_LEN(cases) * 2 * THREADS; i++) {
        const struct device_index *m = &cases[i / (2 * THREADS)].index;
        const struct device_choice *c = &cases[i / (2 * THREADS)].choice;
        const uint32_t each = device_index_lists(m), most = device_choice_most(m, c);
        struct device *d = device_of(i % THREADS + 1);
        float *score = floats((size_t)ROWS * each * POSITIONS), line[POSITIONS];
        struct device_row row[ROWS];
        for (size_t e = 0; i / THREADS % 2 == 0 && e < (size_t)ROWS * each * POSITIONS; e++)
            score[e] = fmaxf(0, rintf(score[e] * 4)); /* many are equal, most of them 0 */
        float *kept = floats((size_t)ROWS * each * POSITIONS);
        memcpy(kept, score, sizeof *kept * ROWS * each * POSITIONS);
        for (uint32_t r = 0; r < ROWS; r++)
            row[r] = (struct device_row){.position = r == 0 ? 1 : FIRST + r};
        const struct op_choose_positions op = {.rows = ROWS,
                                               .row = row,
                                               .shape = *m,
                                               .choice = *c,
                                               .stride = POSITIONS,
                                               .score = device_address(score),
                                               .list_stride = most < POSITIONS ? most : POSITIONS,
                                               .at = {(uintptr_t)at},
                                               .count = {(uintptr_t)count}};
        d->ops->choose_positions(d, &op);
        for (uint32_t n = 0; n < ROWS * each; n++) {
            memcpy(line, kept + (size_t)n * POSITIONS, sizeof line);
            ck_assert_uint_eq(count[n], chosen_by_rule(line, row[n / each].position, m, c, want));
            ck_assert_mem_eq(at + (size_t)n * op.list_stride, want, sizeof *want * count[n]);
        }
        d->ops->destroy(d);
        free(score);
        free(kept);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("host.chosen");
    TCase *t = tcase_create("chosen");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, attention_is_over_lists);
    tcase_add_test(t, latents_are_of_lists);
    tcase_add_test(t, keys_and_scores);
    tcase_add_test(t, heads_are_normed_and_turned);
    tcase_add_test(t, units_are_pooled);
    tcase_add_test(t, lists_follow_the_rule);
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
