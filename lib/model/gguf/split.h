/* SPDX-License-Identifier: Apache-2.0 */
/* Models split into several GGUF files, NAME-00001-of-0000N.gguf: the first part has all keys (and
 * possibly no tensor), every part has a tensor table of its own. Keys of every part: split.no (from
 * 0), split.count, split.tensors.count (of all parts together). Format: gguf-split of llama.cpp. */
#ifndef SLUICE_MODEL_GGUF_SPLIT_H
#define SLUICE_MODEL_GGUF_SPLIT_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/error.h"
#include "lib/file/part_name.h"
#include "lib/model/gguf/gguf.h"
#include "lib/model/limits.h"

/* A file as a gguf_source: gguf_read is the source's read, and this struct its arg. It reads with
 * pread. */
struct gguf_reader {
    int fd;
    bool skeletons; /* one is read as the file that it is one of (lib/file/skeleton.h) */
    uint64_t end;   /* how far the file was read */
};
ssize_t gguf_read(void *reader, void *buf, size_t n, uint64_t offset);

/* The files of one model. */
struct gguf_parts {
    uint32_t count;                    /* as the name states; 1: the name is not that of a part */
    bool skeletons;                    /* they are permitted: nothing will read an expert of them */
    int fd[MODEL_PARTS_MAX];           /* [0] is borrowed; -1: not open, `why` has the reason */
    int why[MODEL_PARTS_MAX];          /* errno of open */
    uint64_t read_to[MODEL_PARTS_MAX]; /* how far gguf_open_parts has read; 0: not at all */
    char path[MODEL_PARTS_MAX][MODEL_PATH_BYTES];
};

/* Opens the other parts of the model whose first part, or only file, is open as fd and named path.
 * That may fail: only the header shows gguf_open_parts whether a part is needed. `p` is too large
 * for a small stack. The caller calls gguf_parts_close. */
void gguf_parts_open(struct gguf_parts *p, int fd, const char *path);
void gguf_parts_close(struct gguf_parts *p);

/* -1 with ERR_BAD_INPUT if the file is one part of several. */
int gguf_check_whole(const struct gguf *g, struct error *error);

/* Reads the headers of all parts as gguf_open reads one: *g gets the keys of the first part and the
 * tensors of all, in order. A part that is missing or belongs to another model is an error. It
 * reads with pread. own_types: as in gguf_source. */
int gguf_open_parts(struct gguf *g, struct gguf_parts *p, bool own_types, struct error *error);

#endif
