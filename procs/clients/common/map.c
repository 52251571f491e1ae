/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the supervisor's map, checks it, and draws its rows. */
#include "procs/clients/common/map.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/json/lookup.h"

#define EXPERTS_MAX 65536

static int row_read(const json_t *row, uint32_t experts, struct map_row *out, struct error *error)
{
    *out = (struct map_row){.layer = (uint32_t)lookup_u64(row, "layer"),
                            .resident = lookup_text(row, "resident"),
                            .heat = lookup_text(row, "heat")};
    if (strlen(out->resident) != experts || strlen(out->heat) != experts)
        return error_set(error, ERR_FAILED, "invalid map from the engine: layer %u", out->layer);
    return 0;
}

int map_read(const json_t *reply, struct map *map, struct error *error)
{
    const json_t *rows = json_object_get(reply, "rows");
    uint64_t experts = lookup_u64(reply, "experts");
    *map = (struct map){.tokens = lookup_u64(reply, "tokens")};
    if (!json_is_array(rows) || experts > EXPERTS_MAX)
        return error_set(error, ERR_FAILED, "invalid map from the engine");
    map->experts = (uint32_t)experts;
    map->row = calloc(json_array_size(rows) + 1, sizeof *map->row);
    if (!map->row)
        return error_set(error, ERR_NO_MEMORY, "out of memory (map)");
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

static bool is_resident(char c)
{
    return c >= '0' && c <= '9';
}

uint32_t map_resident(const struct map *map, uint32_t row)
{
    uint32_t resident = 0;
    sl_assert(row < map->rows);
    for (uint32_t i = 0; i < map->experts; i++)
        resident += is_resident(map->row[row].resident[i]);
    return resident;
}

uint64_t map_resident_all(const struct map *map)
{
    uint64_t resident = 0;
    for (uint32_t i = 0; i < map->rows; i++)
        resident += map_resident(map, i);
    return resident;
}

uint32_t map_cell(const struct map *map, uint32_t columns)
{
    sl_assert(columns > 0);
    return map->experts <= columns ? 1 : (map->experts + columns - 1) / columns;
}

/* Mean heat digit of the resident experts. */
static char resident_heat(const struct map_row *row)
{
    uint32_t sum = 0, resident = 0;
    for (size_t i = 0; row->resident[i]; i++)
        if (is_resident(row->resident[i])) {
            resident++;
            sum += (uint32_t)(row->heat[i] - '0');
        }
    return (char)('0' + (resident ? sum / resident : 0));
}

static char one(char resident, char heat, char mean, enum map_view view)
{
    static const char precisions[] = "N842"; /* native, int8, int4, int2 */
    if (!is_resident(resident))
        return view == MAP_VIEW_HEAT && resident == '.' && heat > mean ? '!' : resident;
    if (view == MAP_VIEW_HEAT)
        return heat;
    return resident < '4' ? precisions[resident - '0'] : '?';
}

/* Cell of several experts: the share of resident ones, or the heat of the hottest resident one. */
static char several(const struct map_row *row, uint32_t from, uint32_t to, enum map_view view)
{
    static const char shares[] = ".123456789#";
    uint32_t resident = 0;
    char hottest = '0';
    for (uint32_t i = from; i < to; i++)
        if (is_resident(row->resident[i])) {
            resident++;
            hottest = row->heat[i] > hottest ? row->heat[i] : hottest;
        }
    if (view == MAP_VIEW_HEAT)
        return resident ? hottest : '.';
    uint32_t tenths = resident * 10 / (to - from);
    return shares[resident > 0 && tenths == 0 ? 1 : tenths];
}

char *map_line(const struct map *map, uint32_t row, enum map_view view, uint32_t cell, char *out,
               size_t cap)
{
    sl_assert(row < map->rows && cell > 0 && cap > 0);
    const struct map_row *r = &map->row[row];
    char mean = resident_heat(r);
    size_t n = 0;
    for (uint32_t from = 0; from < map->experts && n + 1 < cap; from += cell) {
        uint32_t to = from + cell < map->experts ? from + cell : map->experts;
        out[n++] = cell == 1 ? one(r->resident[from], r->heat[from], mean, view)
                             : several(r, from, to, view);
    }
    out[n] = 0;
    return out;
}

const char *map_legend(enum map_view view, uint32_t cell)
{
    if (cell == 1)
        return view == MAP_VIEW_PRECISION ? "N native, 8 4 2 bits; + loading, . absent"
                                          : "9 hot, 0 cold, + loading, ! absent but hot";
    return view == MAP_VIEW_PRECISION ? "tenths resident of several; # all, . none"
                                      : "9 hot to 0 cold, hottest resident of several; . none";
}
