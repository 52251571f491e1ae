/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/policy/prediction/activation.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/policy/prediction/internal.h"

#define ACTIVATION_MAGIC 0x56544341u
#define NONE             UINT32_MAX

struct activation {
    uint32_t magic;
    uint32_t layers, experts, count; /* matrices in the collection */
    uint32_t sequence, position;     /* of the current matrix; of the last match */
    uint32_t match;                  /* in the collection; NONE: the current matrix */
    bool started;
    uint16_t *counts; /* [ACTIVATION_MATRICES + 1][layers][experts]; the last is the current one */
    float *norm;      /* [ACTIVATION_MATRICES + 1][layers] */
};

static size_t cells(uint32_t layers, uint32_t experts)
{
    return (size_t)layers * experts;
}

size_t activation_bytes(uint32_t layers, uint32_t experts)
{
    return sizeof(struct activation) +
           (ACTIVATION_MATRICES + 1) *
               (cells(layers, experts) * sizeof(uint16_t) + layers * sizeof(float));
}

struct activation *activation_create(uint32_t layers, uint32_t experts)
{
    sl_assert(layers > 0 && experts > 0);
    struct activation *a = calloc(1, sizeof *a);
    if (!a)
        return NULL;
    *a = (struct activation){
        .magic = ACTIVATION_MAGIC, .layers = layers, .experts = experts, .match = NONE};
    a->counts = calloc((ACTIVATION_MATRICES + 1) * cells(layers, experts), sizeof *a->counts);
    a->norm = calloc((ACTIVATION_MATRICES + 1) * (size_t)layers, sizeof *a->norm);
    if (a->counts && a->norm)
        return a;
    activation_destroy(a);
    return NULL;
}

void activation_destroy(struct activation *a)
{
    if (!a)
        return;
    OBJ_CHECK(a, ACTIVATION_MAGIC);
    free(a->counts);
    free(a->norm);
    a->magic = 0;
    free(a);
}

static uint16_t *row_of(const struct activation *a, uint32_t matrix, uint32_t layer)
{
    return a->counts + matrix * cells(a->layers, a->experts) + (size_t)layer * a->experts;
}

/* ---- similarity ----------------------------------------------------------------------------- */

static void measure_norms(struct activation *a, uint32_t matrix)
{
    for (uint32_t l = 0; l < a->layers; l++) {
        const uint16_t *row = row_of(a, matrix, l);
        float sum = 0;
        for (uint32_t e = 0; e < a->experts; e++)
            sum += (float)row[e] * (float)row[e];
        a->norm[(size_t)matrix * a->layers + l] = sqrtf(sum);
    }
}

/* Norms of both are up to date. */
static float similarity(const struct activation *a, uint32_t x, uint32_t y)
{
    float sum = 0;
    uint32_t layers = 0;
    for (uint32_t l = 0; l < a->layers; l++) {
        float nx = a->norm[(size_t)x * a->layers + l], ny = a->norm[(size_t)y * a->layers + l];
        const uint16_t *rx = row_of(a, x, l), *ry = row_of(a, y, l);
        float dot = 0;
        if (!(nx > 0) || !(ny > 0))
            continue;
        for (uint32_t e = 0; e < a->experts; e++)
            dot += (float)rx[e] * (float)ry[e];
        sum += dot / (nx * ny);
        layers++;
    }
    return layers > 0 ? sum / (float)layers : 0;
}

/* The one most similar to the current matrix; ties: the oldest. NONE: the collection is empty. */
static uint32_t nearest(struct activation *a)
{
    uint32_t best = NONE;
    float most = -1;
    measure_norms(a, ACTIVATION_MATRICES);
    for (uint32_t m = 0; m < a->count; m++) {
        float s = similarity(a, ACTIVATION_MATRICES, m);
        if (s > most) {
            most = s;
            best = m;
        }
    }
    return best;
}

/* ---- sequences ------------------------------------------------------------------------------ */

static void end_sequence(struct activation *a)
{
    uint32_t to = a->count < ACTIVATION_MATRICES ? a->count++ : nearest(a);
    memcpy(row_of(a, to, 0), row_of(a, ACTIVATION_MATRICES, 0),
           cells(a->layers, a->experts) * sizeof *a->counts);
    measure_norms(a, to);
    memset(row_of(a, ACTIVATION_MATRICES, 0), 0, cells(a->layers, a->experts) * sizeof *a->counts);
}

/* Keeps the ratios when a count reaches its end. */
static void halve(uint16_t *row, uint32_t experts)
{
    for (uint32_t e = 0; e < experts; e++)
        row[e] /= 2;
}

void activation_access(struct activation *a, uint32_t sequence, uint32_t layer, uint32_t expert,
                       uint32_t tokens)
{
    OBJ_CHECK(a, ACTIVATION_MAGIC);
    sl_assert(layer < a->layers && expert < a->experts);
    if (a->started && a->sequence != sequence) {
        end_sequence(a);
        a->position = NONE;
    }
    if (!a->started)
        a->position = NONE;
    a->started = true;
    a->sequence = sequence;
    uint16_t *row = row_of(a, ACTIVATION_MATRICES, layer);
    tokens = tokens < UINT16_MAX / 2 ? tokens : UINT16_MAX / 2;
    if (row[expert] > UINT16_MAX - tokens)
        halve(row, a->experts);
    row[expert] = (uint16_t)(row[expert] + tokens);
}

/* ---- prediction ----------------------------------------------------------------------------- */

uint32_t activation_predict(struct activation *a, uint32_t position, uint32_t now, uint32_t layer,
                            uint32_t want, uint32_t top_k, struct prediction *out)
{
    OBJ_CHECK(a, ACTIVATION_MAGIC);
    sl_assert(layer > now && layer < a->layers);
    if (position != a->position) {
        a->match = nearest(a);
        a->position = position;
    }
    const uint16_t *row = row_of(a, a->match == NONE ? ACTIVATION_MATRICES : a->match, layer);
    float weight = 1 - (float)(layer - now) / (float)a->layers;
    uint64_t all = 0;
    uint32_t found = 0;
    for (uint32_t e = 0; e < a->experts; e++)
        all += row[e];
    for (uint32_t e = 0; e < a->experts && all > 0; e++) {
        float p = (float)row[e] * (float)top_k / (float)all;
        if (row[e] > 0)
            found = prediction_keep_best(
                out, found, want,
                (struct prediction){.expert = e, .probability = (p < 1 ? p : 1) * weight});
    }
    return found;
}
