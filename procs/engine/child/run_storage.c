/* SPDX-License-Identifier: Apache-2.0 */
/* Lists the copies of the model that each loader may read. */
#include "procs/engine/child/run_storage.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/model/limits.h"
#include "lib/model/store/store.h"

_Static_assert(PARAM_TEXT_BYTES <= IO_URL_TEXT_BYTES, "a parameter has a URL");

/* No duplicates. A full list is not an error: more copies are not needed. */
static int add(struct run_copies *copies, const char *path, struct error *error)
{
    if (!path[0] || copies->count == RUN_COPIES_MAX)
        return 0;
    for (uint32_t i = 0; i < copies->count; i++)
        if (strcmp(copies->path[i], path) == 0)
            return 0;
    if (strlen(path) >= sizeof copies->path[0])
        return error_set(error, ERR_BAD_INPUT, "the path %.200s... is too long", path);
    strcpy(copies->path[copies->count++], path);
    return 0;
}

enum run_source run_source_of(const struct params *params, const struct model_index *model,
                              uint32_t entry)
{
    const struct model_entry *e = &model_index_entries(model)[entry];
    if (model->stripe_count > 0)
        return e->in_store || e->in_parts ? RUN_EXPERTS : RUN_DENSE;
    return run_remote(params) && e->kind == ENTRY_DENSE ? RUN_DENSE : RUN_EXPERTS;
}

static int dense_copies(const struct params *params, const struct model_index *model,
                        const char *model_path, uint32_t loader, struct run_copies *copies,
                        struct error *error)
{
    char path[MODEL_PATH_BYTES + sizeof STORE_MODEL_FILE];
    const struct model_stripe *part = model_loader_file(model, loader);
    if (model->stripe_count == 0)
        return run_remote(params) ? add(copies, part ? part->path : model_path, error) : 0;
    snprintf(path, sizeof path, "%.*s/" STORE_MODEL_FILE, MODEL_PATH_BYTES - 1, model_path);
    return add(copies, path, error);
}

/* Of a model on a server, the URL of the file of a loader; else "". The files of a skeleton have
 * the names of those on the server (procs/engine/fetch), unless the model is one file. */
static int server_file(const struct params *params, const struct model_stripe *stripe,
                       char url[IO_URL_TEXT_BYTES], struct error *error)
{
    url[0] = 0;
    if (!run_remote(params))
        return 0;
    const char *name = stripe ? strrchr(stripe->path, '/') : NULL;
    if (name)
        return io_url_sibling(params->origin, name + 1, url, error);
    strcpy(url, params->origin);
    return 0;
}

/* The order of copies rotates: loader 1 starts with another copy than loader 0. server: what an
 * item without a path stands for, or "". */
static int other_storage(const struct params *params, uint32_t loader, const char *server,
                         struct run_copies *copies, struct error *error)
{
    struct storage_paths other;
    uint32_t count = storage_count(params);
    for (uint32_t i = 1; i < count; i++)
        if (storage_take(params, (loader + i) % count, NULL, &other, error) != 0 ||
            add(copies, other.path[0] ? other.path : server, error) != 0)
            return -1;
    return 0;
}

int run_copies(const struct params *params, const struct model_index *model, const char *model_path,
               uint32_t loader, enum run_source source, struct run_copies *copies,
               struct error *error)
{
    struct storage_paths own;
    char server[IO_URL_TEXT_BYTES];
    const bool local = !run_remote(params); /* else the files of the index have no experts */
    copies->count = 0;
    if (source == RUN_DENSE)
        return dense_copies(params, model, model_path, loader, copies, error);
    sl_assert(run_files(model) == 0 || loader < run_files(model));
    const struct model_stripe *stripe = model_loader_file(model, loader);
    if (storage_take(params, loader, NULL, &own, error) != 0 ||
        server_file(params, stripe, server, error) != 0)
        return -1;
    if (add(copies, own.path[0] ? own.path : server, error) != 0 ||
        (local && copies->count == 0 &&
         add(copies, stripe ? stripe->path : model_path, error) != 0) ||
        add(copies, own.mirror, error) != 0 ||
        (local && stripe && add(copies, stripe->mirror, error) != 0))
        return -1;
    if (!stripe && other_storage(params, loader, server, copies, error) != 0)
        return -1;
    return local ? add(copies, stripe ? stripe->path : model_path, error) : 0;
}

void run_servers(const struct params *params, const struct model_index *model,
                 const char *model_path, uint32_t loader, struct run_servers *servers)
{
    struct run_copies copies;
    struct error ignored;
    servers->count = 0;
    if (run_copies(params, model, model_path, loader, RUN_EXPERTS, &copies, &ignored) != 0)
        return;
    for (uint32_t i = 0; i < copies.count; i++)
        if (io_url_is(copies.path[i]) &&
            io_url_parse(copies.path[i], &servers->url[servers->count], &ignored) == 0)
            servers->count++;
}

const struct model_file_id *run_inspected(const struct model_index *model, uint32_t loader,
                                          enum run_source source)
{
    if (run_files(model) == 0 || (source == RUN_DENSE && model->stripe_count > 0))
        return &model->file;
    sl_assert(loader < run_files(model));
    return &model_index_stripes(model)[loader].file;
}

const char *run_errno_text(int errno_value)
{
    switch (errno_value) {
    case ESTALE: return "changed in place while the engine read it";
    case ENOSPC: return "no space in /dev/shm";
    case ENOMEM: return "no memory";
    case ENOTCONN: return "its server is not connected";
    default: return strerror(errno_value);
    }
}

int run_changed_error(const struct params *params, const struct model_index *model,
                      const char *model_path, uint32_t word, struct error *error)
{
    uint32_t loader = (word - 1) / RUN_SOURCES;
    enum run_source source = (enum run_source)((word - 1) % RUN_SOURCES);
    struct run_copies copies = {.count = 0};
    struct error ignored;
    bool known = loader < params->loaders &&
                 run_copies(params, model, model_path, loader, source, &copies, &ignored) == 0 &&
                 copies.count > 0;
    return error_set(error, ERR_MODEL_CHANGED,
                     "the model file %.120s %s; restart it, or move a right copy there and run "
                     "'sluice ctl replace loader.%u'",
                     known ? copies.path[0] : model_path, run_errno_text(ESTALE), loader);
}

void run_storage_text(const struct params *params, const struct model_index *model,
                      const char *model_path, uint32_t loader, uint32_t entry, char *text,
                      size_t bytes)
{
    struct run_copies copies = {.count = 0};
    struct error error;
    bool known = loader < params->loaders &&
                 run_copies(params, model, model_path, loader, run_source_of(params, model, entry),
                            &copies, &error) == 0;
    snprintf(text, bytes, "loader.%u%s%.180s", loader, known ? "'s device " : "",
             known ? copies.path[0] : "");
}
