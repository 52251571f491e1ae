/* SPDX-License-Identifier: Apache-2.0 */
/* Experts: as in the file, and at other precisions, which are made from it; mapped or in slots. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/offline/internal.h"

/* Padding, so that the last wide read of a kernel stays inside. */
#define TAIL_BYTES 64

enum tensor_type offline_type(enum precision precision, enum quant_method method)
{
    sl_assert(precision > PRECISION_NATIVE && precision < PRECISION__COUNT);
    return quant_type_for(precision == PRECISION_INT8   ? 8
                          : precision == PRECISION_INT4 ? 4
                                                        : 2,
                          method);
}

static int check_matrix(const struct kernel_matrix *w, struct error *error)
{
    for (int p = PRECISION_NATIVE + 1; p < PRECISION__COUNT; p++)
        for (int method = 0; method < QUANT_METHOD__COUNT; method++) {
            enum tensor_type type = offline_type((enum precision)p, (enum quant_method)method);
            uint64_t bytes;
            if (!tensor_type_row_bytes(type, w->k, &bytes))
                return error_set(error, ERR_BAD_INPUT,
                                 "the experts cannot have lower precisions: rows of %u elements "
                                 "are not a multiple of %u",
                                 w->k, tensor_type_info(type)->block_elems);
        }
    return 0;
}

int offline_check_precisions(const struct offline_model *m, struct error *error)
{
    for (uint32_t l = 0; l < m->index->hparams.layers; l++) {
        struct kernel_matrix w[EXPERT__COUNT];
        if (!model_layer_has_experts(m->index, l))
            continue;
        expert_matrices(&model_index_entries(m->index)[model_entry_expert(m->index, l, 0)], NULL,
                        w);
        for (int part = 0; part < EXPERT__COUNT; part++)
            if (w[part].n > 0 && check_matrix(&w[part], error) != 0)
                return -1;
    }
    return 0;
}

/* Layout of a quantised expert: matrices with `data` as offset. Returns the bytes of all three. */
static uint64_t made_layout(const struct kernel_matrix native[EXPERT__COUNT], enum tensor_type type,
                            struct kernel_matrix out[EXPERT__COUNT])
{
    uint64_t at = 0;
    for (int part = 0; part < EXPERT__COUNT; part++) {
        uint64_t row_bytes = 0;
        out[part] = native[part];
        if (native[part].n == 0)
            continue;
        bool known = tensor_type_row_bytes(type, native[part].k, &row_bytes);
        sl_assert(known);
        out[part].type = type;
        out[part].row_bytes = row_bytes;
        out[part].data = (const uint8_t *)(uintptr_t)at;
        at += (row_bytes * native[part].n + 63) / 64 * 64;
    }
    return at;
}

uint64_t offline_expert_bytes(const struct offline_model *m, uint32_t layer, uint32_t expert,
                              enum precision precision, enum quant_method method)
{
    struct kernel_matrix w[EXPERT__COUNT];
    uint64_t bytes = 0;
    if (!model_layer_has_experts(m->index, layer))
        return 0;
    expert_matrices(&model_index_entries(m->index)[model_entry_expert(m->index, layer, expert)],
                    NULL, w);
    for (int part = 0; part < EXPERT__COUNT; part++) {
        uint64_t row_bytes = w[part].row_bytes;
        if (precision != PRECISION_NATIVE && w[part].n > 0)
            tensor_type_row_bytes(offline_type(precision, method), w[part].k, &row_bytes);
        bytes += row_bytes * w[part].n;
    }
    return bytes;
}

/* ---- forms that are made ---- */

/* Quantises an expert row by row to the layout `made`, whose `data` are offsets from `at`. */
static void quantise(const struct offline_model *m,
                     const struct kernel_matrix native[EXPERT__COUNT],
                     const struct kernel_matrix made[EXPERT__COUNT], uint8_t *at)
{
    for (int part = 0; part < EXPERT__COUNT; part++) {
        const struct kernel_matrix *w = &native[part];
        float *row = malloc(w->k * sizeof *row + 1);
        if (!row)
            log_fatal(1, "out of memory (quantisation of an expert)");
        for (uint32_t r = 0; r < w->n; r++) {
            m->ops->row_to_f32(w, r, row);
            if (quant_rows(made[part].type, row, w->k, 1,
                           at + (uintptr_t)made[part].data + r * made[part].row_bytes,
                           &quant_defaults) != 0)
                log_fatal(2, "cannot quantise an expert: weights are not finite or too large");
        }
        free(row);
    }
}

static void move_to(struct kernel_matrix w[EXPERT__COUNT], const uint8_t *at)
{
    for (int part = 0; part < EXPERT__COUNT; part++)
        if (w[part].n > 0)
            w[part].data = at + (uintptr_t)w[part].data;
}

static uint32_t number_of(const struct offline_model *m, uint32_t layer, uint32_t expert)
{
    return layer * m->index->hparams.experts + expert;
}

static uint32_t form_number(enum precision precision, enum quant_method method)
{
    return precision == PRECISION_NATIVE
               ? 0
               : (uint32_t)method * (PRECISION__COUNT - 1) + (uint32_t)precision;
}

/* ---- mapped ---- */

static void mapped_native(const struct offline_model *m, uint32_t layer, uint32_t expert,
                          struct kernel_matrix out[EXPERT__COUNT])
{
    uint32_t entry = model_entry_expert(m->index, layer, expert);
    const struct model_entry *e = &model_index_entries(m->index)[entry];
    expert_matrices(e, NULL, out);
    for (int part = 0; part < EXPERT__COUNT; part++)
        if (out[part].n > 0)
            out[part].data =
                offline_payload(m, entry, model_matrix_extent(e, (enum expert_matrix)part));
}

static uint8_t *make_mapped(const struct offline_model *m,
                            const struct kernel_matrix native[EXPERT__COUNT],
                            const struct kernel_matrix made[EXPERT__COUNT], uint64_t bytes)
{
    uint8_t *all = aligned_alloc(64, bytes + TAIL_BYTES);
    if (!all)
        log_fatal(1, "out of memory (quantised expert of %" PRIu64 " bytes)", bytes);
    memset(all, 0, bytes + TAIL_BYTES);
    quantise(m, native, made, all);
    return all;
}

void offline_matrices(struct offline_model *m, uint32_t layer, uint32_t expert,
                      enum precision precision, enum quant_method method,
                      struct kernel_matrix out[EXPERT__COUNT])
{
    struct kernel_matrix native[EXPERT__COUNT];
    sl_assert(!m->slots);
    mapped_native(m, layer, expert, native);
    if (precision == PRECISION_NATIVE) {
        memcpy(out, native, sizeof native);
        return;
    }
    uint64_t bytes = made_layout(native, offline_type(precision, method), out);
    size_t slot =
        (size_t)number_of(m, layer, expert) * OFFLINE_FORMS + form_number(precision, method) - 1;
    uint8_t *all = __atomic_load_n(&m->made[slot], __ATOMIC_ACQUIRE);
    if (!all) {
        uint8_t *own = make_mapped(m, native, out, bytes);
        /* two threads may quantise the same expert: the second discards its copy */
        if (__atomic_compare_exchange_n(&m->made[slot], &all, own, false, __ATOMIC_ACQ_REL,
                                        __ATOMIC_ACQUIRE))
            all = own;
        else
            free(own);
    }
    move_to(out, all);
}

/* ---- in slots ---- */

/* The entry that has the expert at this precision and with this type, ENTRY_NONE: none. */
static uint32_t stored_entry(const struct offline_model *m, uint32_t layer, uint32_t expert,
                             enum precision precision, enum quant_method method)
{
    if (precision == PRECISION_NATIVE)
        return model_entry_expert(m->index, layer, expert);
    uint32_t entry = model_entry_expert_precision(m->index, layer, expert, precision);
    for (int part = 0; entry != ENTRY_NONE && part < EXPERT__COUNT; part++) {
        const struct model_matrix *x = &model_index_entries(m->index)[entry].matrix[part];
        if (x->n > 0 && x->type != offline_type(precision, method))
            return ENTRY_NONE;
    }
    return entry;
}

void offline_form(const struct offline_model *m, uint32_t layer, uint32_t expert,
                  enum precision precision, enum quant_method method, struct offline_form *f)
{
    const struct model_entry *entries = model_index_entries(m->index);
    uint32_t native = model_entry_expert(m->index, layer, expert),
             entry = stored_entry(m, layer, expert, precision, method);
    f->native = native;
    f->slot = (struct slots_form){.expert = number_of(m, layer, expert),
                                  .form = form_number(precision, method),
                                  .entry = entry};
    if (entry != ENTRY_NONE) {
        expert_matrices(&entries[entry], NULL, f->matrix);
        for (int part = 0; part < EXPERT__COUNT; part++)
            f->matrix[part].data =
                (const uint8_t *)(uintptr_t)entries[entry].matrix[part].slot_offset;
        f->slot.bytes = entries[entry].slot_bytes;
        return;
    }
    struct kernel_matrix from[EXPERT__COUNT];
    expert_matrices(&entries[native], NULL, from);
    f->slot.bytes =
        align_up(made_layout(from, offline_type(precision, method), f->matrix), PAGE_BYTES);
}

uint64_t offline_slot_bytes(const struct offline_model *m, uint32_t layer, uint32_t expert,
                            enum precision precision, enum quant_method method)
{
    struct offline_form f;
    if (!model_layer_has_experts(m->index, layer))
        return 0;
    offline_form(m, layer, expert, precision, method, &f);
    return f.slot.bytes;
}

void offline_form_matrices(const struct offline_form *f, const uint8_t *at,
                           struct kernel_matrix out[EXPERT__COUNT])
{
    memcpy(out, f->matrix, sizeof f->matrix);
    move_to(out, at);
}

int offline_form_make(struct offline_model *m, const struct offline_form *f, uint8_t *at,
                      uint8_t *stage, struct error *error)
{
    struct kernel_matrix native[EXPERT__COUNT];
    struct slots_form whole = {.expert = f->slot.expert, .entry = f->native};
    const uint8_t *from = stage;
    uint8_t *resident = NULL;
    /* without waiting: a form that is being made is pinned */
    bool held = slots_ready(m->slots, whole.expert, 0) &&
                slots_pin_ready(m->slots, whole.expert, 0, &resident);
    if (held)
        from = resident;
    else if (files_read(&m->files, f->native, stage, error) != 0)
        return -1;
    expert_matrices(&model_index_entries(m->index)[f->native], from, native);
    memset(at, 0, f->slot.bytes);
    quantise(m, native, f->matrix, at);
    if (held)
        slots_unpin(m->slots, whole.expert, 0);
    return 0;
}

uint8_t *offline_stage(const struct offline_model *m)
{
    uint8_t *stage = bulk_buffer(m->index->expert_slot_bytes_max + TAIL_BYTES);
    if (!stage)
        log_fatal(1, "out of memory (quantisation of an expert)");
    return stage;
}

static int hold_in_slots(struct offline_model *m, const struct offline_form *f, uint8_t **at,
                         struct error *error)
{
    uint64_t seen = 0;
    for (;;) {
        enum slots_found found = slots_pin(m->slots, &f->slot, at);
        if (found == SLOTS_MAKE) {
            uint8_t *stage = offline_stage(m);
            struct error why;
            int status = offline_form_make(m, f, *at, stage, &why);
            free(stage);
            slots_made(m->slots, &f->slot, status == 0 ? NULL : &why);
            return status == 0 ? 0 : error_set(error, why.code, "%s", why.text);
        }
        while (found == SLOTS_COMING && !slots_ready(m->slots, f->slot.expert, f->slot.form))
            if (slots_wait(m->slots, &seen, error) != 0)
                return -1;
        if (found != SLOTS_FULL && found != SLOTS_FAILED)
            return 0;
        if (slots_wait(m->slots, &seen, error) != 0)
            return -1;
    }
}

int offline_hold(struct offline_model *m, uint32_t layer, uint32_t expert, enum precision precision,
                 enum quant_method method, struct kernel_matrix out[EXPERT__COUNT],
                 struct error *error)
{
    OBJ_CHECK(m, OFFLINE_MAGIC);
    if (!m->slots) {
        offline_matrices(m, layer, expert, precision, method, out);
        return 0;
    }
    struct offline_form f;
    uint8_t *at;
    offline_form(m, layer, expert, precision, method, &f);
    if (f.slot.bytes > slots_bytes(m->slots))
        return offline_too_small(m, m->budget + f.slot.bytes - slots_bytes(m->slots), "experts",
                                 error);
    if (hold_in_slots(m, &f, &at, error) != 0)
        return -1;
    offline_form_matrices(&f, at, out);
    return 0;
}

void offline_release(struct offline_model *m, uint32_t layer, uint32_t expert,
                     enum precision precision, enum quant_method method)
{
    if (m->slots)
        slots_unpin(m->slots, number_of(m, layer, expert), form_number(precision, method));
}

double offline_expert_norm(struct offline_model *m, uint32_t layer, uint32_t expert,
                           struct error *error)
{
    struct kernel_matrix w[EXPERT__COUNT];
    if (offline_hold(m, layer, expert, PRECISION_NATIVE, QUANT_METHOD_DEFAULT, w, error) != 0)
        return -1;
    double sum = 0;
    for (int part = 0; part < EXPERT__COUNT; part++) {
        float *row = malloc(w[part].k * sizeof *row + 1);
        sl_assert(row);
        for (uint32_t r = 0; r < w[part].n; r++) {
            m->ops->row_to_f32(&w[part], r, row);
            for (uint32_t i = 0; i < w[part].k; i++)
                sum += (double)row[i] * (double)row[i];
        }
        free(row);
    }
    offline_release(m, layer, expert, PRECISION_NATIVE, QUANT_METHOD_DEFAULT);
    return sqrt(sum);
}
