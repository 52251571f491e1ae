/* SPDX-License-Identifier: Apache-2.0 */
/* Host memory on the device. Weights are copied once, experts into slots (slots.c), parts of sequences as the table of
 * operations states what it has of them (sequences.c). */
#include <stdlib.h>
#include <string.h>

#include "lib/device/cuda/internal.h"

static void *known(const struct mirrors *m, const void *memory, size_t bytes)
{
    for (size_t i = 0; i < m->count; i++)
        if (m->all[i].host == memory && m->all[i].bytes >= bytes)
            return m->all[i].memory;
    return NULL;
}

static void *weights(struct cuda *c, const void *memory, size_t bytes)
{
    struct mirrors *m = &c->weights;
    void *to = known(m, memory, bytes);
    if (to)
        return to;
    if (m->count == m->space) {
        m->space = m->space * 2 + 64;
        m->all = realloc(m->all, m->space * sizeof *m->all);
        sl_assert(m->all);
    }
    to = cuda_take(&c->weights_area, bytes);
    sl_assert(to); /* the plan has all of them */
    m->all[m->count++] = (struct mirror){memory, bytes, to};
    cuda_to_device(c, to, memory, bytes);
    return to;
}

struct device_at cuda_share(struct device *d, const void *memory, size_t bytes,
                            enum device_share_kind kind, uint64_t content)
{
    struct cuda *c = cuda_of(d);
    if (!memory || bytes == 0 || kind == DEVICE_SHARE_SEQUENCE)
        return device_address(memory); /* of the host: for cuda_take_* */
    return device_address(kind == DEVICE_SHARE_LENT ? cuda_slot(c, content, memory, bytes)
                                                    : weights(c, memory, bytes));
}
