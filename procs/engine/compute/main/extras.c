/* SPDX-License-Identifier: Apache-2.0 */
/* Puts the grammar and the biases of a request into its row, and compiles the grammar, also once
 * more after a restart. */
#include <stdio.h>
#include <string.h>

#include "lib/base/log.h"
#include "procs/engine/compute/main/compute.h"

static void put_mark(char *out, const char *mark)
{
    snprintf(out, GRAMMAR_MARK_BYTES_MAX + 1, "%s", mark ? mark : "");
}

int extras_put(struct compute *c, uint32_t number, const struct engine_submit *s,
               struct error *error)
{
    bool constrained = s->grammar.kind != GRAMMAR_NONE;
    if (!constrained && s->bias_count == 0)
        return 0;
    if (constrained && grammars_take(&c->grammars, &s->grammar, number, error) != 0) {
        counter_add(c->child.process, CTR_COMPUTE_grammar_errors, 1);
        return -1;
    }
    if (kv_extra_allocate(&c->child.kv, number, (uint32_t)s->grammar.bytes, error) != 0) {
        grammars_drop(&c->grammars, number);
        return -1;
    }
    struct kv_extra *x = kv_extra(&c->child.kv, number);
    if (s->bias_count > 0)
        memcpy(x->bias, s->bias, s->bias_count * sizeof *x->bias);
    put_mark(x->open, s->grammar.open);
    put_mark(x->close, s->grammar.close);
    put_mark(x->trigger, s->grammar.trigger);
    if (constrained)
        memcpy(x->text, s->grammar.text, s->grammar.bytes);
    return 0;
}

void extras_compile_again(struct compute *c)
{
    struct error error;
    for (uint32_t i = 0; i < KV_REQUESTS_MAX; i++) {
        uint32_t state = atomic_load(&c->child.kv.head->request[i].state);
        if (state != KV_QUEUED && state != KV_RUNNING)
            continue;
        const struct grammar_source source = grammars_source(&c->child.kv, i);
        if (source.kind != GRAMMAR_NONE && grammars_take(&c->grammars, &source, i, &error) != 0)
            log_warn("grammar of a sequence: %s", error.text);
    }
}
