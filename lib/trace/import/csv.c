/* SPDX-License-Identifier: Apache-2.0 */
/* The text format of BigMoeOnEdge. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/trace/import/internal.h"

#define LINE_BYTES 1024
#define HEADING    "turn,phase,step,layer,slot,expert,weight"
#define COLUMNS    6 /* whole numbers of a row */

struct reader {
    struct recording *r;
    uint64_t line;
    uint64_t sum_bytes, sized; /* of layers with experts, and their number */
};

static int bad(const struct reader *c, const char *what, struct error *error)
{
    return error_set(error, ERR_BAD_INPUT, "line %llu: %s", (unsigned long long)c->line, what);
}

/* The number after "key=" in a comment. False if there is none. */
static bool number_of(const char *comment, const char *key, uint64_t *value)
{
    size_t n = strlen(key);
    for (const char *at = comment; (at = strstr(at, key)); at += n)
        if (at > comment && at[-1] == ' ' && at[n] == '=' && at[n + 1] >= '0' && at[n + 1] <= '9') {
            *value = strtoull(at + n + 1, NULL, 10);
            return true;
        }
    return false;
}

static int take_comment(struct reader *c, const char *line, struct error *error)
{
    struct recording *r = c->r;
    uint64_t value = 0, bytes = 0;
    if (number_of(line, "expert_bytes", &bytes)) {
        if (bytes >> 40)
            return bad(c, "the size of an expert is not possible", error);
        c->sum_bytes += bytes;
        c->sized += bytes > 0;
        return 0;
    }
    const struct {
        const char *key;
        uint64_t max;
        uint32_t *field;
    } numbers[] = {{"n_layer", MODEL_LAYERS_MAX, &r->layers},
                   {"n_expert", MODEL_EXPERTS_MAX, &r->experts},
                   {"n_expert_used", MODEL_TOP_K_MAX, &r->top_k}};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (!number_of(line, numbers[i].key, &value))
            continue;
        if (value > numbers[i].max)
            return bad(c, "a number is out of range", error);
        *numbers[i].field = (uint32_t)value;
    }
    return 0;
}

static int take_row(struct reader *c, const char *line, struct error *error)
{
    uint64_t number[COLUMNS];
    char *end;
    for (int i = 0; i < COLUMNS; i++) {
        errno = 0;
        number[i] = strtoull(line, &end, 10);
        if (*line < '0' || *line > '9' || *end != ',' || errno != 0 || number[i] > UINT32_MAX)
            return bad(c, "not a row of " HEADING, error);
        line = end + 1;
    }
    float weight = strtof(line, &end);
    if (end == line || (*end != 0 && *end != ','))
        return bad(c, "the weight is not a number", error);
    if (number[1] > 1 || number[3] >= MODEL_LAYERS_MAX || number[4] >= MODEL_TOP_K_MAX ||
        number[5] >= MODEL_EXPERTS_MAX || weight < 0 || isinf(weight))
        return bad(c, "a number is out of range", error);
    const struct use use = {.turn = (uint32_t)number[0],
                            .decoded = number[1] == 1,
                            .step = (uint32_t)number[2],
                            .layer = (uint16_t)number[3],
                            .slot = (uint16_t)number[4],
                            .expert = (uint16_t)number[5],
                            .weight = isnan(weight) ? 0 : weight};
    return recording_add(c->r, &use, error);
}

static int take_line(struct reader *c, const char *line, struct error *error)
{
    if (*line == '#')
        return take_comment(c, line, error);
    if (*line == 0 || strncmp(line, "turn,", 5) == 0)
        return *line == 0 || strncmp(line, HEADING, strlen(HEADING)) == 0
                   ? 0
                   : bad(c, "the columns are not " HEADING, error);
    return take_row(c, line, error);
}

int import_csv(struct recording *r, const char *text, size_t bytes, struct error *error)
{
    struct reader c = {.r = r};
    char line[LINE_BYTES];
    if (recording_names_layers(r, error) != 0)
        return -1;
    for (const char *at = text, *end = text + bytes; at < end;) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t n = (size_t)((stop ? stop : end) - at);
        c.line++;
        if (n >= sizeof line || memchr(at, 0, n))
            return bad(&c, "not a line of text", error);
        memcpy(line, at, n);
        line[n > 0 && line[n - 1] == '\r' ? n - 1 : n] = 0;
        if (take_line(&c, line, error) != 0)
            return -1;
        at += n + 1;
    }
    if (c.sized > 0)
        r->expert_bytes = (c.sum_bytes + c.sized / 2) / c.sized;
    return 0;
}
