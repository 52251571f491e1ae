/* SPDX-License-Identifier: Apache-2.0 */
/* Reads quantization_config, and rejects what no form of tensors has: FP8 with a scale per block of
 * weights is read; so are whole numbers of 4 or 8 bits of compressed-tensors (pack-quantized) with
 * a scale per group of a row, which are the blocks of Q4_0 and Q8_0; and what an architecture has
 * forms for. */
#include <stdio.h>
#include <string.h>

#include "lib/model/hf/internal.h"

#define GROUP_ELEMS     32 /* of a block of Q4_0 and Q8_0: groups are whole blocks */
#define GROUP_ELEMS_MAX 65536

/* ---- compressed-tensors ---- */

struct packed { /* of a group of config_groups, the weights of some layers */
    uint32_t bits, group;
};

/* The elements with a scale; 0: the whole row. */
static int read_group_size(const json_t *weights, uint32_t *group, struct error *error)
{
    const json_t *size = json_object_get(weights, "group_size");
    const json_t *strategy = json_object_get(weights, "strategy");
    json_int_t n = json_integer_value(size);
    bool channel = hf_is_string(strategy, "channel");
    if (channel ? (size && !json_is_null(size) && n != -1)
                : (!json_is_integer(size) || n < GROUP_ELEMS || n > GROUP_ELEMS_MAX ||
                   n % GROUP_ELEMS != 0))
        return error_set(
            error, ERR_BAD_INPUT,
            "group_size does not fit the strategy, or is no multiple of %d of up to %d",
            GROUP_ELEMS, GROUP_ELEMS_MAX);
    *group = channel ? 0 : (uint32_t)n;
    return 0;
}

static int read_group(const json_t *group, struct packed *p, struct error *error)
{
    const json_t *weights = json_object_get(group, "weights");
    const struct {
        const json_t *of;
        const char *field, *accepted;
        bool required;
    } values[] = {
        {group, "format", "\"pack-quantized\" null", false},
        {group, "input_activations", "null", false},
        {group, "output_activations", "null", false},
        {weights, "type", "\"int\"", true},
        {weights, "num_bits", "4 8", true},
        {weights, "symmetric", "true", true},
        {weights, "strategy", "\"group\" \"channel\"", true},
        {weights, "actorder", "null false \"weight\" \"static\"", false},
    };
    for (size_t i = 0; i < ARRAY_LEN(values); i++)
        if (hf_check_value(json_object_get(values[i].of, values[i].field), values[i].field,
                           values[i].accepted, values[i].required, error))
            return -1;
    p->bits = (uint32_t)json_integer_value(json_object_get(weights, "num_bits"));
    return read_group_size(weights, &p->group, error);
}

/* All groups are alike: which tensors are quantised is known by their names. */
static int read_packed(const json_t *q, struct hf_shape *shape, struct error *error)
{
    const json_t *groups = json_object_get(q, "config_groups"), *group;
    const char *name;
    struct packed all = {0};
    if (hf_check_value(json_object_get(q, "format"), "format", "\"pack-quantized\"", true, error) ||
        hf_check_value(json_object_get(q, "kv_cache_scheme"), "kv_cache_scheme", "null", false,
                       error))
        return -1;
    json_object_foreach((json_t *)(uintptr_t)groups, name, group)
    {
        struct packed one = {0};
        if (read_group(group, &one, error))
            return -1;
        if (all.bits != 0 && (one.bits != all.bits || one.group != all.group))
            return error_set(error, ERR_BAD_INPUT,
                             "config_groups of several sizes are not supported");
        all = one;
    }
    if (all.bits == 0)
        return error_set(error, ERR_BAD_INPUT, "config_groups is missing or empty");
    shape->packed_bits = all.bits;
    shape->packed_group = all.group;
    return 0;
}

/* ---- all ---- */

static int read_fp8(const json_t *q, struct hf_shape *shape, struct error *error)
{
    const json_t *block = json_object_get(q, "weight_block_size");
    const json_t *format = json_object_get(q, "fmt");
    json_int_t rows = json_integer_value(json_array_get(block, 0));
    json_int_t columns = json_integer_value(json_array_get(block, 1));
    if (!hf_is_string(json_object_get(q, "quant_method"), "fp8") ||
        (format && !hf_is_string(format, "e4m3") && !hf_is_string(format, "float8_e4m3fn")) ||
        json_array_size(block) != 2 || rows < 1 || columns < 1 || rows > 65536 || columns > 65536)
        return error_set(
            error, ERR_BAD_INPUT,
            "quantization_config is not supported (only quant_method fp8, e4m3, with a "
            "weight_block_size, and compressed-tensors)");
    shape->block_rows = (uint32_t)rows;
    shape->block_columns = (uint32_t)columns;
    return 0;
}

int hf_check_quantisation(const json_t *config, struct hf_shape *shape, struct error *error)
{
    const json_t *q = json_object_get(config, "quantization_config");
    const json_t *method = json_object_get(q, "quant_method");
    const struct hf_row *row;
    struct error why;
    if (!q || json_is_null(q))
        return 0;
    HF_EACH (row, shape->arch, HF_ROWS(QUANTISED))
        if (hf_is_string(method, row->text))
            return 0;
    if (!hf_is_string(method, "compressed-tensors"))
        return read_fp8(q, shape, error);
    return read_packed(q, shape, &why) == 0
               ? 0
               : error_set(error, why.code, "quantization_config: %.140s", why.text);
}
