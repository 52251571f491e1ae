#include "procs/clients/common/map.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/json/lookup.h"

#define EXPERTS_MAX 65536

static int row_read(const json_t *row, uint32_t experts, struct map_row *out, struct error *error)
{
    *out = (struct map_row){.layer = (uint32_t)document_u64(row, "layer"),
                            .held = document_text(row, "held"),
                            .heat = document_text(row, "heat")};
    if (strlen(out->held) != experts || strlen(out->heat) != experts)
        return error_set(error, ERR_FAILED, "the engine's map is broken at layer %u", out->layer);
    return 0;
}

int map_read(const json_t *reply, struct map *map, struct error *error)
{
    const json_t *rows = json_object_get(reply, "rows");
    uint64_t experts = document_u64(reply, "experts");
    *map = (struct map){.tokens = document_u64(reply, "tokens")};
    if (!json_is_array(rows) || experts > EXPERTS_MAX)
        return error_set(error, ERR_FAILED, "the engine's map is broken");
    map->experts = (uint32_t)experts;
    map->row = calloc(json_array_size(rows) + 1, sizeof *map->row);
    if (!map->row)
        return error_set(error, ERR_NO_MEMORY, "no memory for the map");
    for (size_t i = 0; i < json_array_size(rows); i++) {
        if (row_read(json_array_get(rows, i), map->experts, &map->row[i], error) != 0) {
            map_free(map);
            return -1;
        }
        map->rows++;
    }
    return 0;
}

void map_free(struct map *map)
{
    free(map->row);
    *map = (struct map){0};
}

static bool is_held(char c)
{
    return c >= '0' && c <= '9';
}

uint32_t map_held(const struct map *map, uint32_t row)
{
    uint32_t held = 0;
    sl_assert(row < map->rows);
    for (uint32_t i = 0; i < map->experts; i++)
        held += is_held(map->row[row].held[i]);
    return held;
}

uint64_t map_held_all(const struct map *map)
{
    uint64_t held = 0;
    for (uint32_t i = 0; i < map->rows; i++)
        held += map_held(map, i);
    return held;
}

uint32_t map_cell(const struct map *map, uint32_t columns)
{
    sl_assert(columns > 0);
    return map->experts <= columns ? 1 : (map->experts + columns - 1) / columns;
}

/* Mean digit of the experts that are there. */
static char heat_of_held(const struct map_row *row)
{
    uint32_t sum = 0, held = 0;
    for (size_t i = 0; row->held[i]; i++)
        if (is_held(row->held[i])) {
            held++;
            sum += (uint32_t)(row->heat[i] - '0');
        }
    return (char)('0' + (held ? sum / held : 0));
}

static char one(char held, char heat, char mean, enum map_view view)
{
    static const char tiers[] = "N842"; /* native, int8, int4, int2 */
    if (!is_held(held))
        return view == MAP_VIEW_HEAT && held == '.' && heat > mean ? '!' : held;
    if (view == MAP_VIEW_HEAT)
        return heat;
    return held < '4' ? tiers[held - '0'] : '?';
}

/* Several experts: the share of them that is there, or how hot the hottest of those is. */
static char several(const struct map_row *row, uint32_t from, uint32_t to, enum map_view view)
{
    static const char shares[] = ".123456789#";
    uint32_t held = 0;
    char hottest = '0';
    for (uint32_t i = from; i < to; i++)
        if (is_held(row->held[i])) {
            held++;
            hottest = row->heat[i] > hottest ? row->heat[i] : hottest;
        }
    if (view == MAP_VIEW_HEAT)
        return held ? hottest : '.';
    uint32_t tenths = held * 10 / (to - from);
    return shares[held > 0 && tenths == 0 ? 1 : tenths];
}

char *map_line(const struct map *map, uint32_t row, enum map_view view, uint32_t cell, char *out,
               size_t room)
{
    sl_assert(row < map->rows && cell > 0 && room > 0);
    const struct map_row *r = &map->row[row];
    char mean = heat_of_held(r);
    size_t n = 0;
    for (uint32_t from = 0; from < map->experts && n + 1 < room; from += cell) {
        uint32_t to = from + cell < map->experts ? from + cell : map->experts;
        out[n++] =
            cell == 1 ? one(r->held[from], r->heat[from], mean, view) : several(r, from, to, view);
    }
    out[n] = 0;
    return out;
}

const char *map_legend(enum map_view view, uint32_t cell)
{
    if (cell == 1)
        return view == MAP_VIEW_TIER ? "N native, 8 4 2 bits; + arriving, . absent"
                                     : "9 hot, 0 cold, + arriving, ! absent but hot";
    return view == MAP_VIEW_TIER ? "tenths resident of several; # all, . none"
                                 : "9 hot to 0 cold, hottest resident of several; . none";
}
