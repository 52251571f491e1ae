/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of sluice-push-MODULE, and what they share. Private to procs/tools/push. */
#ifndef SLUICE_TOOLS_PUSH_PUSH_H
#define SLUICE_TOOLS_PUSH_PUSH_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "lib/base/bytes.h"
#include "lib/base/error.h"
#include "lib/io/server/url.h"
#include "lib/model/limits.h"

#define PUSH_FILES_MAX  (MODEL_STRIPES_MAX + 2) /* entries.bin, model.gguf, stripes */
#define PUSH_PIECES_MAX 10000u                  /* parts of an object of S3 */
#define PUSH_PART_BYTES (64 * MIB)              /* of a piece, unless there were too many */
#define PUSH_TAG_BYTES  80
#define PUSH_ID_BYTES   600
#define PUSH_JOURNAL    "push.journal" /* in the directory of the store */

struct push_file {
    const char *name; /* borrowed; also on the server */
    int fd;
    uint64_t bytes;
};

/* What an earlier run has sent of a file. */
struct push_record {
    bool there; /* this run has seen it on the server, with the right size */
    bool done, begun;
    uint64_t bytes, identity;    /* of a file that is done */
    uint64_t before;             /* of one that is begun: what the server had then; 0: nothing */
    char id[PUSH_ID_BYTES];      /* of one that is begun: of the back end */
    char (*tag)[PUSH_TAG_BYTES]; /* PUSH_PIECES_MAX of them; "": the piece was not sent */
};

/* Everything that one run has; too large for a stack. */
struct push {
    char given[IO_URL_TEXT_BYTES]; /* the manifest's URL, as the user gave it: for messages */
    char url[IO_URL_TEXT_BYTES];   /* the same with address and files of credentials */
    const char *directory;         /* of the store */
    uint64_t part_bytes;           /* of a piece */
    uint64_t rate;                 /* bytes per second at most; 0: no limit */
    unsigned tries;                /* of a request */
    bool quiet;
    int dir_fd;
    uint32_t files;
    struct push_file file[PUSH_FILES_MAX];
    struct push_record record[PUSH_FILES_MAX]; /* of each */
    int journal_fd;
    /* meter.c */
    uint64_t total, done, sent; /* bytes: all; on the server; of the piece that is being sent */
    uint64_t moved;             /* by this run */
    uint64_t started_ns, shown_ns;
    bool terminal, shown;
};

/* ---- store.c ---- */

/* Whether the server can be asked, and has no other store there. 1: it has this one; 0: it has
 * none; -1: *error, ERR_BAD_INPUT: it has another. */
int push_probe(struct push *p, struct error *error);
/* Sends the files, and the manifest last. */
int push_store(struct push *p, struct error *error);

/* ---- journal.c: what was sent. Lines of text:
 *
 *   sluice push 1 KEY         a hash of the manifest and of the URL; another one starts anew
 *   begin FILE ID BEFORE      the back end's name of an upload; identity of what was there before
 *   piece FILE NUMBER TAG     a piece is on the server
 *   done FILE BYTES IDENTITY  all of it; what the server then said of its version
 *
 * A torn line ends the journal. */

int journal_open(struct push *p, uint64_t key, struct error *error);
int journal_begin(struct push *p, uint32_t file, const char *id, uint64_t before,
                  struct error *error);
int journal_piece(struct push *p, uint32_t file, uint32_t number, const char *tag,
                  struct error *error);
int journal_done(struct push *p, uint32_t file, uint64_t identity, struct error *error);
/* What was sent of the file is not there any more. */
void journal_forget(struct push *p, uint32_t file);
void journal_remove(struct push *p);

/* ---- meter.c ---- */

void meter_start(struct push *p);
/* So many bytes of a piece were handed to the library: waits for --rate, shows progress. */
void meter_moved(struct push *p, uint64_t bytes);
/* The piece is on the server (sent again: false). */
void meter_piece(struct push *p, uint64_t bytes, bool there);
void meter_end(struct push *p);

/* ---- the back end: web.c or rados.c ---- */

struct target;

/* What a server has. */
struct target_file {
    uint64_t bytes;
    uint64_t identity; /* a hash of what it says of the version; 0: nothing */
};

/* A client of the server; nothing is asked yet. Errors of all functions name URL and reason. */
struct target *target_open(struct push *p, struct error *error);
void target_close(struct target *t);

/* 1: it is there; 0: it is not; -1: *error. */
int target_look(struct target *t, const char *name, struct target_file *found, struct error *error);
/* Its first bytes; *count: how many of at most `room`. */
int target_get(struct target *t, const char *name, char *to, uint64_t room, uint64_t *count,
               struct error *error);
/* Of how many bytes the pieces of a file are. */
uint64_t target_piece_bytes(const struct target *t, uint64_t bytes);
/* Before its pieces. */
int target_begin(struct target *t, const struct push_file *f, char id[PUSH_ID_BYTES],
                 struct error *error);
/* Piece `number`, the bytes [at, at + bytes). ERR_GONE: the server does not know the upload. */
int target_piece(struct target *t, const struct push_file *f, const char *id, uint32_t number,
                 uint64_t at, uint64_t bytes, char tag[PUSH_TAG_BYTES], struct error *error);
/* After all: the file is there then. */
int target_end(struct target *t, const struct push_file *f, const char *id,
               char (*tag)[PUSH_TAG_BYTES], uint32_t pieces, struct error *error);

/* The URL of a file: as the user gave it, for messages; or what the back end uses. */
int push_url(const char *manifest, const char *name, char to[IO_URL_TEXT_BYTES],
             struct error *error);

#endif
