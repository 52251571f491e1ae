/* SPDX-License-Identifier: Apache-2.0 */
/* Warm start: the supervisor reads which experts earlier runs used most into the directory, before
 * any child, and writes the list again when the engine stops. Without the list, or the directory
 * for it, the engine starts as ever. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/log.h"
#include "lib/model/store/store.h"
#include "lib/plan/plan.h"
#include "procs/engine/supervisor/start/start.h"
#include "procs/engine/supervisor/supervisor.h"

_Static_assert(WARM_HASH_BYTES == PLAN_HASH_BYTES, "one hash of a model");

/* The files that the index refers to, in the order of plan_model_hash; those of a store's experts
 * are not read. */
static int open_model(const struct supervisor *s, int fds[MODEL_PARTS_MAX], struct error *error)
{
    const struct model_index *m = s->model;
    uint32_t files = m->part_count ? m->part_count : 1;
    for (uint32_t i = 0; i < files; i++) {
        const char *part = m->part_count ? model_loader_file(m, i)->path : NULL;
        fds[i] = m->stripe_count ? openat(s->model_fd, STORE_MODEL_FILE, O_RDONLY | O_CLOEXEC)
                 : i > 0         ? open(part, O_RDONLY | O_CLOEXEC)
                                 : fcntl(s->model_fd, F_DUPFD_CLOEXEC, 0);
        if (fds[i] < 0)
            return error_set_errno(error, ERR_IO, errno, "cannot open %.200s",
                                   i > 0 ? part : s->options.model);
    }
    return 0;
}

int warm_hash_model(const struct supervisor *s, uint8_t hash[WARM_HASH_BYTES], struct error *error)
{
    int fds[MODEL_PARTS_MAX];
    for (int i = 0; i < MODEL_PARTS_MAX; i++)
        fds[i] = -1;
    int rc = open_model(s, fds, error);
    if (rc == 0)
        rc = plan_model_hash(s->model, fds, hash, error);
    for (int i = 0; i < MODEL_PARTS_MAX; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    return rc;
}

static void publish(struct supervisor *s)
{
    for (uint32_t i = 0; i < s->warm.list.count; i++) {
        const struct warm_use *u = &s->warm.list.use[i];
        uint32_t entry = model_entry_expert(s->model, u->layer, u->expert);
        if (entry != ENTRY_NONE && s->directory.entries[entry].warm_rank == 0)
            s->directory.entries[entry].warm_rank = i + 1;
    }
}

static int read_list(struct supervisor *s, struct error *error)
{
    const struct model_hparams *h = &s->model->hparams;
    struct warm *w = &s->warm;
    w->model =
        (struct warm_model){.layers = h->layers, .experts = h->experts, .top_k = h->experts_used};
    if (warm_hash_model(s, w->model.hash, error) != 0 ||
        warm_directory(w->model.hash, w->path, sizeof w->path - sizeof WARM_FILE, error) != 0)
        return -1;
    size_t n = strlen(w->path);
    snprintf(w->path + n, sizeof w->path - n, "/%s", WARM_FILE);
    w->writable = true;
    return warm_read(w->path, &w->model, &w->list, error);
}

void warm_begin(struct supervisor *s)
{
    struct error error;
    if (!s->params.warm_start || s->params.deterministic)
        return;
    if (read_list(s, &error) != 0)
        log_info("no warm start: %s", error.text);
    publish(s);
    if (s->warm.list.count > 0)
        log_info("warm start: %u experts of earlier runs", s->warm.list.count);
}

void warm_end(struct supervisor *s)
{
    struct error error;
    struct warm *w = &s->warm;
    if (!w->writable)
        return;
    uint32_t experts = s->model->hparams.experts;
    uint32_t *accesses = calloc((size_t)s->model->hparams.layers * experts, sizeof *accesses);
    for (uint32_t i = s->model->dense_count; accesses && i < model_experts_end(s->model); i++) {
        const struct model_entry *e = &model_index_entries(s->model)[i];
        accesses[(size_t)e->layer * experts + e->expert] +=
            atomic_load_explicit(&s->directory.entries[i].accesses, memory_order_relaxed);
    }
    if (!accesses)
        log_warn("out of memory (warm start)");
    else if (warm_add(&w->list, &w->model, accesses, &error) != 0 ||
             (w->list.count > 0 && warm_write(w->path, &w->model, &w->list, &error) != 0))
        log_warn("the next start will not be a warm one: %s", error.text);
    free(accesses);
}
