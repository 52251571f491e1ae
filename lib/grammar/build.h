/* SPDX-License-Identifier: Apache-2.0 */
/* A program while it is made: arrays with limits, and the machines for characters. Like the pool of
 * expressions, it remembers that a limit was met. */
#ifndef SLUICE_GRAMMAR_BUILD_H
#define SLUICE_GRAMMAR_BUILD_H

#include "lib/grammar/program.h"

struct build {
    const struct expr_pool *pool;
    struct grammar *g;
    uint32_t nodes_room, sets_room, tables_room;
    uint32_t following[4]; /* that many bytes 80 to BF, then RETURN; 0: not made yet */
    uint32_t json_char;    /* the machine of a JSON string's character; 0: not made yet */
    uint32_t key[16];      /* machines of characters.c for other keys; 0: not made yet */
    struct class_memo {
        uint32_t first, count, entry;
    } * classes;
    uint32_t classes_count, classes_room;
    enum error_code failed;
};

uint32_t build_node(struct build *b, struct node n);
uint32_t build_byte(struct build *b, uint8_t byte, uint32_t next);
uint32_t build_set(struct build *b, const uint64_t bits[4], uint32_t next);
uint32_t build_table(struct build *b, const struct byte_table *table);
/* Makes room in an array of the build's; false when the limit or memory ends. */
bool build_grow(struct build *b, void *array, uint32_t *room, uint32_t count, size_t element,
                uint32_t limit);

/* characters.c. Each ends with RETURN. */
uint32_t build_class(struct build *b, uint32_t first, uint32_t count);
uint32_t build_json_char(struct build *b);
uint32_t build_other_key(struct build *b, uint32_t first, uint32_t count);

#endif
