/* SPDX-License-Identifier: Apache-2.0 */
/* Answers the call "map" (ipc/README.md): which experts are resident, layer by layer.
 *
 * Residency is read from the directory. Access frequency is counted from the access log, only while
 * clients request the map; no process waits for this reader. Heat is defined in
 * lib/policy/prediction/prefetch.h: decayed accesses per token. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/policy/prediction/prefetch.h"
#include "procs/engine/supervisor/control/control.h"
#include "procs/engine/supervisor/supervisor.h"
#include "shm/rings/access_log.h"

#define HEAT_STEPS 9 /* digits above 0: each is twice the previous one */

struct expert_heat {
    float heat;
    uint32_t token; /* token for which heat is valid */
};

struct map {
    struct access_log log;
    struct access_log_reader reader;
    uint32_t token; /* tokens computed since the first request */
    uint32_t layers, experts;
    struct expert_heat expert[]; /* [layers][experts] */
};

static struct map *map_of(struct supervisor *s)
{
    const struct model_hparams *h = &s->model->hparams;
    if (s->map)
        return s->map;
    s->map =
        calloc(1, sizeof *s->map + (size_t)h->layers * h->experts * sizeof(struct expert_heat));
    if (!s->map)
        return NULL;
    s->map->layers = h->layers;
    s->map->experts = h->experts;
    s->map->log.segment = s->segments[SEGMENT_ACCESS_LOG];
    s->map->log.head = s->segments[SEGMENT_ACCESS_LOG].base;
    return s->map;
}

static float heat_now(const struct map *m, const struct expert_heat *e)
{
    return prefetch_heat(e->heat, m->token - e->token);
}

static void note_access(struct map *m, const struct access_record *r)
{
    if (r->layer >= m->layers || r->expert >= m->experts) /* written by compute: untrusted */
        return;
    struct expert_heat *e = &m->expert[(size_t)r->layer * m->experts + r->expert];
    float heat = heat_now(m, e) + PREFETCH_HEAT_GAIN * (float)r->tokens;
    *e = (struct expert_heat){heat < 1 ? heat : 1, m->token};
}

/* Reads the log to its end; records older than half the ring are skipped, since they can be
 * overwritten while they are read. */
static void follow(struct map *m)
{
    struct access_record record;
    uint64_t written = access_log_written(&m->log);
    if (written - m->reader.next > ACCESS_LOG_RECORDS / 2)
        m->reader.next = written - ACCESS_LOG_RECORDS / 2;
    while (access_log_read(&m->log, &m->reader, written, &record)) {
        if (record.kind == ACCESS_EXPERT)
            note_access(m, &record);
        else if (record.kind == ACCESS_TOKEN_END)
            m->token += record.tokens;
    }
}

/* '0': less than 2^-9 accesses per token, ... '9': at least every second token. */
static char heat_digit(float heat)
{
    int exponent = 0;
    if (heat <= 0)
        return '0';
    frexpf(heat, &exponent); /* 2^(exponent - 1) <= heat < 2^exponent */
    int digit = HEAT_STEPS + exponent;
    return (char)('0' + (digit < 0 ? 0 : digit > HEAT_STEPS ? HEAT_STEPS : digit));
}

/* A better precision before a worse one; resident before loading before absent. */
static char better_resident(char a, char b)
{
    static const char order[] = {MAP_NO_EXPERT, MAP_ABSENT, MAP_LOADING, 0};
    bool a_resident = a >= '0' && a <= '9', b_resident = b >= '0' && b <= '9';
    if (a_resident && b_resident)
        return a < b ? a : b;
    if (a_resident || b_resident)
        return a_resident ? a : b;
    return strchr(order, a) > strchr(order, b) ? a : b;
}

/* Text of the layers, each `experts` characters: what is resident. Layer and expert of an entry
 * come from the model index, because other processes can write to the directory. */
static void fill_residency(const struct supervisor *s, char *resident, size_t experts)
{
    const struct directory *d = &s->directory;
    const struct model_entry *entries = model_index_entries(s->model);
    uint32_t layers = s->model->hparams.layers;
    memset(resident, MAP_NO_EXPERT, layers * experts);
    for (uint32_t i = s->model->dense_count; i < model_experts_end(s->model); i++) {
        const struct model_entry *e = &entries[i];
        if (e->slot_bytes == 0 || e->layer >= layers || e->expert >= experts)
            continue; /* absent at this precision */
        enum entry_state state = entry_state_of(entry_read(&d->entries[i].word));
        char now = state == ENTRY_READY     ? (char)('0' + e->precision)
                   : state == ENTRY_LOADING ? MAP_LOADING
                                            : MAP_ABSENT;
        char *at = &resident[e->layer * experts + e->expert];
        *at = better_resident(*at, now);
    }
}

static json_t *rows(const struct map *m, const char *resident, char *heat)
{
    json_t *array = json_array();
    for (uint32_t layer = 0; layer < m->layers; layer++) {
        const char *line = resident + (size_t)layer * m->experts;
        if (line[0] == MAP_NO_EXPERT) /* a dense layer */
            continue;
        for (uint32_t i = 0; i < m->experts; i++)
            heat[i] = heat_digit(heat_now(m, &m->expert[(size_t)layer * m->experts + i]));
        json_array_append_new(array, json_pack("{s:I, s:s%, s:s%}", "layer", (json_int_t)layer,
                                               "resident", line, (size_t)m->experts, "heat", heat,
                                               (size_t)m->experts));
    }
    return array;
}

json_t *map_snapshot(struct supervisor *s, struct error *error)
{
    struct map *m = map_of(s);
    char *text = m ? malloc(((size_t)m->layers + 1) * m->experts) : NULL;
    if (!text) {
        error_set(error, ERR_NO_MEMORY, "out of memory (map)");
        return NULL;
    }
    follow(m);
    fill_residency(s, text, m->experts);
    json_t *object = json_object();
    json_object_set_new(object, "layers", json_integer(m->layers));
    json_object_set_new(object, "experts", json_integer(m->experts));
    json_object_set_new(object, "tokens", json_integer(m->token));
    json_object_set_new(object, "rows", rows(m, text, text + (size_t)m->layers * m->experts));
    free(text);
    return object;
}
