/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the backends of a loader. */
#include "lib/io/readers.h"

#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/base/log.h"

static struct reader *add(struct readers *r, const struct io_backend *backend,
                          const struct io_source *source, struct error *error)
{
    sl_assert(r->count < READERS_MAX);
    struct reader *reader = &r->reader[r->count];
    *reader = (struct reader){.backend = backend, .fd = -1};
    reader->io = backend->open(source, &reader->fd, error);
    if (!reader->io)
        return NULL;
    r->count++;
    return reader;
}

int readers_open_files(struct readers *r, const char *backend, uint32_t depth, struct error *error)
{
    static const struct io_backend *const known[] = {&io_backend_uring, &io_backend_pread};
    const struct io_source files = {.depth = depth};
    bool any = strcmp(backend, "auto") == 0, found = false;
    sl_assert(r->count == 0);
    for (size_t i = 0; i < ARRAY_LEN(known) && r->count == 0; i++) {
        if (!any && strcmp(backend, io_backend_info(known[i]->id)->name) != 0)
            continue;
        found = true;
        if (!add(r, known[i], &files, error) && any)
            log_warn("%s; trying another backend", error->text);
    }
    if (!found)
        return error_set(error, ERR_BAD_INPUT,
                         "unknown backend '%.100s'; expected auto, io_uring or pread", backend);
    return r->count > 0 ? 0 : -1;
}

struct reader *readers_open_server(struct readers *r, const struct io_source *source,
                                   struct error *error)
{
    for (uint32_t i = 0; i < io_servers_count; i++)
        if (io_servers[i]->id == source->backend)
            return add(r, io_servers[i], source, error);
    error_set(error, ERR_BAD_INPUT,
              "%.200s is left out: a loader has the library of its first server only", source->url);
    return NULL;
}

void readers_close(struct readers *r)
{
    while (r->count > 0) {
        struct reader *reader = &r->reader[--r->count];
        reader->backend->close(reader->io);
    }
}
