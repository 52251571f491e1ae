/* SPDX-License-Identifier: Apache-2.0 */
/* The call `prefixes`: what is kept for prompts that begin alike, in memory and on storage, by its
 * size and never by its text; and its removal. */
#include "procs/engine/compute/prefixes/prefixes.h"
#include "procs/engine/compute/main/compute.h"

static json_t *in_memory(const struct compute *c)
{
    json_t *list = json_array();
    const struct kv *kv = &c->child.kv;
    for (uint32_t i = 0; i < kv->slots; i++) {
        const struct kv_slot *s = &kv->head->slot[i];
        uint32_t rows = atomic_load(&s->rows);
        if (rows > 0 && atomic_load(&s->owner) == 0)
            json_array_append_new(
                list, json_pack("{s:I, s:I}", "tokens", (json_int_t)rows, "bytes",
                                (json_int_t)kv_tokens_bytes(kv, atomic_load(&s->allocated))));
    }
    return list;
}

static json_t *on_storage(const struct compute *c)
{
    json_t *list = json_array();
    struct prefix_listed f;
    for (uint32_t i = 0; prefixes_list(c->runner.prefixes, i, &f); i++)
        json_array_append_new(list,
                              json_pack("{s:I, s:I, s:I, s:I}", "tokens", (json_int_t)f.tokens,
                                        "bytes", (json_int_t)f.bytes, "uses", (json_int_t)f.uses,
                                        "used", (json_int_t)(f.used_ns / (int64_t)NS_PER_S)));
    return list;
}

json_t *prefixes_reply(struct compute *c, bool clear)
{
    struct kv_head *kv = c->child.kv.head;
    uint64_t number = clear ? runner_clear(&c->runner) : atomic_load(&kv->clear_wanted);
    return json_pack("{s:o, s:o, s:I, s:b}", "memory", in_memory(c), "storage", on_storage(c),
                     "clears", (json_int_t)number, "clearing", atomic_load(&kv->cleared) < number);
}
