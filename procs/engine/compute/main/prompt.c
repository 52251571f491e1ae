/* SPDX-License-Identifier: Apache-2.0 */
/* Makes tokens of what a client asks: the prompt of a submit, and whether they fit. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "procs/engine/compute/main/compute.h"

#define LARGE_TEXT_BYTES ((size_t)64 << 10)

/* A word takes up to 100 times its bytes while it is encoded, and what this process may take is
 * fixed (RLIMIT_DATA): to try again later would be in vain. Texts of many words are encoded word by
 * word. */
static int never_encoded(const struct engine_submit *s, struct error *error)
{
    return error_set(error, ERR_BAD_INPUT,
                     "the prompt of %zu bytes takes more memory to encode than its process may "
                     "use; shorten it, or separate its words by blanks",
                     s->prompt_bytes);
}

static int prompt_of_text(const struct compute *c, const struct engine_submit *s, struct prompt *p,
                          struct error *error)
{
    uint32_t bos = tokenizer_bos(c->tokenizer);
    if (tokenizer_encode(c->tokenizer, s->prompt, s->prompt_bytes, &s->special, &p->ids, &p->count,
                         error) != 0)
        return error->code == ERR_NO_MEMORY && s->prompt_bytes >= LARGE_TEXT_BYTES
                   ? never_encoded(s, error)
                   : -1;
    if (bos == TOKEN_NONE)
        return 0;
    uint32_t *longer = realloc(p->ids, (p->count + 1) * sizeof *longer);
    if (!longer)
        return error_set(error, ERR_NO_MEMORY, "out of memory (prompt)");
    memmove(longer + 1, longer, p->count * sizeof *longer);
    longer[0] = bos;
    p->ids = longer;
    p->count++;
    return 0;
}

static int ids_in_vocabulary(const struct compute *c, const uint32_t *ids, size_t count,
                             struct error *error)
{
    uint32_t vocab = c->child.model->hparams.vocab;
    for (size_t i = 0; i < count; i++)
        if (ids[i] >= vocab)
            return error_set(error, ERR_BAD_INPUT, "token id %u is not in the vocabulary of %u",
                             ids[i], vocab);
    return 0;
}

static int biases_in_vocabulary(const struct compute *c, const struct engine_submit *s,
                                struct error *error)
{
    for (size_t i = 0; i < s->bias_count; i++)
        if (ids_in_vocabulary(c, &s->bias[i].id, 1, error) != 0)
            return -1;
    return 0;
}

static int prompt_of_ids(const struct compute *c, const struct engine_submit *s, struct prompt *p,
                         struct error *error)
{
    if (ids_in_vocabulary(c, s->prompt_ids, s->prompt_ids_count, error) != 0)
        return -1;
    p->ids = malloc(s->prompt_ids_count * sizeof *p->ids);
    if (!p->ids)
        return error_set(error, ERR_NO_MEMORY, "out of memory (prompt)");
    memcpy(p->ids, s->prompt_ids, s->prompt_ids_count * sizeof *p->ids);
    p->count = s->prompt_ids_count;
    return 0;
}

int prompt_encode(const struct compute *c, const struct engine_submit *s, struct prompt *p,
                  struct error *error)
{
    return s->prompt ? prompt_of_text(c, s, p, error) : prompt_of_ids(c, s, p, error);
}

/* What else to do about a prompt that does not fit the context, or why nothing else helps. */
static const char *longer_text(const struct compute *c, char text[16 + MODEL_LIMIT_BYTES])
{
    const struct model_index *m = c->child.model;
    char limit[MODEL_LIMIT_BYTES];
    bool longest = c->child.kv.head->context >= model_context(&m->hparams);
    if (!longest || model_limit_text(m, limit)[0] == 0)
        return " or use a larger context (--ctx-size)";
    snprintf(text, 16 + MODEL_LIMIT_BYTES, ": %s", limit);
    return text;
}

/* Encodes the prompt; it must fit the context. Programs compare the words of that error: those of
 * Anthropic's and OpenAI's APIs, after which they shorten a conversation. */
int prompt_make(const struct compute *c, const struct engine_submit *s, struct prompt *p,
                struct error *error)
{
    uint32_t context = c->child.kv.head->context;
    char longer[16 + MODEL_LIMIT_BYTES];
    if (prompt_encode(c, s, p, error) != 0 ||
        ids_in_vocabulary(c, s->forced, s->forced_count, error) != 0 ||
        biases_in_vocabulary(c, s, error) != 0)
        return -1;
    if (p->count == 0)
        return error_set(error, ERR_BAD_INPUT, "the prompt has no tokens");
    if (p->count + (s->max_tokens > 0 ? 1 : 0) > context)
        return error_set(
            error, ERR_CONTEXT,
            "prompt is too long: %zu tokens > %u maximum; this model's maximum context length "
            "is %u tokens including the response, you requested %zu. Shorten it%s",
            p->count, context, context, p->count, longer_text(c, longer));
    return 0;
}
