/* The supervisor's map (op "map", ipc/README.md): which experts are resident. Read, checked, and
 * made into lines for a terminal. */
#ifndef SLUICE_CLIENTS_COMMON_MAP_H
#define SLUICE_CLIENTS_COMMON_MAP_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/error.h"

struct map_row {
    uint32_t layer;
    const char *resident, *heat; /* a character per expert; borrowed from the reply */
};

struct map {
    uint32_t rows, experts;
    uint64_t tokens;
    struct map_row *row;
};

/* What a cell shows. */
enum map_view { MAP_VIEW_PRECISION, MAP_VIEW_HEAT };

/* Borrows from reply, which must live as long. 0, or -1 with *error when it is no map. */
int map_read(const json_t *reply, struct map *map, struct error *error);
void map_free(struct map *map);

/* Resident experts of a row, and of all. */
uint32_t map_resident(const struct map *map, uint32_t row);
uint64_t map_resident_all(const struct map *map);

/* Experts that share a cell so that a line has at most `columns` cells; 1 when all fit. */
uint32_t map_cell(const struct map *map, uint32_t columns);

/* A row as text, a character per cell. Returns out. */
char *map_line(const struct map *map, uint32_t row, enum map_view view, uint32_t cell, char *out,
               size_t cap);

/* What the characters mean. */
const char *map_legend(enum map_view view, uint32_t cell);

#endif
