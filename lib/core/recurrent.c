/* SPDX-License-Identifier: Apache-2.0 */
/* Mixers with a recurrent state; their formulas: lib/device/host/recurrent.c. */
#include "lib/core/internal.h"

#define LN_2 0.69314718055994530942

/* ---- weights ---- */

/* Roles of the tensors of a mixer; 0: none. A projection may have a second factor. */
struct projection {
    enum dense_role role, second;
};

#define CONVS 3 /* tensors of a convolution, which have the same number of channels */

static const struct tensors {
    struct projection project[CORE_PROJECTIONS]; /* in the order of a row */
    enum dense_role conv[CONVS], out;
} tensors[MIXER__COUNT] = {
    [MIXER_DELTANET] = {.project = {{DENSE_DELTA_QKV, 0},
                                    {DENSE_DELTA_GATE, 0},
                                    {DENSE_DELTA_BETA, 0},
                                    {DENSE_DELTA_ALPHA, 0},
                                    {DENSE_DELTA_BETA_ALPHA, 0}},
                        .conv = {DENSE_DELTA_CONV},
                        .out = DENSE_DELTA_OUT},
    [MIXER_KDA] = {.project = {{DENSE_KDA_Q, 0},
                               {DENSE_KDA_K, 0},
                               {DENSE_KDA_V, 0},
                               {DENSE_KDA_GATE, DENSE_KDA_GATE_B},
                               {DENSE_KDA_DECAY, DENSE_KDA_DECAY_B},
                               {DENSE_DELTA_BETA, 0}},
                   .conv = {DENSE_KDA_Q_CONV, DENSE_KDA_K_CONV, DENSE_KDA_V_CONV},
                   .out = DENSE_DELTA_OUT},
    [MIXER_LIGHTNING] = {.project = {{DENSE_DELTA_QKV, 0}, {DENSE_DELTA_GATE, 0}},
                         .out = DENSE_DELTA_OUT},
    [MIXER_MAMBA2] = {.project = {{DENSE_MAMBA_IN, 0}},
                      .conv = {DENSE_DELTA_CONV},
                      .out = DENSE_DELTA_OUT},
    [MIXER_MAMBA1] = {.project = {{DENSE_MAMBA_IN, 0}},
                      .conv = {DENSE_DELTA_CONV},
                      .out = DENSE_DELTA_OUT},
    [MIXER_SHORTCONV] = {.project = {{DENSE_SHORTCONV_IN, 0}},
                         .conv = {DENSE_SHORTCONV_CONV},
                         .out = DENSE_SHORTCONV_OUT},
};

static bool is_there(const struct core *c, uint32_t i, enum dense_role role)
{
    return role != 0 && model_entry_dense(c->model, i, role) != ENTRY_NONE;
}

/* The file has the taps of a channel next to each other. */
static struct device_at bind_conv(struct core *c, uint32_t i, const enum dense_role roles[CONVS],
                                  uint64_t *at)
{
    const struct layer_recurrent *r = &c->model->layer[i].recurrent;
    struct device_at conv = core_take(c, at, (size_t)r->taps * r->channels);
    uint32_t count = roles[1] != 0 ? CONVS : 1, channels = r->channels / count;
    sl_assert(r->taps <= MODEL_TAPS_MAX);
    for (uint32_t p = 0; p < count; p++) {
        struct op_unpack unpack = {.w = core_matrix(c, i, roles[p]),
                                   .row_stride = 1,
                                   .stride = r->channels,
                                   .y = device_floats_at(conv, (uint64_t)p * channels)};
        sl_assert(unpack.w.k == r->taps);
        unpack.w.n = channels;
        c->device->ops->unpack(c->device, &unpack);
    }
    return conv;
}

/* ---- fixed decays ---- */

size_t core_fixed_floats(const struct core *c)
{
    size_t decays = 0, ones = 0;
    for (uint32_t layer = c->first; layer < c->end; layer++) {
        const struct layer_recurrent *r = &c->model->layer[layer].recurrent;
        if (!r->rule.fixed)
            continue;
        decays += r->heads;
        ones = r->channels;
    }
    return decays + ones;
}

static void bind_ones(struct core *c, uint32_t n, uint64_t *at)
{
    float part[256];
    for (size_t i = 0; i < ARRAY_LEN(part); i++)
        part[i] = 1;
    c->fixed_ones = core_take(c, at, n);
    for (uint32_t i = 0; i < n; i += ARRAY_LEN(part)) {
        size_t floats = n - i < ARRAY_LEN(part) ? n - i : ARRAY_LEN(part);
        c->device->ops->write(c->device, device_floats_at(c->fixed_ones, i), part,
                              floats * sizeof *part);
    }
}

/* Of lightning attention: exp(-2^(-8 (h + 1) / heads) (1 - layer / (layers - 1) + 1e-5)). */
static float fixed_decay(const struct core *c, uint32_t layer, uint32_t heads, uint32_t head)
{
    double slope = exact_exp(-8.0 * (head + 1) / heads * LN_2);
    double last = c->hp.layers > 1 ? c->hp.layers - 1 : 1;
    return (float)exact_exp(-slope * (1 - layer / last + 1e-5));
}

static void bind_fixed(struct core *c, uint32_t i, uint64_t *vectors)
{
    const struct layer_recurrent *r = &c->model->layer[i].recurrent;
    struct core_recurrent_weights *w = &c->layer[i].recurrent;
    if (!c->fixed_ones.address)
        bind_ones(c, r->channels, vectors);
    w->conv = w->delta_dt = c->fixed_ones;
    w->delta_a = core_take(c, vectors, r->heads);
    for (uint32_t head = 0; head < r->heads; head++) {
        float decay = fixed_decay(c, i, r->heads, head);
        c->device->ops->write(c->device, device_floats_at(w->delta_a, head), &decay, sizeof decay);
    }
}

/* ---- all ---- */

static void bind_projection(struct core *c, uint32_t i, uint32_t n, const struct projection *p)
{
    struct core_layer *l = &c->layer[i];
    struct device_matrix *w = &l->recurrent.project[n];
    *w = core_matrix(c, i, p->role);
    l->in_forms |= form_bit(w);
    if (is_there(c, i, p->second)) {
        if (w->n > c->factored_max)
            c->factored_max = w->n;
        w = &l->recurrent.second[n];
        *w = core_matrix(c, i, p->second);
        l->recurrent.second_forms |= form_bit(w);
    }
    l->recurrent.projected += w->n;
}

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* The file has the numbers of a channel next to each other: columns of the state of a head. */
static struct device_at bind_rates(struct core *c, uint32_t i, uint64_t *at)
{
    const struct layer_recurrent *r = &c->model->layer[i].recurrent;
    size_t head = (size_t)r->key_size * r->value_size;
    struct device_at rates = core_take(c, at, r->heads * head);
    const struct device_matrix all = core_matrix(c, i, DENSE_MAMBA_A);
    sl_assert(all.k == r->key_size && all.n == r->mixed);
    for (uint32_t h = 0; h < r->heads; h++) {
        struct op_unpack unpack = {.w = all,
                                   .row_stride = 1,
                                   .stride = r->value_size,
                                   .y = device_floats_at(rates, h * head)};
        unpack.w.data = device_offset(all.data, (uint64_t)h * r->value_size * all.row_bytes);
        unpack.w.n = r->value_size;
        c->device->ops->unpack(c->device, &unpack);
    }
    return rates;
}

/* What the result of the convolution selects. */
static void bind_selection(struct core *c, uint32_t i, uint64_t *vectors)
{
    struct core_recurrent_weights *w = &c->layer[i].recurrent;
    w->select = core_matrix(c, i, DENSE_MAMBA_SELECT);
    w->step = core_matrix(c, i, DENSE_MAMBA_STEP);
    w->rates = bind_rates(c, i, vectors);
    w->select_forms = form_bit(&w->select);
    w->second_forms = form_bit(&w->step);
    c->factored_max = larger(c->factored_max, w->step.k);
    w->projected += w->select.n + w->step.n;
}

void core_bind_recurrent(struct core *c, uint32_t i, uint64_t *vectors)
{
    const struct tensors *t = &tensors[c->model->layer[i].mixer];
    struct core_layer *l = &c->layer[i];
    uint32_t n = 0;
    sl_assert(t->out != 0);
    for (size_t p = 0; p < CORE_PROJECTIONS; p++)
        if (is_there(c, i, t->project[p].role))
            bind_projection(c, i, n++, &t->project[p]);
    l->out = core_matrix(c, i, t->out);
    l->mix_forms = form_bit(&l->out);
    l->mix_size = l->out.k;
    if (c->model->layer[i].recurrent.rule.elements)
        bind_selection(c, i, vectors);
    c->projected_max = larger(c->projected_max, l->recurrent.projected);
    c->mix_size = larger(c->mix_size, l->mix_size);
    if (c->model->layer[i].recurrent.rule.fixed)
        bind_fixed(c, i, vectors);
    else
        l->recurrent.conv = bind_conv(c, i, t->conv, vectors);
    l->recurrent.beta_alpha = is_there(c, i, DENSE_DELTA_BETA_ALPHA);
    l->recurrent.state_at = model_state_floats(&c->hp, i); /* after layers of other parts, too */
    c->states++;
}

/* ---- a pass ---- */

static void multiply(struct core *c, const struct device_rows *x, uint32_t count,
                     const struct device_product *product)
{
    c->device->ops->products(
        c->device, &(struct op_products){
                       .rows = c->pass.step.rows, .x = *x, .count = count, .product = product});
}

/* The product with the second factor of a projection: y = w x. */
struct second {
    struct device_rows x;
    struct device_product product;
};

static void multiply_second(struct core *c, const struct second *s)
{
    const struct op_forms forms = {
        .rows = c->pass.step.rows, .forms = core_layer_now(c)->recurrent.second_forms, .y = s->x};
    c->device->ops->forms(c->device, &forms);
    multiply(c, &s->x, 1, &s->product);
}

/* The first factor writes its rows instead of the projection. */
static struct second second_of(const struct core *c, uint32_t number, const struct device_matrix *w,
                               struct device_product *first)
{
    struct second s = {.x = c->scratch.factored[number], .product = *first};
    device_rows_set(&s.x, w->k);
    s.product.w = *w;
    s.product.scale = (struct device_at){0};
    first->y = s.x.base[FORM_F32];
    first->y_stride = s.x.stride[FORM_F32] / sizeof(float);
    return s;
}

/* The projections, next to each other in a row. */
static void project(struct core *c)
{
    const struct core_recurrent_weights *w = &core_layer_now(c)->recurrent;
    struct device_product product[CORE_PROJECTIONS];
    struct second second[CORE_FACTORED];
    uint32_t count = 0, factored = 0;
    for (uint32_t at = 0; count < CORE_PROJECTIONS && w->project[count].data.address; count++) {
        product[count] = (struct device_product){.w = w->project[count],
                                                 .scale = w->project_scale[count],
                                                 .y = device_floats_at(c->scratch.projected, at),
                                                 .y_stride = c->projected_max};
        if (w->second[count].data.address) {
            sl_assert(factored < CORE_FACTORED);
            second[factored] = second_of(c, factored, &w->second[count], &product[count]);
            at += second[factored++].product.w.n;
        } else {
            at += w->project[count].n;
        }
    }
    multiply(c, &c->scratch.in, count, product);
    for (uint32_t i = 0; i < factored; i++)
        multiply_second(c, &second[i]);
}

void core_shortconv(struct core *c)
{
    const struct layer_recurrent *r = &c->model->layer[c->pass.step.layer].recurrent;
    project(c);
    const struct op_short_conv conv = {.rows = c->pass.step.rows,
                                       .sequences = c->pass.sequence_count,
                                       .row = c->scratch.row,
                                       .sequence = c->pass.at,
                                       .taps = r->taps,
                                       .channels = r->channels,
                                       .conv = core_layer_now(c)->recurrent.conv,
                                       .zeros = c->scratch.zeros,
                                       .stride = c->projected_max,
                                       .projected = c->scratch.projected,
                                       .mix = c->scratch.mix};
    c->device->ops->short_conv(c->device, &conv);
    core_attention_output(c);
}

static struct device_recurrence shape_of(const struct core *c, const struct core_layer *l)
{
    return (struct device_recurrence){.layer = c->model->layer[c->pass.step.layer].recurrent,
                                      .order = (enum delta_order)c->hp.delta_order,
                                      .joined = l->recurrent.beta_alpha,
                                      .eps = c->hp.recurrent_eps != 0 ? c->hp.recurrent_eps
                                                                      : c->hp.rms_eps};
}

void core_selective_scan(struct core *c)
{
    const struct core_layer *l = core_layer_now(c);
    struct device_rows first = c->scratch.factored[0];
    project(c);
    device_rows_set(&first, l->recurrent.step.k);
    const struct op_selective_scan scan = {
        .rows = c->pass.step.rows,
        .sequences = c->pass.sequence_count,
        .row = c->scratch.row,
        .sequence = c->pass.at,
        .shape = shape_of(c, l),
        .conv = l->recurrent.conv,
        .conv_bias = l->recurrent.conv_bias,
        .zeros = c->scratch.zeros,
        .select = l->recurrent.select,
        .select_forms = l->recurrent.select_forms,
        .step = l->recurrent.step,
        .step_forms = l->recurrent.second_forms,
        .step_norm = l->recurrent.step_norm,
        .k_norm = l->recurrent.k_norm,
        .q_norm = l->recurrent.q_norm,
        .dt = l->recurrent.delta_dt,
        .rates = l->recurrent.rates,
        .skip = l->recurrent.skip,
        .stride = c->projected_max,
        .projected = c->scratch.projected,
        .first = first,
        .mix = c->scratch.mix,
    };
    c->device->ops->selective_scan(c->device, &scan);
    core_attention_output(c);
}

void core_recurrence(struct core *c)
{
    const struct core_layer *l = core_layer_now(c);
    project(c);
    const struct op_recurrence recurrence = {
        .rows = c->pass.step.rows,
        .sequences = c->pass.sequence_count,
        .row = c->scratch.row,
        .sequence = c->pass.at,
        .shape = shape_of(c, l),
        .conv = l->recurrent.conv,
        .conv_bias = l->recurrent.conv_bias,
        .zeros = c->scratch.zeros,
        .dt = l->recurrent.delta_dt,
        .decay = l->recurrent.delta_a,
        .skip = l->recurrent.skip,
        .norm = l->recurrent.delta_norm,
        .q_weight = c->delta_q_weight,
        .k_weight = c->delta_k_weight,
        .stride = c->projected_max,
        .projected = c->scratch.projected,
        .mix = c->scratch.mix,
    };
    c->device->ops->recurrence(c->device, &recurrence);
    core_attention_output(c);
}
