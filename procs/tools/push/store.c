/* SPDX-License-Identifier: Apache-2.0 */
/* The order in which a store is sent: first all files that the manifest names, and when all of them
 * are there, the manifest. So a server has a whole store or none: a reader begins at the manifest.
 * A file that an earlier run has sent is left out if the server still says the same of it. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "lib/model/store/store.h"
#include "procs/tools/push/push.h"

struct manifest {
    char *text;
    uint64_t bytes;
    struct push_file file;
    struct store_manifest parsed;
};

int push_url(const char *manifest, const char *name, char to[IO_URL_TEXT_BYTES],
             struct error *error)
{
    return io_url_sibling(manifest, name, to, error);
}

/* ---- what is here ---------------------------------------------------------------------------- */

static int open_file(struct push *p, struct push_file *f, const char *name, struct error *error)
{
    struct stat st;
    if (strchr(name, '/'))
        return error_set(error, ERR_BAD_INPUT,
                         "the store has %.200s; of a store on a server, all files are next to its "
                         "manifest",
                         name);
    *f = (struct push_file){.name = name, .fd = openat(p->dir_fd, name, O_RDONLY | O_CLOEXEC)};
    if (f->fd < 0 || fstat(f->fd, &st) != 0)
        return error_set_errno(error, ERR_BAD_INPUT, errno, "cannot open %.200s/%.100s",
                               p->directory, name);
    f->bytes = (uint64_t)st.st_size;
    if (!S_ISREG(st.st_mode) || f->bytes == 0)
        return error_set(error, ERR_BAD_INPUT, "%.200s/%.100s is empty, or no file", p->directory,
                         name);
    return 0;
}

/* 0 without a manifest, too: m->bytes is 0 then. */
static int read_manifest(struct push *p, struct manifest *m, struct error *error)
{
    if (faccessat(p->dir_fd, STORE_MANIFEST_FILE, F_OK, 0) != 0)
        return 0;
    if (open_file(p, &m->file, STORE_MANIFEST_FILE, error) != 0)
        return -1;
    if (m->file.bytes > STORE_MANIFEST_MAX)
        return error_set(error, ERR_BAD_INPUT, "the manifest is too large");
    m->text = malloc(m->file.bytes);
    if (!m->text)
        return error_set(error, ERR_NO_MEMORY, "out of memory (push)");
    if (pread(m->file.fd, m->text, m->file.bytes, 0) != (ssize_t)m->file.bytes)
        return error_set_errno(error, ERR_IO, errno, "cannot read the manifest");
    m->bytes = m->file.bytes;
    return 0;
}

static void free_manifest(struct manifest *m)
{
    if (m->file.fd >= 0)
        close(m->file.fd);
    store_manifest_free(&m->parsed);
    free(m->text);
}

static int open_files(struct push *p, struct manifest *m, struct error *error)
{
    struct store_manifest *s = &m->parsed;
    if (s->base_path[0])
        return error_set(error, ERR_BAD_INPUT, "a delta cannot be on a server");
    if (open_file(p, &p->file[p->files++], STORE_ENTRIES_FILE, error) != 0 ||
        open_file(p, &p->file[p->files++], STORE_MODEL_FILE, error) != 0)
        return -1;
    for (uint32_t i = 0; i < s->stripe_count; i++)
        if (s->stripe[i].mirror[0])
            return error_set(error, ERR_BAD_INPUT,
                             "%.250s has mirrors, and its manifest their paths on this machine; "
                             "a store on a server has none",
                             p->directory);
        else if (open_file(p, &p->file[p->files++], s->stripe[i].path, error) != 0)
            return -1;
    for (uint32_t i = 0; i < p->files; i++)
        p->total += p->file[i].bytes;
    p->total += m->bytes;
    return 0;
}

/* ---- what is there --------------------------------------------------------------------------- */

/* 1: this manifest; 0: none; -1: another one, or *error. */
static int look_at_manifest(struct push *p, struct target *t, const struct manifest *m,
                            struct error *error)
{
    struct target_file found;
    char *text = malloc(STORE_MANIFEST_MAX);
    uint64_t count = 0;
    if (!text)
        return error_set(error, ERR_NO_MEMORY, "out of memory (push)");
    int there = target_look(t, STORE_MANIFEST_FILE, &found, error);
    if (there > 0 && target_get(t, STORE_MANIFEST_FILE, text, STORE_MANIFEST_MAX, &count, error))
        there = -1;
    else if (there > 0 && (count != m->bytes || memcmp(text, m->text, count) != 0))
        there =
            error_set(error, ERR_BAD_INPUT, "%.250s: %s; give another URL, or remove it", p->given,
                      m->bytes > 0 ? "there is another store" : "a store is there already");
    free(text);
    return there;
}

/* With the manifest of this store there: whether all of its files are, too. Servers lose files, and
 * people remove them. 1 or 0, and which; or -1. */
static int look_at_files(struct push *p, struct target *t, struct error *error)
{
    int all = 1;
    for (uint32_t i = 0; i < p->files; i++) {
        struct target_file found;
        int there = target_look(t, p->file[i].name, &found, error);
        if (there < 0)
            return -1;
        p->record[i].there = there > 0 && found.bytes == p->file[i].bytes;
        all &= p->record[i].there;
    }
    return all;
}

/* Whether the file is there as an earlier run has left it: 1 or 0, or -1. */
static int is_there(struct push *p, struct target *t, uint32_t i, struct error *error)
{
    const struct push_record *r = &p->record[i];
    struct target_file found;
    if (r->there)
        return 1;
    if (!r->done || r->bytes != p->file[i].bytes)
        return 0;
    int there = target_look(t, p->file[i].name, &found, error);
    return there <= 0 ? there : found.bytes == r->bytes && found.identity == r->identity;
}

/* ---- sending --------------------------------------------------------------------------------- */

/* What the server has under the name is kept, to know later whether it is what was sent. */
static int begin(struct push *p, struct target *t, uint32_t i, uint32_t pieces, struct error *error)
{
    struct push_record *r = &p->record[i];
    struct target_file found;
    int there = pieces > 1 ? target_look(t, p->file[i].name, &found, error) : 0;
    return there < 0 || target_begin(t, &p->file[i], r->id, error) != 0
               ? -1
               : journal_begin(p, i, r->id, there > 0 ? found.identity : 0, error);
}

static int send_pieces(struct push *p, struct target *t, uint32_t i, struct error *error)
{
    const struct push_file *f = &p->file[i];
    struct push_record *r = &p->record[i];
    uint64_t each = target_piece_bytes(t, f->bytes);
    uint32_t pieces = (uint32_t)((f->bytes + each - 1) / each);
    char tag[PUSH_TAG_BYTES];
    if (!r->begun && begin(p, t, i, pieces, error) != 0)
        return -1;
    for (uint32_t n = 0; n < pieces; n++) {
        uint64_t at = n * each, bytes = f->bytes - at < each ? f->bytes - at : each;
        if (r->tag[n][0]) {
            meter_piece(p, bytes, true);
            continue;
        }
        if (target_piece(t, f, r->id, n, at, bytes, tag, error) != 0 ||
            journal_piece(p, i, n, tag, error) != 0)
            return -1;
        (void)posix_fadvise(f->fd, (off_t)at, (off_t)bytes, POSIX_FADV_DONTNEED);
        meter_piece(p, bytes, true);
    }
    return target_end(t, f, r->id, r->tag, pieces, error);
}

static int check_sent(struct push *p, struct target *t, const struct push_file *f,
                      struct target_file *found, struct error *error)
{
    int there = target_look(t, f->name, found, error);
    if (there < 0)
        return -1;
    if (there > 0 && found->bytes == f->bytes)
        return 0;
    return error_set(error, ERR_IO,
                     "%.200s: after it was sent, %.100s has %" PRIu64
                     " bytes there instead of %" PRIu64,
                     p->given, f->name, there > 0 ? found->bytes : 0, f->bytes);
}

/* The server does not know the upload: it has given it up; or has completed it, and the answer was
 * lost or came to a run that was killed. 1: that; 0, or -1. */
static int is_complete(struct push *p, struct target *t, uint32_t i, struct error *error)
{
    struct target_file found;
    int there = target_look(t, p->file[i].name, &found, error);
    return there <= 0 ? there
                      : found.bytes == p->file[i].bytes && found.identity != 0 &&
                            found.identity != p->record[i].before;
}

static int send_file(struct push *p, struct target *t, uint32_t i, struct error *error)
{
    struct target_file found;
    uint64_t before = p->done;
    int there = is_there(p, t, i, error);
    meter_piece(p, p->file[i].bytes, there > 0);
    if (there != 0)
        return there > 0 ? 0 : -1;
    if (p->record[i].done)
        journal_forget(p, i);
    int rc = send_pieces(p, t, i, error);
    if (rc != 0 && error->code == ERR_GONE) {
        rc = is_complete(p, t, i, error);
        if (rc == 0) {
            journal_forget(p, i);
            p->done = before;
            rc = send_pieces(p, t, i, error);
        } else if (rc > 0) {
            p->done = before + p->file[i].bytes;
            rc = 0;
        }
    }
    if (rc != 0 || check_sent(p, t, &p->file[i], &found, error) != 0)
        return -1;
    return journal_done(p, i, found.identity, error);
}

static int send_manifest(struct push *p, struct target *t, const struct manifest *m,
                         struct error *error)
{
    struct target_file found;
    char id[PUSH_ID_BYTES], tags[1][PUSH_TAG_BYTES];
    if (target_begin(t, &m->file, id, error) != 0 ||
        target_piece(t, &m->file, id, 0, 0, m->bytes, tags[0], error) != 0 ||
        target_end(t, &m->file, id, tags, 1, error) != 0)
        return -1;
    meter_piece(p, m->bytes, true);
    return check_sent(p, t, &m->file, &found, error);
}

static int send_all(struct push *p, struct target *t, const struct manifest *m, bool manifest_there,
                    struct error *error)
{
    for (uint32_t i = 0; i < p->files; i++)
        if (send_file(p, t, i, error) != 0)
            return -1;
    if (!manifest_there)
        return send_manifest(p, t, m, error);
    meter_piece(p, m->bytes, true);
    return 0;
}

/* Pieces have numbers, so those of another size are others. */
static uint64_t key_of(const struct push *p, const struct manifest *m)
{
    uint64_t text = XXH3_64bits_withSeed(m->text, m->bytes, p->part_bytes);
    return XXH3_64bits_withSeed(p->given, strlen(p->given), text);
}

int push_probe(struct push *p, struct error *error)
{
    struct manifest m = {.file.fd = -1};
    struct target *t = target_open(p, error);
    int there = t && read_manifest(p, &m, error) == 0 ? look_at_manifest(p, t, &m, error) : -1;
    if (t)
        target_close(t);
    free_manifest(&m);
    return there;
}

static int push_manifest(struct push *p, struct manifest *m, struct error *error)
{
    struct target *t = target_open(p, error);
    int there = t ? look_at_manifest(p, t, m, error) : -1;
    int all = there > 0 ? look_at_files(p, t, error) : there;
    meter_start(p);
    if (all > 0)
        meter_piece(p, p->total, true);
    int rc = all != 0 ? (all > 0 ? 0 : -1) : journal_open(p, key_of(p, m), error);
    if (rc == 0 && all == 0)
        rc = send_all(p, t, m, there > 0, error);
    if (t)
        target_close(t);
    return rc;
}

int push_store(struct push *p, struct error *error)
{
    struct manifest m = {.file.fd = -1};
    int rc = read_manifest(p, &m, error);
    if (rc == 0 && m.bytes == 0)
        rc = error_set(error, ERR_BAD_INPUT, "%.250s has no whole store", p->directory);
    if (rc == 0)
        rc = store_manifest_parse(m.text, m.bytes, &m.parsed, error);
    if (rc == 0)
        rc = open_files(p, &m, error);
    if (rc == 0)
        rc = push_manifest(p, &m, error);
    if (rc == 0) {
        meter_end(p);
        journal_remove(p);
    }
    free_manifest(&m);
    return rc;
}
