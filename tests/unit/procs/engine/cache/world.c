/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the segments and channels around a cache, and acts as its peers. */
#include "tests/unit/procs/engine/cache/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "tests/golden/reference.h"

#define BOOT 78u

struct world w;

static void must(int rc, const struct error *error)
{
    ck_assert_msg(rc == 0, "%s", error->text);
}

static struct segment create(enum segment_kind kind, uint64_t bytes)
{
    struct segment s;
    struct error error;
    char tag[32];
    snprintf(tag, sizeof tag, "cache.%d", (int)getpid());
    must(segment_create(kind, tag, BOOT, bytes, &s, &error), &error);
    return s;
}

static void make_child(void)
{
    struct error error;
    struct child *c = &w.child;
    struct params params;
    params_defaults(&params);
    c->model = w.image.model;
    c->incarnation = 1;
    must(arena_layout_make(c->model, &w.layout, &error), &error);
    struct segment s = create(SEGMENT_DIRECTORY, directory_bytes(c->model));
    directory_format(s.base, c->model, &w.layout, 1);
    must(directory_attach(s.fd, true, BOOT, c->model, &c->directory, &error), &error);
    c->arena = create(SEGMENT_ARENA, w.layout.bytes);
    s = create(SEGMENT_ACCESS_LOG, access_log_bytes());
    must(access_log_attach(s.fd, true, BOOT, &c->access_log, &error), &error);
    s = create(SEGMENT_PROCS, procs_bytes());
    procs_format(s.base, &params, 1);
    must(procs_attach(s.fd, true, BOOT, &c->procs, &error), &error);
    c->params = &c->procs.head->params;
    c->process = &c->procs.head->process[procs_index_of(SERVICE_CACHE, 0)];
    snprintf(c->procs.head->model_path, sizeof c->procs.head->model_path, "model.gguf");
}

/* ---- a cache over these segments, as cache_main makes it ---- */

uint32_t expert(uint32_t layer, uint32_t number)
{
    return model_entry_expert(w.child.model, layer, number);
}

uint64_t slot_bytes(uint32_t entry)
{
    return model_index_entries(w.child.model)[entry].slot_bytes;
}

/* The limit of payload is exact; the quota has space for one more slot. */
static void set_capacity(uint32_t experts)
{
    const struct model_entry *e =
        &model_index_entries(w.child.model)[expert(model_expert_layer(w.child.model, 0), 0)];
    atomic_store(&w.child.directory.head->quota_bytes,
                 w.child.model->dense_bytes + (experts + 1) * e->slot_bytes);
    atomic_store(&w.child.directory.head->experts_payload_max, experts * e->payload_bytes);
}

void open_cache(const char *preset)
{
    struct error error;
    struct cache *c = &w.cache;
    *c = (struct cache){.magic = CACHE_MAGIC, .child = w.child, .loader_count = 1};
    c->epoch = atomic_fetch_add(&c->child.directory.head->epoch, 1) + 1;
    c->entries = model_index_entries(c->child.model);
    c->loading = c->waiting = (struct entry_list){ENTRY_NONE, ENTRY_NONE, 0};
    c->layout = w.layout;
    c->notes = calloc(c->child.model->entry_count, sizeof *c->notes);
    c->alloc = arena_alloc_create(&c->child.arena, &c->layout, false, &error);
    ck_assert(c->notes && c->alloc);
    must(cache_set_preset(c, preset_find(preset), &error), &error);
    ck_assert(cache_create_predictions(c));
}

void close_cache(void)
{
    struct cache *c = &w.cache;
    cache_destroy_predictions(c);
    free(c->notes);
    arena_alloc_destroy(c->alloc);
    residency_destroy(c->residency);
    swap_destroy(c->swap);
    free(c->fill);
    free(c->slot_payload);
    free(c->frequency);
    free(c->shares);
}

static struct channel *listen_at(const char *name, char path[100])
{
    struct error error;
    snprintf(path, 100, "%s/%s", w.dir, name);
    struct channel *e = channel_listen(path, ROLE_CACHE, 1, &error);
    ck_assert_msg(e != NULL, "%s", error.text);
    return e;
}

static struct channel *connect_to(struct channel *listener, const char *path, enum msg_role role)
{
    struct error error;
    struct channel *e = channel_dial(path, role, 1, &error);
    ck_assert_msg(e != NULL, "%s", error.text);
    uint64_t end = clock_now_ns() + 10 * NS_PER_S;
    _Alignas(8) char buf[MSG_BYTES_MAX];
    while (!channel_connected(e) || !channel_connected(listener)) {
        ck_assert_msg(clock_now_ns() < end, "no connection over %s within 10 s", path);
        channel_tick(listener, clock_now_ns());
        channel_tick(e, clock_now_ns());
        (void)channel_receive(listener, buf);
        (void)channel_receive(e, buf);
    }
    return e;
}

void open_channels(void)
{
    char path[100];
    struct cache *c = &w.cache;
    c->compute = listen_at("compute", path);
    w.compute = connect_to(c->compute, path, ROLE_COMPUTE);
    c->predictor = listen_at("predictor", path);
    w.predictor = connect_to(c->predictor, path, ROLE_PREDICTOR);
    c->loaders[0].channel = listen_at("loader", path);
    w.loader = connect_to(c->loaders[0].channel, path, ROLE_LOADER);
}

void close_channels(void)
{
    struct channel *all[] = {w.compute,       w.predictor,       w.loader,
                             w.cache.compute, w.cache.predictor, w.cache.loaders[0].channel};
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        channel_close(all[i]);
}

uint64_t word(uint32_t entry)
{
    return atomic_load(&w.child.directory.entries[entry].word);
}

enum entry_state state(uint32_t entry)
{
    return entry_state_of(word(entry));
}

void arrive(uint32_t entry)
{
    struct directory_entry *d = &w.child.directory.entries[entry];
    ck_assert_int_eq(state(entry), ENTRY_LOADING);
    ck_assert_int_eq(entry_shard_done(&d->word, entry_generation_of(word(entry)), 0), SHARD_READY);
    cache_observe(&w.cache, entry);
}

void load_fails(uint32_t entry)
{
    struct directory_entry *d = &w.child.directory.entries[entry];
    atomic_store(&d->last_errno, 5);
    atomic_fetch_add(&d->failures, 1);
    ck_assert_int_eq(entry_shard_fail(&d->word, entry_generation_of(word(entry)), 0), SHARD_DOOMED);
    cache_observe(&w.cache, entry);
}

void pin(uint32_t entry)
{
    (void)entry_pin(&w.child.directory.entries[entry].word, PINNER_COMPUTE);
}

void unpin(uint32_t entry)
{
    (void)entry_unpin(&w.child.directory.entries[entry].word, PINNER_COMPUTE);
}

void demand(uint32_t entry)
{
    pin(entry);
    cache_request_fresh(&w.cache, entry, LOAD_DEMAND, 1);
}

void make_resident(uint32_t first, uint32_t count)
{
    for (uint32_t i = first; i < first + count; i++) {
        demand(expert(LAYER, i));
        arrive(expert(LAYER, i));
        unpin(expert(LAYER, i));
    }
}

uint64_t count(unsigned counter)
{
    return counter_get(w.child.process, counter);
}

static void load_dense(void)
{
    cache_load_required(&w.cache);
    for (uint32_t e = 0; e < w.child.model->dense_count; e++)
        if (e != model_table_entry(w.child.model))
            arrive(e);
}

void start(const char *preset, uint32_t experts)
{
    set_capacity(experts);
    open_cache(preset);
    open_channels();
    cache_rebuild(&w.cache);
    load_dense();
}

void setup(void)
{
    image_open(&w.image, golden_demo_path(), 16);
    make_child();
}

void setup_model(const char *path, uint32_t page_slots, uint32_t pages)
{
    image_open(&w.image, path, 16);
    struct model_index *m = (struct model_index *)(uintptr_t)w.image.model;
    ck_assert_uint_ge(m->page_count, page_slots);
    m->entry_count -= m->page_count - page_slots;
    m->dense_bytes -= (m->page_count - page_slots) * PAGE_BYTES;
    m->page_count = page_slots;
    struct model_entry *table =
        (struct model_entry *)(uintptr_t)&model_index_entries(m)[model_table_entry(m)];
    table->slot_bytes = pages * PAGE_BYTES; /* of which none is read */
    make_child();
}

void teardown(void)
{
    if (w.cache.compute)
        close_channels();
}

bool make_dir(void)
{
    snprintf(w.dir, sizeof w.dir, "/tmp/sluice-cache-test-XXXXXX");
    return mkdtemp(w.dir) != NULL;
}

/* In the parent, so that a failed case leaves no files. */
void remove_dir(void)
{
    static const char *const names[] = {"compute", "predictor", "loader"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        char path[100];
        snprintf(path, sizeof path, "%s/%s", w.dir, names[i]);
        (void)unlink(path);
    }
    (void)rmdir(w.dir);
}
