/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of sluice-fetch-SCHEME, and what they share. Private to procs/engine/fetch. */
#ifndef SLUICE_ENGINE_FETCH_FETCH_H
#define SLUICE_ENGINE_FETCH_FETCH_H

#include <limits.h>

#include "lib/base/error.h"
#include "lib/io/server/url.h"
#include "lib/model/limits.h"
#include "procs/engine/fetch/server.h"

#define FETCH_FILES_MAX MODEL_STRIPES_MAX
#define FETCH_URL_BYTES IO_URL_TEXT_BYTES

/* Everything that one run has; too large for a stack. */
struct fetch {
    const char *url;       /* of the model, the host in numbers */
    const char *key;       /* the same as the user gave it: part of the directory's name */
    const char *directory; /* below which skeletons are */
    char place[PATH_MAX];  /* directory of this skeleton */
    int lock_fd;           /* of it */
    uint64_t done, total;  /* bytes of the holes' complement; done is kept by place_note */
    uint64_t noted, shown_ns, started_ns;
    bool complete; /* an earlier run has fetched all of it */
    char model[PATH_MAX];
    char file_url[FETCH_FILES_MAX][FETCH_URL_BYTES]; /* of a GGUF file, or of its parts */
};

_Static_assert(MODEL_PARTS_MAX <= FETCH_FILES_MAX, "parts have loaders, too");

/* gguf.c: a GGUF file, or all parts of a split one. Sets f->model and f->file_url. 0, or -1 with
 * the errors of model_index_build, and of the server. */
int fetch_gguf(struct fetch *f, struct error *error);

/* store.c: an expert store, whose manifest the URL names. */
int fetch_store(struct fetch *f, struct error *error);

/* names.c: whether a file may have this name here: letters, digits, '.', '-' and '_', no '.'
 * first. */
bool name_is_plain(const char *name);

/* place.c */
/* Makes and locks the directory of the skeleton with this identity, and reads how far an earlier
 * run came: sets place, lock_fd, done and complete. */
int place_take(struct fetch *f, const uint8_t identity[16], struct error *error);
/* Opens a file of the skeleton for writing, made with so many bytes. The descriptor, or -1. */
int place_open(const struct fetch *f, const char *name, uint64_t bytes, struct error *error);
/* So many more bytes are in the file: shows progress, and now and then syncs and notes it. */
int place_note(struct fetch *f, int fd, uint64_t bytes, struct error *error);
/* All is there: syncs the directory and notes that. */
int place_complete(struct fetch *f, struct error *error);

#endif
