/* SPDX-License-Identifier: Apache-2.0 */
/* The tensors of a checkpoint that a tensor of GGUF is made of, and those with their scales. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/model/hf/internal.h"
#include "lib/tensor/tensor_type.h"

int hf_missing(const char *name, struct error *error)
{
    return error_set(error, ERR_BAD_INPUT, "tensor %s is missing", name);
}

int hf_add_source(struct hf_model *hf, const struct safetensor *s, struct error *error)
{
    if (hf->source_count == hf->source_capacity) {
        uint32_t capacity = hf->source_capacity ? hf->source_capacity * 2 : 1024;
        uint32_t *bigger = reallocarray(hf->sources, capacity, sizeof *bigger);
        if (!bigger)
            return error_set(error, ERR_NO_MEMORY, "out of memory (%" PRIu32 " tensors)", capacity);
        hf->sources = bigger;
        hf->source_capacity = capacity;
    }
    hf->sources[hf->source_count++] = (uint32_t)(s - hf->files.tensors);
    return 0;
}

int hf_add_factor(struct hf_model *hf, struct hf_tensor *t, const struct safetensor *factor,
                  const char *name, struct error *error)
{
    uint64_t elements = 1;
    if (!factor)
        return hf_missing(name, error);
    for (uint32_t d = 0; d < factor->dims; d++)
        elements *= factor->shape[d];
    if (factor->type >= SAFETENSORS_FIRST)
        return error_set(error, ERR_BAD_INPUT, "tensor %s has another type than F32, F16 and BF16",
                         factor->name);
    if (t->rows != 1 || elements != t->columns)
        return error_set(error, ERR_BAD_INPUT,
                         "tensor %s has %" PRIu64 " elements, and not the %" PRIu64
                         " of the vector that it is multiplied with",
                         factor->name, elements, t->rows * t->columns);
    t->factor_type = factor->type;
    t->scales = hf->source_count;
    return hf_add_source(hf, factor, error);
}

/* ---- scales ---- */

#define PACKED_END "_packed"

static bool is_packed(const struct safetensor *s)
{
    size_t n = strlen(s->name), end = strlen(PACKED_END);
    return n > end && strcmp(s->name + n - end, PACKED_END) == 0;
}

/* The scales of a quantised source: the tensor of its name with "_scale_inv", or, as DeepSeek-V4
 * has them, with ".scale" in place of ".weight", or with "_scale" in place of "_packed". NULL with
 * *error: there is none. */
static const struct safetensor *scales_of(const struct hf_model *hf, const struct safetensor *s,
                                          struct error *error)
{
    char name[HF_NAME_BYTES], other[HF_NAME_BYTES];
    size_t n = strlen(s->name);
    if (is_packed(s))
        snprintf(name, sizeof name, "%.*s_scale", (int)(n - strlen(PACKED_END)), s->name);
    else
        snprintf(name, sizeof name, "%s_scale_inv", s->name);
    const struct safetensor *scales = safetensors_find(&hf->files, name);
    if (!scales && n > 7 && strcmp(s->name + n - 7, ".weight") == 0) {
        snprintf(other, sizeof other, "%.*s.scale", (int)n - 7, s->name);
        scales = safetensors_find(&hf->files, other);
    }
    if (!scales)
        hf_missing(name, error);
    return scales;
}

/* F32 from DeepSeek, BF16 from Qwen, exponents of DeepSeek-V4. */
static bool is_scale(uint32_t type)
{
    return type == TENSOR_F32 || type == TENSOR_F16 || type == TENSOR_BF16 ||
           type == SAFETENSORS_F8_E8M0;
}

static int add_fp8_scales(struct hf_model *hf, struct hf_tensor *t, const struct safetensor *s,
                          struct error *error)
{
    const struct safetensor *scales = scales_of(hf, s, error);
    if (!scales)
        return -1;
    if (!is_scale(scales->type) || scales->dims != 2 ||
        scales->shape[0] != (s->shape[0] + t->block_rows - 1) / t->block_rows ||
        scales->shape[1] != (s->shape[1] + t->block_columns - 1) / t->block_columns)
        return error_set(error, ERR_BAD_INPUT,
                         "tensor %s is not a matrix of F32, F16, BF16 or F8_E8M0 with a number for "
                         "each block",
                         scales->name);
    if (hf->source_count > t->scales && scales->type != t->factor_type)
        return error_set(error, ERR_BAD_INPUT,
                         "the scales of tensor %s have another type than those of the first expert",
                         s->name);
    t->factor_type = scales->type;
    return hf_add_source(hf, scales, error);
}

/* Adds the exponents of MXFP4: the tensor with "_scales" for "_blocks". */
static int add_exponents_of_blocks(struct hf_model *hf, const struct safetensor *s,
                                   struct error *error)
{
    char name[HF_NAME_BYTES];
    size_t n = strlen(s->name);
    sl_assert(n > 7 && strcmp(s->name + n - 7, "_blocks") == 0);
    snprintf(name, sizeof name, "%.*s_scales", (int)n - 7, s->name);
    const struct safetensor *scales = safetensors_find(&hf->files, name);
    if (!scales)
        return hf_missing(name, error);
    bool same = scales->dims == s->dims - 1;
    for (uint32_t d = 0; d < scales->dims; d++)
        same = same && scales->shape[d] == s->shape[d];
    if (scales->type != SAFETENSORS_U8 || !same)
        return error_set(error, ERR_BAD_INPUT, "tensor %s has no U8 for each block", name);
    return hf_add_source(hf, scales, error);
}

/* Of MXFP4 whose rows have two elements in a byte. */
static int add_exponents_of_rows(struct hf_model *hf, const struct safetensor *s,
                                 struct error *error)
{
    const struct safetensor *scales = scales_of(hf, s, error);
    const uint64_t bytes = HF_MXFP4_ELEMS / 2; /* of a block */
    const uint32_t type = is_packed(s) ? SAFETENSORS_U8 : SAFETENSORS_F8_E8M0;
    if (!scales)
        return -1;
    if (scales->type != type || scales->dims != 2 || s->dims != 2 ||
        scales->shape[0] != s->shape[0] || s->shape[1] != bytes * scales->shape[1])
        return error_set(error, ERR_BAD_INPUT,
                         "tensor %s is not a matrix of %s with a number for each block",
                         scales->name, is_packed(s) ? "U8" : "F8_E8M0");
    return hf_add_source(hf, scales, error);
}

/* Of packed whole numbers: the scales, of one type for all experts. */
static int add_group_scales(struct hf_model *hf, struct hf_tensor *t, const struct safetensor *s,
                            struct error *error)
{
    if (!is_packed(s))
        return error_set(error, ERR_BAD_INPUT, "tensor %s has another type than F32, F16 and BF16",
                         s->name);
    const struct safetensor *scales = scales_of(hf, s, error);
    if (!scales)
        return -1;
    if (scales->type >= SAFETENSORS_FIRST || scales->dims != 2 || s->dims != 2 ||
        scales->shape[0] != s->shape[0] || t->source_columns % t->block_columns != 0 ||
        scales->shape[1] != t->source_columns / t->block_columns)
        return error_set(error, ERR_BAD_INPUT,
                         "tensor %s is not a matrix of floats with a number for each group",
                         scales->name);
    if (hf->source_count > t->scales && scales->type != t->factor_type)
        return error_set(error, ERR_BAD_INPUT,
                         "the scales of tensor %s have another type than those of the first expert",
                         s->name);
    t->factor_type = scales->type;
    return hf_add_source(hf, scales, error);
}

/* What else belongs to them. The shape follows from that of the scales; what would change the
 * numbers or their order is not supported. */
static int add_packed_rest(struct hf_model *hf, const struct safetensor *s, struct error *error)
{
    static const char *const ends[] = {"_shape", "_zero_point", "_g_idx"};
    size_t n = strlen(s->name) - strlen(PACKED_END);
    for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
        char name[HF_NAME_BYTES];
        snprintf(name, sizeof name, "%.*s%s", (int)n, s->name, ends[i]);
        const struct safetensor *found = safetensors_find(&hf->files, name);
        if (found && i > 0)
            return error_set(error, ERR_BAD_INPUT, "tensor %s is not supported", name);
        if (found && hf_add_source(hf, found, error))
            return -1;
    }
    return 0;
}

/* Adding moves hf->sources. */
int hf_add_scales(struct hf_model *hf, struct hf_tensor *t, struct error *error)
{
    uint32_t sources = t->stacked ? 1 : t->planes;
    t->scales = hf->source_count;
    bool scaled = t->form == HF_FP8 || t->form == HF_MXFP4 || t->form == HF_INTS;
    for (uint32_t i = 0; i < sources && scaled; i++) {
        const struct safetensor *s = &hf->files.tensors[hf->sources[t->source + i]];
        bool rows = s->type == SAFETENSORS_I8 || is_packed(s);
        int status = t->form == HF_FP8    ? add_fp8_scales(hf, t, s, error)
                     : t->form == HF_INTS ? add_group_scales(hf, t, s, error)
                     : rows               ? add_exponents_of_rows(hf, s, error)
                                          : add_exponents_of_blocks(hf, s, error);
        if (status != 0)
            return -1;
    }
    for (uint32_t i = 0; i < sources && t->form == HF_INTS; i++)
        if (add_packed_rest(hf, &hf->files.tensors[hf->sources[t->source + i]], error))
            return -1;
    return 0;
}
