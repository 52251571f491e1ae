/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps activation matrices of earlier sequences, and predicts from the nearest one. */
#include "lib/policy/prediction/activation.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/policy/prediction/internal.h"

#define ACTIVATION_MAGIC 0x56544341u
#define NONE             UINT32_MAX
#define MATRICES         (ACTIVATION_MATRICES + SEQUENCES_MAX) /* collected, then running ones */

struct activation_match { /* of a running sequence */
    uint32_t position;    /* at which it was chosen; NONE: not yet */
    uint32_t matrix;      /* in the collection; NONE: its own */
};

struct activation {
    uint32_t magic;
    uint32_t layers, experts, count; /* matrices in the collection */
    struct sequences sequences;
    struct activation_match match[SEQUENCES_MAX]; /* by place */
    uint16_t *counts;                             /* [MATRICES][layers][experts] */
    float *norm;                                  /* [MATRICES][layers] */
};

static size_t cells(uint32_t layers, uint32_t experts)
{
    return (size_t)layers * experts;
}

size_t activation_bytes(uint32_t layers, uint32_t experts)
{
    return sizeof(struct activation) +
           MATRICES * (cells(layers, experts) * sizeof(uint16_t) + layers * sizeof(float));
}

struct activation *activation_create(uint32_t layers, uint32_t experts)
{
    sl_assert(layers > 0 && experts > 0);
    struct activation *a = calloc(1, sizeof *a);
    if (!a)
        return NULL;
    *a = (struct activation){.magic = ACTIVATION_MAGIC, .layers = layers, .experts = experts};
    a->counts = calloc(MATRICES * cells(layers, experts), sizeof *a->counts);
    a->norm = calloc(MATRICES * (size_t)layers, sizeof *a->norm);
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

/* The one most similar to a running sequence's; ties: the oldest. NONE: the collection is empty. */
static uint32_t nearest(struct activation *a, uint32_t running)
{
    uint32_t best = NONE;
    float most = -1;
    measure_norms(a, running);
    for (uint32_t m = 0; m < a->count; m++) {
        float s = similarity(a, running, m);
        if (s > most) {
            most = s;
            best = m;
        }
    }
    return best;
}

/* ---- sequences ------------------------------------------------------------------------------ */

static uint32_t matrix_at(uint32_t place)
{
    return ACTIVATION_MATRICES + place;
}

/* The matrix joins the collection, and the place gets an empty one. */
static void end_at(struct activation *a, uint32_t place)
{
    uint32_t running = matrix_at(place);
    uint32_t to = a->count < ACTIVATION_MATRICES ? a->count++ : nearest(a, running);
    memcpy(row_of(a, to, 0), row_of(a, running, 0),
           cells(a->layers, a->experts) * sizeof *a->counts);
    measure_norms(a, to);
    memset(row_of(a, running, 0), 0, cells(a->layers, a->experts) * sizeof *a->counts);
}

static uint32_t start(struct activation *a, uint32_t sequence)
{
    bool displaced;
    uint32_t place = sequences_start(&a->sequences, sequence, &displaced);
    if (displaced)
        end_at(a, place);
    a->match[place] = (struct activation_match){NONE, NONE};
    return place;
}

void activation_sequence_ends(struct activation *a, uint32_t sequence)
{
    OBJ_CHECK(a, ACTIVATION_MAGIC);
    uint32_t place = sequences_end(&a->sequences, sequence);
    if (place != SEQUENCE_NONE)
        end_at(a, place);
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
    uint32_t place = sequences_find(&a->sequences, sequence);
    if (place == SEQUENCE_NONE)
        place = start(a, sequence);
    uint16_t *row = row_of(a, matrix_at(place), layer);
    tokens = tokens < UINT16_MAX / 2 ? tokens : UINT16_MAX / 2;
    if (row[expert] > UINT16_MAX - tokens)
        halve(row, a->experts);
    row[expert] = (uint16_t)(row[expert] + tokens);
}

/* ---- prediction ----------------------------------------------------------------------------- */

uint32_t activation_predict(struct activation *a, const struct prediction_place *now,
                            uint32_t layer, uint32_t want, uint32_t top_k, struct prediction *out)
{
    OBJ_CHECK(a, ACTIVATION_MAGIC);
    sl_assert(layer > now->layer && layer < a->layers);
    uint32_t place = sequences_find(&a->sequences, now->sequence);
    if (place == SEQUENCE_NONE)
        return 0;
    struct activation_match *match = &a->match[place];
    if (now->position != match->position)
        *match = (struct activation_match){now->position, nearest(a, matrix_at(place))};
    const uint16_t *row =
        row_of(a, match->matrix == NONE ? matrix_at(place) : match->matrix, layer);
    float weight = 1 - (float)(layer - now->layer) / (float)a->layers;
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
