/* SPDX-License-Identifier: Apache-2.0 */
/* Storage devices: their parameters, the copies of each loader, and which copies are in quarantine
 * (procs/engine/child/run_storage.h). */
#include "config/storage.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/log.h"
#include "lib/model/limits.h"
#include "procs/engine/child/run_storage.h"
#include "procs/engine/supervisor/start/start.h"
#include "procs/engine/supervisor/supervisor.h"

int storage_resolve(struct supervisor *s, struct error *error)
{
    struct params *p = &s->params;
    uint32_t count = storage_count(p);
    if (count == 0)
        return 0;
    if (run_files(s->model) == 0 && p->loaders == 1 && count <= SERVICE_LOADERS_MAX)
        p->loaders = count;
    if (count != p->loaders)
        return error_set(error, ERR_BAD_INPUT,
                         "--devices names %" PRIu32 " devices for %" PRIu64
                         " loaders; give one for each",
                         count, p->loaders);
    for (uint32_t i = 0; i < count; i++)
        if (storage_take(p, i, &s->storage, NULL, error) != 0)
            return -1;
    return 0;
}

const struct params *storage_params(struct supervisor *s, uint32_t loader)
{
    struct error error;
    int rc = storage_take(&s->params, loader, &s->storage, NULL, &error);
    sl_assert(rc == 0); /* storage_resolve checked all of them */
    return &s->storage;
}

static void add_quarantined(json_t *list, uint32_t loader, const char *path, uint32_t word)
{
    char line[MODEL_PATH_BYTES + 128];
    snprintf(line, sizeof line, "loader.%" PRIu32 " %s: %s", loader, path,
             run_errno_text(quarantine_errno(word)));
    json_t *text = json_string(line); /* NULL when a path is not UTF-8 */
    json_array_append_new(list, text ? text : json_string("?"));
}

json_t *storage_quarantined(const struct supervisor *s)
{
    json_t *list = json_array();
    for (uint32_t loader = 0; loader < s->params.loaders; loader++) {
        uint32_t word =
            atomic_load_explicit(&s->directory.head->quarantined[loader], memory_order_acquire);
        for (uint32_t source = 0; source < RUN_SOURCES && word != 0; source++) {
            struct run_copies copies;
            struct error error;
            if (run_copies(&s->params, s->model, s->options.model, loader, (enum run_source)source,
                           &copies, &error) != 0)
                continue;
            for (uint32_t i = 0; i < copies.count; i++)
                if (word & quarantine_bit((enum run_source)source, i))
                    add_quarantined(list, loader, copies.path[i], word);
        }
    }
    return list;
}

void storage_clear_quarantine(struct supervisor *s, struct child_record *c)
{
    if (c->service != SERVICE_LOADER || !c->clear_quarantine)
        return;
    c->clear_quarantine = false;
    _Atomic uint32_t *word = &s->directory.head->quarantined[c->number];
    uint32_t before = atomic_load_explicit(word, memory_order_relaxed);
    uint32_t left = files_renew(s, c->number, before);
    if (left != 0)
        left |= (uint32_t)quarantine_errno(before) << QUARANTINE_ERRNO_SHIFT;
    atomic_store_explicit(word, left, memory_order_release);
    if (before != 0)
        log_info("loader.%" PRIu32 " replaced: the quarantine of its devices is %s", c->number,
                 left ? "cleared in part" : "cleared");
}
