/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the segments, the model and the thread that the experts of compute need. */
#include "tests/unit/procs/engine/compute/experts/world.h"

#include <check.h>
#include <stdio.h>
#include <unistd.h>

#include "tests/golden/reference.h"

#define BOOT 77u

struct world w;
const uint32_t only_row = 0;

static struct segment create(enum segment_kind kind, uint64_t bytes)
{
    struct segment s;
    struct error error;
    char tag[32];
    snprintf(tag, sizeof tag, "experts.%d", (int)getpid());
    ck_assert_msg(segment_create(kind, tag, BOOT, bytes, &s, &error) == 0, "%s", error.text);
    return s;
}

void world_must(int rc, const struct error *error)
{
    ck_assert_msg(rc == 0, "%s", error->text);
}

static void make_child(const struct model_index *model)
{
    struct error error;
    struct child *c = &w.child;
    const struct model_hparams *h = &model->hparams;
    struct params params;
    params_defaults(&params);
    params.load_timeout = 300;
    c->model = model;
    c->incarnation = 1;
    world_must(arena_layout_make(c->model, &w.layout, &error), &error);
    struct segment s = create(SEGMENT_DIRECTORY, directory_bytes(c->model));
    directory_format(s.base, c->model, &w.layout, 1);
    world_must(directory_attach(s.fd, true, BOOT, c->model, &c->directory, &error), &error);
    c->arena = create(SEGMENT_ARENA, w.layout.bytes);
    s = create(SEGMENT_GATES, gates_bytes(h->hidden, h->experts));
    gates_format(s.base, h->layers, h->hidden, h->experts);
    world_must(gates_attach(s.fd, true, BOOT, &c->gates, &error), &error);
    s = create(SEGMENT_ACCESS_LOG, access_log_bytes());
    world_must(access_log_attach(s.fd, true, BOOT, &c->access_log, &error), &error);
    s = create(SEGMENT_PROCS, procs_bytes());
    procs_format(s.base, &params, 1);
    world_must(procs_attach(s.fd, true, BOOT, &c->procs, &error), &error);
    c->params = &c->procs.head->params;
    c->process = &c->procs.head->process[procs_index_of(SERVICE_COMPUTE, 0)];
    snprintf(c->run_dir, sizeof c->run_dir, "/tmp/sluice-no-such-run");
    snprintf(c->procs.head->model_path, sizeof c->procs.head->model_path, "model.gguf");
}

void world_set_rows(uint32_t rows, bool prefill)
{
    for (uint32_t i = 0; i < rows; i++)
        w.row[i] =
            (struct expert_row){.sequence = 9, .position = 4 + i, .first = 4, .prefill = prefill};
    w.step = (struct expert_step){.pass = 70001,
                                  .row = w.row,
                                  .rows = rows,
                                  .layer = LAYER,
                                  .prefill = prefill,
                                  .decode = !prefill};
}

void world_open_with(const struct model_index *model)
{
    struct error error;
    make_child(model);
    w.experts = &w.own;
    w.experts->beat_ns = &w.beat_ns;
    w.experts->pass_layer = &w.pass_layer;
    world_must(experts_open(w.experts, &w.child, &w.stop, &error), &error);
    w.requests[0] = &w.request;
    experts_pass_begins(w.experts, w.requests, 1);
    w.source = experts_source(w.experts);
    world_set_rows(1, false);
    for (uint32_t i = 0; i < 8; i++) {
        w.item[i] =
            (struct expert_item){.expert = 3 * i + 1, .tokens = 1, .row = &only_row, .rank = i};
        w.items[i] = &w.item[i];
    }
}

void world_setup(void)
{
    image_open(&w.image, golden_demo_path(), 16);
    world_open_with(w.image.model);
}

struct directory_entry *world_entry(uint32_t i)
{
    return &w.child.directory.entries[model_entry_expert(w.child.model, LAYER, w.item[i].expert)];
}

void world_reserve(uint32_t i, uint64_t *generation)
{
    const struct arena_class *c = &w.layout.class[world_entry(i)->size_class];
    atomic_store(&world_entry(i)->arena_offset, c->region_offset + i * c->slot_bytes);
    ck_assert(entry_reserve(&world_entry(i)->word, 1, generation));
}

void world_publish(uint32_t i, uint64_t generation)
{
    ck_assert_int_eq(entry_shard_done(&world_entry(i)->word, generation, 0), SHARD_READY);
    directory_signal(&w.child.directory, LAYER);
}

void world_make_ready(uint32_t i)
{
    uint64_t generation;
    world_reserve(i, &generation);
    world_publish(i, generation);
}

bool world_pinned(uint32_t i)
{
    return entry_pins_of(entry_read(&world_entry(i)->word)) & (1u << PINNER_COMPUTE);
}

uint64_t world_count(unsigned counter)
{
    return counter_get(w.child.process, counter);
}

void world_pin(uint32_t n)
{
    w.source.pin(w.source.self, &w.step, w.items, n);
}

int world_wait_any(uint32_t n, struct error *error)
{
    return w.source.wait(w.source.self, &w.step, w.items, n, error);
}
