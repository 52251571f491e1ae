/* Where every expert is, and how much it is used: one character of text for each, a line for each
 * layer. Made when somebody asks; the directory and the use log are only looked at. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/clock.h"
#include "procs/supervisor/supervisor.h"

#define HALF_LIFE_S 10.0 /* after which a use counts half */

/* READY at a tier, by enum tier; the best one is shown. */
static const char tier_signs[TIER__COUNT] = {'n', '8', '4', '2'};
#define SIGN_ABSENT  '.'
#define SIGN_LOADING '-'
#define SIGN_NONE    ' '

static char sign_of(const struct supervisor *s, uint32_t layer, uint32_t expert)
{
    char sign = SIGN_NONE;
    for (int tier = TIER_NATIVE; tier < TIER__COUNT; tier++) {
        uint32_t entry = model_entry_expert_tier(s->model, layer, expert, (enum tier)tier);
        if (entry == ENTRY_NONE)
            continue;
        enum entry_state state = entry_state_of(entry_look(&s->directory.entries[entry].word));
        if (state == ENTRY_READY)
            return tier_signs[tier];
        if (state == ENTRY_LOADING)
            sign = SIGN_LOADING;
        else if (sign == SIGN_NONE)
            sign = SIGN_ABSENT;
    }
    return sign;
}

/* Opens the use log when it is first wanted, at the oldest record that may still be there. */
static int heat_open(struct supervisor *s, struct error *error)
{
    struct heat *h = &s->heat;
    const struct model_hparams *m = &s->model->hparams;
    if (h->of)
        return 0;
    if (!h->uses.head &&
        uses_attach(s->segments[SEGMENT_USES].fd, false, s->boot, &h->uses, error) != 0)
        return -1;
    h->of = calloc((size_t)m->layers * m->experts, sizeof *h->of);
    if (!h->of)
        return error_set(error, ERR_NO_MEMORY, "no memory for a map");
    uint64_t written = uses_written(&h->uses);
    h->reader.next = written > USES_RECORDS ? written - USES_RECORDS : 0;
    h->when_ns = clock_now_ns();
    return 0;
}

/* Takes in what was used since the last look. At most a ring of records: a bounded time. */
static void heat_look(struct supervisor *s)
{
    struct heat *h = &s->heat;
    const struct model_hparams *m = &s->model->hparams;
    struct use_record use;
    uint64_t now = clock_now_ns(), limit = uses_written(&h->uses);
    float keep = (float)exp2(-(double)(now - h->when_ns) / NS_PER_S / HALF_LIFE_S);
    h->when_ns = now;
    for (size_t i = 0; i < (size_t)m->layers * m->experts; i++)
        h->of[i] *= keep;
    while (uses_read(&h->uses, &h->reader, limit, &use))
        if (use.kind == USE_EXPERT && use.layer < m->layers && use.expert < m->experts)
            h->of[(size_t)use.layer * m->experts + use.expert] += (float)use.tokens;
}

static json_t *line(const char *text, size_t bytes)
{
    return json_stringn_nocheck(text, bytes); /* our own signs */
}

json_t *map_document(struct supervisor *s, struct error *error)
{
    const struct model_hparams *m = &s->model->hparams;
    if (heat_open(s, error) != 0)
        return NULL;
    heat_look(s);
    float most = 0;
    for (size_t i = 0; i < (size_t)m->layers * m->experts; i++)
        most = s->heat.of[i] > most ? s->heat.of[i] : most;
    char *text = malloc(m->experts);
    json_t *rows = json_array(), *heat = json_array();
    for (uint32_t layer = 0; text && layer < m->layers; layer++) {
        for (uint32_t expert = 0; expert < m->experts; expert++)
            text[expert] = sign_of(s, layer, expert);
        json_array_append_new(rows, line(text, m->experts));
        const float *of = s->heat.of + (size_t)layer * m->experts;
        for (uint32_t expert = 0; expert < m->experts; expert++)
            text[expert] = (char)('0' + (most > 0 ? (int)(9 * sqrtf(of[expert] / most)) : 0));
        json_array_append_new(heat, line(text, m->experts));
    }
    free(text);
    return json_pack("{s:I, s:I, s:s, s:o, s:o}", "layers", (json_int_t)m->layers, "experts",
                     (json_int_t)m->experts, "signs",
                     "n 8 4 2: resident at that precision; -: on its way; .: not there", "rows",
                     rows, "heat", heat);
}
