/* SPDX-License-Identifier: Apache-2.0 */
/* Layers with a recurrent state: which ones they are, and their sizes. */
#include <inttypes.h>
#include <string.h>

#include "lib/model/arch/internal.h"

#define DELTA_SIZE_MAX 256

static const struct arch_row *list_of(const struct arch *arch)
{
    return arch_first(arch->rows, ARCH_ROWS(RECURRENT_FLAGS) | ARCH_ROWS(RECURRENT_HEADS));
}

const char *arch_recurrent_key(const struct arch *arch, bool *heads)
{
    const struct arch_row *list = list_of(arch);
    if (list)
        *heads = list->kind == ARCH_RECURRENT_HEADS;
    return list ? list->key : NULL;
}

void arch_set_recurrent(struct model_hparams *h)
{
    for (uint32_t layer = 0; h->attention_step > 0 && layer < h->layers; layer++)
        if ((layer + 1) % h->attention_step != 0)
            h->layer_kind[layer] = LAYER_RECURRENT;
}

/* Key heads of each block: 0 in recurrent ones, one number in the others. why: what a file without
 * attention is; NULL: a model. */
static int read_heads(const char *key, const char *why, struct gguf_array *a,
                      struct model_hparams *h, struct error *error)
{
    for (uint32_t layer = 0; layer < h->layers; layer++) {
        uint64_t heads;
        if (gguf_array_uint(a, key, &heads, error) != 0)
            return -1;
        h->layer_kind[layer] = heads == 0 ? LAYER_RECURRENT : LAYER_FULL;
        if (heads == 0)
            continue;
        if (heads > 1024 || (h->kv_heads != 0 && h->kv_heads != heads))
            return error_set(error, ERR_BAD_INPUT,
                             "key '%s' is %" PRIu64 " for layer %" PRIu32
                             ": 0 or one number up to 1024 is possible",
                             key, heads, layer);
        h->kv_heads = (uint32_t)heads;
    }
    if (why && h->kv_heads == 0)
        return error_set(error, ERR_BAD_INPUT, "key '%s' is 0 for every layer: %s", key, why);
    return 0;
}

int arch_read_recurrent(const struct arch *arch, const struct gguf *g, struct model_hparams *h,
                        struct error *error)
{
    const struct arch_row *list = list_of(arch);
    char key[ARCH_KEY_BYTES];
    struct gguf_array a;
    if (!list)
        return 0;
    arch_full_key(arch, list->key, key);
    int found = list->kind == ARCH_RECURRENT_HEADS ? gguf_get_uints(g, key, &a, error)
                                                   : gguf_get_array(g, key, GGUF_BOOL, &a, error);
    if (found <= 0)
        return found;
    if (a.left < h->layers)
        return error_set(error, ERR_BAD_INPUT,
                         "key '%s' has %" PRIu64 " elements for %" PRIu32 " layers", key, a.left,
                         h->layers);
    memset(h->layer_kind, LAYER_FULL, sizeof h->layer_kind); /* and not by the interval */
    if (list->kind == ARCH_RECURRENT_HEADS)
        return read_heads(key, list->text, &a, h, error) != 0 ? -1 : 1;
    for (uint32_t layer = 0; layer < h->layers; layer++)
        h->layer_kind[layer] = gguf_array_bool(&a) ? LAYER_RECURRENT : LAYER_FULL;
    return 1;
}

/* ---- the mixers ---- */

static bool any_layer_is(const struct model_hparams *h, enum layer_mixer mixer)
{
    for (uint32_t layer = 0; layer < h->layers; layer++)
        if (h->layer_mixer[layer] == mixer)
            return true;
    return false;
}

/* The sizes that the mixers with a recurrence share. */
static struct layer_recurrent recurrence_of(const struct model_hparams *h, uint32_t value_size)
{
    uint32_t keys = h->delta_k_heads * h->delta_size;
    return (struct layer_recurrent){.taps = h->conv_taps,
                                    .channels = 2 * keys + h->delta_v_heads * value_size,
                                    .heads = h->delta_v_heads,
                                    .groups = h->delta_k_heads,
                                    .key_size = h->delta_size,
                                    .value_size = value_size,
                                    .key_step = h->delta_size,
                                    .value_step = value_size,
                                    .mixed = h->delta_inner};
}

static int check_groups(const struct model_hparams *h, struct error *error)
{
    if (h->delta_size > DELTA_SIZE_MAX || h->delta_v_heads % h->delta_k_heads != 0)
        return error_set(error, ERR_BAD_INPUT,
                         "ssm.state_size %" PRIu32 ", ssm.time_step_rank %" PRIu32
                         ": not up to %d, a multiple of ssm.group_count %" PRIu32,
                         h->delta_size, h->delta_v_heads, DELTA_SIZE_MAX, h->delta_k_heads);
    return 0;
}

/* Gated DeltaNet: of the convolution's channels, the first are q, then k and v of all heads; then
 * z, b and a. */
static struct layer_recurrent deltanet_of(const struct model_hparams *h)
{
    struct layer_recurrent r = recurrence_of(h, h->delta_size);
    r.k_at = r.groups * r.key_size;
    r.v_at = 2 * r.k_at;
    r.gate_at = r.channels;
    r.rates_at = r.gate_at + r.mixed;
    r.projected = r.rates_at + 2 * r.heads;
    r.rule = (struct recurrent_rule){.delta = true, .unit = true, .sigmoid = h->delta_sigmoid != 0};
    return r;
}

static int deltanet_check(const struct model_hparams *h, struct error *error)
{
    if (h->delta_size == 0 || !any_layer_is(h, MIXER_DELTANET))
        return 0;
    if (check_groups(h, error) != 0)
        return -1;
    if (h->delta_inner != (uint64_t)h->delta_v_heads * h->delta_size)
        return error_set(error, ERR_BAD_INPUT,
                         "ssm.inner_size is %" PRIu32 ": not ssm.time_step_rank * ssm.state_size",
                         h->delta_inner);
    return 0;
}

/* Kimi delta attention (Kimi Team 2025): q, k and v of all heads, as DeltaNet has them; then z, the
 * decays of the key channels, and b. */
static struct layer_recurrent kda_of(const struct model_hparams *h)
{
    uint32_t inner = h->heads * h->delta_size;
    return (struct layer_recurrent){
        .taps = h->conv_taps,
        .channels = 3 * inner,
        .heads = h->heads,
        .groups = h->heads,
        .key_size = h->delta_size,
        .value_size = h->delta_size,
        .key_step = h->delta_size,
        .value_step = h->delta_size,
        .mixed = inner,
        .k_at = inner,
        .v_at = 2 * inner,
        .gate_at = 3 * inner,
        .channels_at = 4 * inner,
        .rates_at = 5 * inner,
        .projected = 5 * inner + h->heads,
        .rule = {.delta = true,
                 .unit = true,
                 .channels = true,
                 .sigmoid = true,
                 .bound = h->decay_bound},
    };
}

static int kda_check(const struct model_hparams *h, struct error *error)
{
    if (!any_layer_is(h, MIXER_KDA))
        return 0;
    if (h->delta_size == 0 || h->delta_size > DELTA_SIZE_MAX)
        return error_set(error, ERR_BAD_INPUT, "kda.head_dim %" PRIu32 " is not between 1 and %d",
                         h->delta_size, DELTA_SIZE_MAX);
    return 0;
}

/* Mamba-2 (Dao & Gu 2024): z, then x, B and C of the convolution, which are v, k and q, then the
 * steps of the heads. */
static struct layer_recurrent mamba2_of(const struct model_hparams *h)
{
    struct layer_recurrent r =
        recurrence_of(h, h->delta_v_heads > 0 ? h->delta_inner / h->delta_v_heads : 0);
    r.norms = r.groups;
    r.conv_at = r.mixed;
    r.k_at = r.mixed;
    r.q_at = r.k_at + r.groups * r.key_size;
    r.rates_at = r.conv_at + r.channels;
    r.projected = r.rates_at + r.heads;
    r.rule = (struct recurrent_rule){.step = true, .gate_first = true};
    return r;
}

static int mamba2_check(const struct model_hparams *h, struct error *error)
{
    if (!any_layer_is(h, MIXER_MAMBA2))
        return 0;
    if (h->delta_k_heads == 0 || h->delta_v_heads == 0 || h->delta_size == 0)
        return error_set(error, ERR_BAD_INPUT, "a layer of Mamba-2 has no sizes");
    if (check_groups(h, error) != 0)
        return -1;
    if (h->delta_inner % h->delta_v_heads != 0 ||
        h->delta_inner / h->delta_v_heads > DELTA_SIZE_MAX)
        return error_set(error, ERR_BAD_INPUT,
                         "ssm.inner_size is %" PRIu32
                         ": not a multiple of ssm.time_step_rank %" PRIu32 ", up to %d times",
                         h->delta_inner, h->delta_v_heads, DELTA_SIZE_MAX);
    return 0;
}

/* Lightning attention (Qin et al. 2024): q, k and v of a head are next to each other, without a
 * convolution; then the gates z of one norm of all heads. */
static struct layer_recurrent lightning_of(const struct model_hparams *h)
{
    uint32_t size = h->head_size, inner = h->heads * size;
    return (struct layer_recurrent){
        .taps = 1,
        .channels = 3 * inner,
        .heads = h->heads,
        .groups = h->heads,
        .key_size = size,
        .value_size = size,
        .norms = 1,
        .mixed = inner,
        .k_at = size,
        .v_at = 2 * size,
        .key_step = 3 * size,
        .value_step = 3 * size,
        .gate_at = 3 * inner,
        .projected = 4 * inner,
        .rule = {.sigmoid = true, .fixed = true},
    };
}

/* The decays of other numbers of heads are not one series (core/recurrent.c has it). */
static int lightning_check(const struct model_hparams *h, struct error *error)
{
    if (!any_layer_is(h, MIXER_LIGHTNING))
        return 0;
    if ((h->heads & (h->heads - 1)) != 0)
        return error_set(error, ERR_BAD_INPUT,
                         "lightning attention of %" PRIu32 " heads: not a power of 2", h->heads);
    if (h->head_size > DELTA_SIZE_MAX || h->value_size != h->head_size)
        return error_set(error, ERR_BAD_INPUT,
                         "key_length %" PRIu32 " and value_length %" PRIu32
                         ": lightning attention has one size, up to %d",
                         h->head_size, h->value_size, DELTA_SIZE_MAX);
    return 0;
}

/* Mamba (Gu & Dao 2023): x, which is v, and z; then what its convolution selects: the first factor
 * of the steps, k and q; then the steps. Heads are blocks of channels. */
static struct layer_recurrent mamba1_of(const struct model_hparams *h)
{
    uint32_t inner = h->delta_inner, block = MAMBA_BLOCK, selected = 2 * inner;
    while (inner % block != 0)
        block /= 2;
    struct layer_recurrent r = {
        .taps = h->conv_taps,
        .channels = inner,
        .heads = inner / block,
        .groups = 1,
        .key_size = h->delta_size,
        .value_size = block,
        .key_step = h->delta_size,
        .value_step = block,
        .mixed = inner,
        .gate_at = inner,
        .select_at = selected,
        .step_rank = h->step_rank,
        .k_at = selected + h->step_rank,
        .rule = {.step = true, .elements = true},
    };
    r.q_at = r.k_at + r.key_size;
    r.rates_at = r.q_at + r.key_size;
    r.projected = r.rates_at + inner;
    return r;
}

static int mamba1_check(const struct model_hparams *h, struct error *error)
{
    if (!any_layer_is(h, MIXER_MAMBA1))
        return 0;
    if (h->delta_size == 0 || h->delta_size > DELTA_SIZE_MAX || h->delta_inner == 0 ||
        h->step_rank == 0)
        return error_set(error, ERR_BAD_INPUT, "a layer of Mamba has no sizes");
    return 0;
}

/* LFM2's convolution has two gates. */
static struct layer_recurrent shortconv_of(const struct model_hparams *h)
{
    return (struct layer_recurrent){.taps = h->conv_taps,
                                    .channels = h->hidden,
                                    .projected = 3 * h->hidden,
                                    .mixed = h->hidden};
}

/* A mixer with a state: its sizes, without the floats, and the check of its hyper-parameters (NULL:
 * none). */
static const struct {
    struct layer_recurrent (*sizes)(const struct model_hparams *h);
    int (*check)(const struct model_hparams *h, struct error *error);
} mixers[MIXER__COUNT] = {
    [MIXER_DELTANET] = {deltanet_of, deltanet_check},    [MIXER_SHORTCONV] = {shortconv_of, NULL},
    [MIXER_MAMBA2] = {mamba2_of, mamba2_check},          [MIXER_KDA] = {kda_of, kda_check},
    [MIXER_LIGHTNING] = {lightning_of, lightning_check}, [MIXER_MAMBA1] = {mamba1_of, mamba1_check},
};

struct layer_recurrent model_recurrent_of(const struct model_hparams *h, uint32_t layer)
{
    uint8_t mixer = h->layer_mixer[layer];
    if (mixer >= MIXER__COUNT || !mixers[mixer].sizes)
        return (struct layer_recurrent){0};
    struct layer_recurrent r = mixers[mixer].sizes(h);
    r.floats = (uint64_t)(r.taps - 1) * r.channels + (uint64_t)r.heads * r.key_size * r.value_size;
    return r;
}

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

struct layer_recurrent model_recurrent_max(const struct model_hparams *h)
{
    struct layer_recurrent max = {0};
    for (uint32_t layer = 0; layer < h->layers; layer++) {
        struct layer_recurrent r = model_recurrent_of(h, layer);
        max.taps = larger(max.taps, r.taps);
        max.channels = larger(max.channels, r.channels);
        max.heads = larger(max.heads, r.heads);
        max.groups = larger(max.groups, r.groups);
        max.key_size = larger(max.key_size, r.key_size);
        max.value_size = larger(max.value_size, r.value_size);
        max.projected = larger(max.projected, r.projected);
        max.mixed = larger(max.mixed, r.mixed);
        max.norms = larger(max.norms, r.norms);
        max.step_rank = larger(max.step_rank, r.step_rank);
        max.rule.channels |= r.rule.channels;
        max.floats = max.floats > r.floats ? max.floats : r.floats;
    }
    return max;
}

uint64_t model_layer_floats(const struct model_hparams *h, uint32_t layer)
{
    return model_recurrent_of(h, layer).floats + model_ngram_floats(h, layer) +
           model_pool_floats(h, layer);
}

uint64_t model_state_floats(const struct model_hparams *h, uint32_t layers)
{
    uint64_t floats = 0;
    for (uint32_t layer = 0; layer < layers; layer++)
        floats += model_layer_floats(h, layer);
    return floats;
}

uint64_t model_state_bytes(const struct model_hparams *h)
{
    return model_state_floats(h, h->layers) * sizeof(float);
}

int arch_check_recurrent(const struct model_hparams *h, struct error *error)
{
    for (int mixer = 0; mixer < MIXER__COUNT; mixer++)
        if (mixers[mixer].check && mixers[mixer].check(h, error) != 0)
            return -1;
    return 0;
}
