/* SPDX-License-Identifier: Apache-2.0 */
/* The experts of a compute process without the process: its segments, a model, and a thread that
 * acts as cache and loader. */
#ifndef SLUICE_TESTS_EXPERTS_WORLD_H
#define SLUICE_TESTS_EXPERTS_WORLD_H

#include "procs/engine/compute/experts/experts.h"
#include "tests/golden/image.h"

#define LAYER 2

struct world {
    struct image image;
    struct arena_layout layout;
    struct child child;
    struct experts own;
    _Atomic uint64_t beat_ns;
    _Atomic uint32_t pass_layer;
    _Atomic uint32_t stop;
    struct kv_request request, *requests[3];
    struct experts *experts;
    struct weights_source source;
    struct expert_item item[8];
    struct expert_item *items[8];
    struct expert_step step;
    struct expert_row row[8];
};

extern struct world w;
extern const uint32_t only_row; /* 0: of an item of one row */

void world_setup(void); /* of the demo model */
void world_open_with(const struct model_index *model);
void world_must(int rc, const struct error *error);
/* A pass of rows of one sequence. */
void world_set_rows(uint32_t rows, bool prefill);
struct directory_entry *world_entry(uint32_t i); /* of w.item[i], as the functions below */
void world_reserve(uint32_t i, uint64_t *generation);
void world_publish(uint32_t i, uint64_t generation);
void world_make_ready(uint32_t i);
bool world_pinned(uint32_t i);
uint64_t world_count(unsigned counter);
void world_pin(uint32_t n); /* the first n items */
int world_wait_any(uint32_t n, struct error *error);

#endif
