/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes: the parts of a model, and memory of operations in addition to their arguments. */
#include "lib/device/cuda/internal.h"

const char *cuda_part_name(enum cuda_part part)
{
    static const char *const names[] = {
#define X(id, name, text) name,
        CUDA_PARTS(X)
#undef X
    };
    sl_assert((size_t)part < ARRAY_LEN(names));
    return names[part];
}

uint64_t gpu_layout_bytes(const struct gpu_layout *layout)
{
    uint64_t bytes = 0;
    for (int i = 0; i < CUDA_PART__COUNT; i++)
        bytes += layout->bytes[i];
    return bytes;
}

size_t cuda_matrix_bytes(const struct gpu_kernels *k, const struct kernel_matrix *m)
{
    return (size_t)k->row_bytes(m->type, m->k) * m->n;
}

static uint64_t tensor_bytes(const struct gpu_kernels *k, const struct model_tensor *t)
{
    const struct kernel_matrix all = {.k = (uint32_t)t->ne[0],
                                      .n = (uint32_t)(t->bytes / t->row_bytes),
                                      .type = (enum tensor_type)t->type};
    return align_up(cuda_matrix_bytes(k, &all), DEVICE_ALIGN);
}

static uint64_t weights_of(const struct model_index *m, const struct gpu_kernels *k,
                           const struct gpu_layout *layout)
{
    uint64_t bytes = align_up(CUDA_STAGING_BYTES, DEVICE_ALIGN);
    for (uint32_t i = 0; i < m->dense_count; i++) {
        const struct model_entry *e = &model_index_entries(m)[i];
        if (e->extents > 0 && model_part_reads(m, layout->first_layer, layout->end_layer, i))
            bytes += tensor_bytes(k, &model_index_tensors(m)[e->extent[0].tensor]);
    }
    return bytes;
}

static uint64_t side_of(const struct model_hparams *h, uint32_t layer, enum kv_side side,
                        enum kv_type type, uint64_t positions)
{
    return align_up(model_kv_bytes(h, layer, side, type, positions), DEVICE_ALIGN);
}

/* What a layer has of a sequence: keys and values, or so many states. */
static uint64_t layer_of(const struct model_index *m, uint32_t layer, enum kv_type type,
                         uint32_t context, uint32_t ring, uint32_t states)
{
    const struct model_hparams *h = &m->hparams;
    if (h->layer_kind[layer] == LAYER_RECURRENT)
        return states * align_up(model_layer_floats(h, layer) * sizeof(float), DEVICE_ALIGN);
    uint32_t positions = m->layer[layer].attention.window > 0 && ring > 0 ? ring : context;
    return side_of(h, layer, KV_SIDE_KEYS, type, positions) +
           side_of(h, layer, KV_SIDE_VALUES, type, positions);
}

/* Of the layers [first, end) the largest: an operation has those of one layer. */
static uint64_t sequence_of(const struct model_index *m, uint32_t first, uint32_t end,
                            enum kv_type type, uint32_t context, uint32_t ring)
{
    uint64_t most = 0;
    for (uint32_t layer = first; layer < end; layer++) {
        uint64_t bytes = layer_of(m, layer, type, context, ring, 2);
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* ---- experts ---- */

_Static_assert(SLABS_ALIGN % DEVICE_ALIGN == 0, "slots are aligned");

/* Each of its matrices begins at a multiple of DEVICE_ALIGN. */
static uint64_t slot_of(const struct gpu_kernels *kernels, const struct model_entry *e)
{
    uint64_t bytes = 0;
    for (int k = 0; k < EXPERT__COUNT; k++)
        bytes += align_up(kernels->row_bytes((enum tensor_type)e->matrix[k].type, e->matrix[k].k) *
                              e->matrix[k].n,
                          DEVICE_ALIGN);
    return bytes;
}

void gpu_layout_sizes(struct gpu_layout *layout, const struct gpu_kernels *kernels,
                      const struct model_index *m)
{
    layout->sizes = (struct expert_sizes){.experts = m->hparams.experts};
    for (uint32_t i = m->dense_count; i < model_experts_end(m); i++) {
        const struct model_entry *e = &model_index_entries(m)[i];
        if (e->layer >= layout->first_layer && e->layer < layout->end_layer)
            expert_sizes_add(&layout->sizes, e->precision, e->layer, slot_of(kernels, e));
    }
    layout->slot_bytes = expert_sizes_largest(&layout->sizes);
}

static struct slabs divide(const struct gpu_layout *layout)
{
    return slabs_divide(&layout->sizes, layout->bytes[CUDA_EXPERTS], layout->top_k);
}

uint64_t gpu_layout_experts(const struct gpu_layout *layout, uint64_t bytes)
{
    if (layout->slot_bytes == 0 || bytes < layout->top_k * layout->slot_bytes)
        return bytes;
    struct slabs s = slabs_divide(&layout->sizes, bytes, layout->top_k);
    return s.count * s.bytes;
}

static bool holds(const struct gpu_layout *layout, const struct slabs *s, unsigned precisions)
{
    return slabs_for(s, &layout->sizes, precisions) <= s->count;
}

bool gpu_layout_holds(const struct gpu_layout *layout, unsigned precisions)
{
    if (layout->slot_bytes == 0)
        return true;
    struct slabs s = divide(layout);
    return holds(layout, &s, precisions);
}

unsigned gpu_layout_precisions(const struct gpu_layout *layout)
{
    unsigned mask = 0;
    if (layout->slot_bytes == 0)
        return 0;
    struct slabs s = divide(layout);
    for (unsigned p = 0; p < PRECISION__COUNT; p++)
        if (expert_sizes_of(&layout->sizes, (enum precision)p) > 0 && holds(layout, &s, 1u << p))
            mask |= 1u << p;
    return mask;
}

uint64_t gpu_layout_experts_best(const struct gpu_layout *layout)
{
    struct expert_sizes best = {.experts = layout->sizes.experts};
    if (layout->slot_bytes == 0)
        return 0;
    for (uint32_t l = 0; l < layout->layers; l++) {
        uint32_t p = 0;
        while (p + 1 < PRECISION__COUNT && layout->sizes.bytes[p][l] == 0)
            p++;
        expert_sizes_add(&best, p, l, layout->sizes.bytes[p][l]);
    }
    struct slabs s = slabs_divide(&best, UINT64_MAX, layout->top_k);
    return s.count * s.bytes;
}

uint32_t gpu_layout_lent_max(const struct gpu_layout *layout)
{
    return layout->slot_bytes ? divide(layout).count : 0;
}

uint32_t gpu_layout_places(const struct gpu_layout *layout)
{
    if (layout->slot_bytes == 0)
        return 0;
    struct slabs s = divide(layout);
    return s.count * s.places_max;
}

uint32_t gpu_layout_slots(const struct gpu_layout *layout)
{
    if (layout->slot_bytes == 0)
        return 0;
    struct slabs s = divide(layout);
    uint32_t all = expert_sizes_count(&layout->sizes), largest = s.count * s.places[0];
    return holds(layout, &s, CUDA_PRECISIONS_ALL) || largest > all ? all : largest;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Scratch memory of what is unpacked when a model is loaded, which is that of experts until
 * then. */
static uint64_t load_of(const struct model_hparams *h)
{
    struct layer_recurrent r = model_recurrent_max(h);
    uint64_t channels = r.channels > 0 ? r.channels : 1;
    uint64_t turned = larger(channels * r.taps, (uint64_t)r.key_size * r.value_size);
    return align_up(turned * sizeof(float), DEVICE_ALIGN) +
           align_up(channels * sizeof(uint32_t), DEVICE_ALIGN);
}

void gpu_layout_model(struct gpu_layout *layout, const struct gpu_kernels *kernels,
                      const struct model_index *model, enum kv_type kv_type, uint32_t context,
                      uint32_t ring, uint32_t sequences)
{
    const struct model_hparams *h = &model->hparams;
    layout->end_layer = layout->end_layer ? layout->end_layer : h->layers;
    layout->positions = context;
    layout->layers = h->layers;
    layout->experts = h->experts;
    layout->top_k = h->experts_used;
    gpu_layout_sizes(layout, kernels, model);
    layout->bytes[CUDA_WEIGHTS] = weights_of(model, kernels, layout);
    layout->bytes[CUDA_KV] = sequences * sequence_of(model, layout->first_layer, layout->end_layer,
                                                     kv_type, context, ring);
    uint64_t experts = layout->slot_bytes * h->experts_used, load = load_of(h);
    layout->bytes[CUDA_EXPERTS] = experts > load ? experts : load;
}

void gpu_layout_kv(struct gpu_layout *layout, const struct model_index *model, enum kv_type kv_type,
                   uint32_t context, uint32_t ring, uint64_t bytes)
{
    uint64_t kept = 0;
    for (uint32_t end = layout->first_layer + 1; end <= layout->end_layer; end++) {
        kept += layer_of(model, end - 1, kv_type, context, ring, 1);
        uint64_t all = kept + sequence_of(model, end, layout->end_layer, kv_type, context, ring);
        if (all > bytes)
            continue;
        layout->kv_layers = end - layout->first_layer;
        layout->bytes[CUDA_KV] = all;
    }
}

/* ---- memory of operations: the largest of all, for the rows of a pass. Each has some arrays, and
 * those of rows once for each run of consecutive rows of a sequence. ---- */

#define ATTEND_BYTES ((size_t)16 << 20) /* of attention of several rows; a row may need more */
#define ARRAYS       8                  /* of an operation, or of a run in it */

/* Bytes of rows of k elements in the largest of the forms; floats are among them. */
static size_t row_bytes(uint32_t forms, uint32_t k)
{
    size_t most = k * sizeof(float);
    for (int form = FORM_F32 + 1; form < FORM__COUNT; form++) {
        if ((forms & (1u << form)) == 0)
            continue;
        size_t bytes = kernel_activation_bytes(kernel_form_type((enum kernel_form)form), k);
        most = bytes > most ? bytes : most;
    }
    return most;
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

size_t cuda_attend_bytes(const struct cuda *c, const struct device_limits *l)
{
    size_t segments = c->layout.positions / KERNEL_KEY_SEGMENT + 2;
    size_t row = segments * l->attention_floats * sizeof(float);
    return align_up(larger(row, smaller(row * l->rows, ATTEND_BYTES)), DEVICE_ALIGN);
}

/* Rows of a batch: of one expert those of the pass, of a row all its experts. */
static size_t experts_bytes(const struct device_limits *l)
{
    size_t pairs = (size_t)l->rows * l->top_k, batch = larger(l->rows, l->top_k);
    size_t job =
        align_up(2 * sizeof(struct gpu_job), DEVICE_ALIGN) +
        align_up(sizeof(struct gpu_finish_job), DEVICE_ALIGN); /* each may be launched alone */
    size_t inner = 0;
    for (int form = FORM_F32 + 1; form < FORM__COUNT; form++)
        if (l->inner_forms & (1u << form))
            inner += batch * kernel_activation_bytes(kernel_form_type((enum kernel_form)form),
                                                     l->inner) +
                     DEVICE_ALIGN;
    return pairs * sizeof(struct gpu_term) + cuda_batch_jobs(l) * job + inner +
           ARRAYS * DEVICE_ALIGN;
}

static size_t latent_bytes(const struct device_limits *l)
{
    const struct device_latent *m = &l->latent;
    size_t all = (size_t)l->rows * m->heads;
    return all * ((m->nope + m->rope + m->key + m->rank) * sizeof(float) +
                  row_bytes(l->nope_forms, m->nope) + row_bytes(l->latent_forms, m->rank));
}

static size_t recurrent_bytes(const struct device_limits *l)
{
    const struct layer_recurrent *r = &l->recurrent;
    size_t runs = smaller(l->rows, DEVICE_SEQUENCES_MAX);
    size_t floats = r->channels + 2 * (size_t)r->groups * r->key_size +
                    (size_t)r->heads * (r->value_size + 1) + device_recurrent_decays(r);
    return l->rows * floats * sizeof(float) + runs * ARRAYS * DEVICE_ALIGN;
}

size_t cuda_workspace(const struct device *d, const struct device_limits *l)
{
    const struct cuda *c = (const struct cuda *)(const void *)d;
    size_t scratch = larger(larger(experts_bytes(l), latent_bytes(l)), recurrent_bytes(l));
    return cuda_attend_bytes(c, l) + cuda_token_bytes(c, l) + align_up(scratch, DEVICE_ALIGN) +
           ARRAYS * DEVICE_ALIGN;
}
