/* SPDX-License-Identifier: Apache-2.0 */
/* The supervisor's map of resident experts (op "map", ipc/README.md): read, checked and rendered as
 * text lines. */
#ifndef SLUICE_CLIENTS_COMMON_MAP_H
#define SLUICE_CLIENTS_COMMON_MAP_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/error.h"

struct map_row {
    uint32_t layer;
    const char *resident, *heat; /* one character per expert; borrowed from the reply */
};

struct map {
    uint32_t rows, experts;
    uint64_t tokens;
    struct map_row *row;
};

/* The value that a cell shows. */
enum map_view { MAP_VIEW_PRECISION, MAP_VIEW_HEAT };

/* Parses a reply of op "map"; *map borrows from reply. 0, or -1 with *error when it is invalid. */
int map_read(const json_t *reply, struct map *map, struct error *error);
void map_free(struct map *map);

/* Number of resident experts, of a row and of all rows. */
uint32_t map_resident(const struct map *map, uint32_t row);
uint64_t map_resident_all(const struct map *map);

/* Experts per cell so that a line has at most `columns` cells; 1 when all fit. */
uint32_t map_cell(const struct map *map, uint32_t columns);

/* A row as text, one character per cell. Returns out. */
char *map_line(const struct map *map, uint32_t row, enum map_view view, uint32_t cell, char *out,
               size_t cap);

/* Legend of the characters. */
const char *map_legend(enum map_view view, uint32_t cell);

#endif
