/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: a list of used experts. If the first byte is odd, the checksum is made right, so
 * that the experts are reached. Any bytes give a list within the model, or an error; written again
 * it is the same. */
#include <string.h>
#include <xxhash.h>

#include "lib/base/assert.h"
#include "lib/warm/warm.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct warm_model model = {.hash = {7}, .layers = 5, .experts = 9, .top_k = 2};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct warm_list list, again;
    static uint8_t bytes[2 * WARM_BYTES_MAX], written[WARM_BYTES_MAX];
    struct error error = {0};
    if (size < 1 || size - 1 > sizeof bytes)
        return 0;
    size_t n = size - 1, head = sizeof(struct warm_header);
    memcpy(bytes, data + 1, n);
    if (data[0] & 1 && n >= head) {
        uint64_t sum = XXH3_64bits(bytes + head, n - head);
        memcpy(bytes + offsetof(struct warm_header, checksum), &sum, sizeof sum);
    }
    if (warm_parse(bytes, n, &model, &list, &error) != 0) {
        sl_assert(error.code != ERR_NONE && list.count == 0 && !strchr(error.text, '\n'));
        return 0;
    }
    for (uint32_t i = 0; i < list.count; i++)
        sl_assert(list.use[i].layer < model.layers && list.use[i].expert < model.experts);
    size_t m = warm_format(&list, &model, written);
    sl_assert(m == n && warm_parse(written, m, &model, &again, &error) == 0);
    sl_assert(memcmp(again.use, list.use, list.count * sizeof list.use[0]) == 0);
    return 0;
}
