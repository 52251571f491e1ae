/* SPDX-License-Identifier: Apache-2.0 */
/* The directories of the records. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "lib/base/bytes.h"
#include "lib/file/part_name.h"
#include "lib/file/replace.h"
#include "lib/tunings/tunings.h"
#include "lib/warm/warm.h"

#define PREFIX    "tuning-"
#define SUFFIX    ".json"
#define TEMPORARY ".new"

_Static_assert(TUNINGS_HASH_BYTES == WARM_HASH_BYTES, "one directory of a model");

int tunings_directory(const uint8_t hash[TUNINGS_HASH_BYTES], char path[PATH_MAX],
                      struct error *error)
{
    return warm_directory(hash, path, PATH_MAX, error);
}

static int write_file(const char *path, const char *text)
{
    size_t n = strlen(text);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return errno;
    ssize_t done = write(fd, text, n); /* a record is written at once, or the disk is full */
    int why = done == (ssize_t)n ? 0 : done < 0 ? errno : ENOSPC;
    if (close(fd) != 0 && why == 0)
        why = errno;
    return why;
}

static bool is_record(const char *name)
{
    size_t n = strlen(name), tail = strlen(SUFFIX);
    return strncmp(name, PREFIX, strlen(PREFIX)) == 0 && n > tail &&
           strcmp(name + n - tail, SUFFIX) == 0;
}

/* 0, or -1 with *error, which names the path. */
static int read_record(const char *path, struct tuning *t, struct error *error)
{
    char text[TUNINGS_RECORD_BYTES + 1];
    struct stat st;
    struct error why;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    ssize_t n = fd >= 0 && fstat(fd, &st) == 0 ? read(fd, text, sizeof text) : -1;
    int number = errno;
    if (fd >= 0)
        close(fd);
    if (n < 0)
        return error_set_errno(error, ERR_IO, number, "cannot read %.250s", path);
    if (tuning_parse(text, (size_t)n, t, &why) != 0)
        return error_set(error, ERR_BAD_INPUT, "tuning %.200s is ignored: %.120s", path, why.text);
    t->used = st.st_mtime;
    return 0;
}

bool tunings_of(const char *directory, tunings_record *visit, void *visit_arg, tunings_say *say,
                void *arg)
{
    struct tuning *t = malloc(sizeof *t);
    DIR *dir = t ? opendir(directory) : NULL;
    char path[PATH_MAX];
    struct error error;
    bool all = dir || (t && errno == ENOENT);
    for (const struct dirent *e; dir && (e = readdir(dir));) {
        if (!is_record(e->d_name))
            continue;
        if (snprintf(path, sizeof path, "%s/%s", directory, e->d_name) >= (int)sizeof path) {
            all = false;
        } else if (read_record(path, t, &error) == 0) {
            visit(visit_arg, path, t);
        } else {
            all = false;
            if (say)
                say(arg, error.text);
        }
    }
    if (dir)
        closedir(dir);
    free(t);
    return all;
}

struct oldest {
    unsigned count;
    int64_t used;
    char path[PATH_MAX];
};

static void note_oldest(void *arg, const char *path, const struct tuning *t)
{
    struct oldest *o = arg;
    if (o->count++ == 0 || t->used < o->used) {
        o->used = t->used;
        snprintf(o->path, sizeof o->path, "%s", path);
    }
}

static void limit(const char *directory)
{
    struct oldest oldest;
    do {
        oldest.count = 0;
        tunings_of(directory, note_oldest, &oldest, NULL, NULL);
    } while (oldest.count >= TUNINGS_OF_A_MODEL && unlink(oldest.path) == 0);
}

bool tunings_is_gone(const char *path)
{
    char parent[PATH_MAX];
    const char *slash = strrchr(path, '/');
    snprintf(parent, sizeof parent, "%.*s", (int)(slash == path ? 1 : slash - path), path);
    return access(path, F_OK) != 0 && errno == ENOENT && access(parent, F_OK) == 0;
}

struct replaced {
    const struct tuning *by;
    const char *path; /* of its record */
};

/* Its file is gone, and not a device with both: it may have been renamed. */
static bool has_no_model(const struct tuning *t)
{
    return tunings_is_gone(t->model) && (!t->store[0] || access(t->store, F_OK) == 0);
}

/* For the same loss and budget, of the same file or of one that is gone. */
static void remove_replaced(void *arg, const char *path, const struct tuning *t)
{
    const struct replaced *r = arg;
    if (strcmp(path, r->path) != 0 && t->max_loss == r->by->max_loss &&
        t->budget == r->by->budget && (strcmp(t->model, r->by->model) == 0 || has_no_model(t)))
        unlink(path);
}

int tunings_write(const char *directory, const struct tuning *t, struct error *error)
{
    char path[PATH_MAX], temporary[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/" PREFIX "%.6g-%llu-%016llx" SUFFIX, directory,
                     t->max_loss, (unsigned long long)t->budget,
                     (unsigned long long)XXH3_64bits(t->model, strlen(t->model)));
    if (n < 0 || (size_t)n + sizeof TEMPORARY > sizeof path)
        return error_set(error, ERR_BAD_INPUT, "%.200s: the path is too long", directory);
    memcpy(temporary, path, (size_t)n);
    memcpy(temporary + n, TEMPORARY, sizeof TEMPORARY);
    char *text = tuning_format(t, error);
    if (!text)
        return -1;
    if (access(path, F_OK) != 0)
        limit(directory);
    int why = write_file(temporary, text);
    if (why == 0)
        why = file_replace(temporary, path, true);
    free(text);
    if (why != 0) {
        unlink(temporary);
        return error_set_errno(error, ERR_IO, why, "cannot write %.200s", path);
    }
    struct replaced replaced = {t, path};
    tunings_of(directory, remove_replaced, &replaced, NULL, NULL);
    return 0;
}

/* ---- finding ---- */

struct finding {
    const uint8_t *hash;
    char model[PATH_MAX]; /* absolute; "": unknown */
    double max_loss;
    uint64_t budget;
    tunings_say *say;
    void *arg;
    struct tuning *best;
    char path[PATH_MAX]; /* of the best, "": none */
};

static bool comparable(uint64_t a, uint64_t b)
{
    return a == b || (a > 0 && b > 0 && a / 4 * 3 <= b && b / 4 * 3 <= a);
}

static uint64_t apart(uint64_t a, uint64_t b)
{
    return a > b ? a - b : b - a;
}

/* The store is a delta: it needs the file that it was made of, which may not be the one that is
 * started. */
static bool files_are_there(const struct finding *f, const struct tuning *t)
{
    char manifest[PATH_MAX + 16];
    uint8_t hash[TUNINGS_HASH_BYTES];
    struct error error;
    if (!t->plan[0])
        return true;
    snprintf(manifest, sizeof manifest, "%s/manifest.json", t->store);
    return access(t->plan, R_OK) == 0 && access(manifest, R_OK) == 0 &&
           tunings_hash(t->model, hash, &error) == 0 && memcmp(hash, f->hash, sizeof hash) == 0;
}

/* Those of the file itself first: a store of a copy reads the copy. */
static bool is_better(const struct finding *f, const struct tuning *t)
{
    bool own = strcmp(t->model, f->model) == 0, best_own = strcmp(f->best->model, f->model) == 0;
    if (own != best_own)
        return own;
    if (t->max_loss != f->best->max_loss)
        return t->max_loss > f->best->max_loss;
    return apart(t->budget, f->budget) < apart(f->best->budget, f->budget);
}

static void consider(void *arg, const char *path, const struct tuning *t)
{
    struct finding *f = arg;
    char line[2 * PATH_MAX + 120];
    if (t->max_loss > f->max_loss || !comparable(t->budget, f->budget))
        return;
    if (f->path[0] && !is_better(f, t))
        return;
    if (!files_are_there(f, t)) {
        snprintf(line, sizeof line,
                 "tuning %s is ignored: its plan or store is gone, or the model is no longer at %s",
                 path, t->model);
        if (f->say)
            f->say(f->arg, line);
        return;
    }
    *f->best = *t;
    snprintf(f->path, sizeof f->path, "%s", path);
}

int tunings_find(const char *model, double max_loss, uint64_t budget, tunings_say *say, void *arg,
                 struct tuning *t, struct error *error)
{
    uint8_t hash[TUNINGS_HASH_BYTES];
    char directory[PATH_MAX];
    struct finding f = {
        .hash = hash, .max_loss = max_loss, .budget = budget, .say = say, .arg = arg, .best = t};
    if (!gguf_real_path(model, f.model))
        f.model[0] = 0;
    if (tunings_hash(model, hash, error) != 0 || tunings_directory(hash, directory, error) != 0)
        return -1;
    tunings_of(directory, consider, &f, say, arg);
    if (!f.path[0])
        return 0;
    utimensat(AT_FDCWD, f.path, NULL,
              0); /* fails if the directory is read-only: no last use then */
    return 1;
}

/* ---- all ---- */

struct visiting {
    tunings_visit *visit;
    tunings_store_visit *store;
    tunings_say *say;
    void *arg;
    const char *hash;
};

static void visit_one(void *arg, const char *path, const struct tuning *t)
{
    const struct visiting *v = arg;
    v->visit(v->arg, v->hash, path, t);
}

static int each_model(struct visiting *v, struct error *error)
{
    static const uint8_t none[TUNINGS_HASH_BYTES];
    char root[PATH_MAX], path[PATH_MAX];
    if (tunings_directory(none, root, error) != 0)
        return -1;
    rmdir(root); /* of no model */
    *strrchr(root, '/') = 0;
    struct dirent **names = NULL;
    int count = scandir(root, &names, NULL, alphasort);
    if (count < 0)
        return error_set_errno(error, ERR_IO, errno, "cannot read %.200s", root);
    for (int i = 0; i < count; i++) {
        v->hash = names[i]->d_name;
        if (i < TUNINGS_MODELS_MAX && strlen(v->hash) == (size_t)2 * TUNINGS_HASH_BYTES &&
            snprintf(path, sizeof path, "%s/%s", root, v->hash) < (int)sizeof path) {
            if (v->visit)
                tunings_of(path, visit_one, v, v->say, v->arg);
            if (v->store)
                tunings_stores(path, v->store, v->arg);
        }
        free(names[i]);
    }
    free(names);
    return 0;
}

int tunings_each(tunings_visit *visit, tunings_say *say, void *arg, struct error *error)
{
    struct visiting v = {.visit = visit, .say = say, .arg = arg};
    return each_model(&v, error);
}

int tunings_each_store(tunings_store_visit *visit, void *arg, struct error *error)
{
    struct visiting v = {.store = visit, .arg = arg};
    return each_model(&v, error);
}
