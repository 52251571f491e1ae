/* SPDX-License-Identifier: Apache-2.0 */
/* The model file, or the files of a split one: sizes, and whether they are still those that were
 * hashed. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/file/part_name.h"
#include "lib/model/store/base.h"
#include "procs/tools/tune/tune.h"

void model_part(const struct tune *t, uint32_t part, char path[PATH_MAX])
{
    strcpy(path, t->model);
    if (t->parts > 1)
        gguf_set_part(path, part + 1);
}

static int count_parts(struct tune *t, struct error *error)
{
    uint32_t number;
    if (!gguf_part_name(t->model, &number, &t->parts))
        t->parts = 1;
    if (t->parts <= STORE_BASE_PARTS_MAX)
        return 0;
    return error_set(error, ERR_BAD_INPUT,
                     "the model is split into %u files; the store of a tuning, a delta, allows %d: "
                     "merge them",
                     t->parts, STORE_BASE_PARTS_MAX);
}

static int take_part(struct tune *t, uint32_t part, struct error *error)
{
    char path[PATH_MAX];
    struct stat *st = &t->part[part];
    model_part(t, part, path);
    if (stat(path, st) != 0)
        return error_set_errno(error, ERR_BAD_INPUT, errno, "cannot open model %.200s", path);
    if (S_ISDIR(st->st_mode))
        return error_set(error, ERR_BAD_INPUT,
                         "%.200s is a directory; tune needs the GGUF file of the model", path);
    t->model_bytes += (uint64_t)st->st_size;
    return 0;
}

int model_take(struct tune *t, struct error *error)
{
    if (!gguf_real_path(t->model_path, t->model))
        return error_set_errno(error, ERR_BAD_INPUT, errno, "cannot open model %.200s",
                               t->model_path);
    int status = count_parts(t, error);
    for (uint32_t i = 0; status == 0 && i < t->parts; i++)
        status = take_part(t, i, error);
    return status;
}

uint32_t model_largest_part(const struct tune *t)
{
    uint32_t largest = 0;
    for (uint32_t i = 1; i < t->parts; i++)
        if (t->part[i].st_size > t->part[largest].st_size)
            largest = i;
    return largest;
}

static bool is_same(const struct stat *was, const struct stat *is)
{
    return is->st_dev == was->st_dev && is->st_ino == was->st_ino && is->st_size == was->st_size &&
           is->st_mtim.tv_sec == was->st_mtim.tv_sec && is->st_mtim.tv_nsec == was->st_mtim.tv_nsec;
}

int model_unchanged(const struct tune *t, struct error *error)
{
    char path[PATH_MAX];
    struct stat st;
    for (uint32_t i = 0; i < t->parts; i++) {
        model_part(t, i, path);
        if (stat(path, &st) != 0 || !is_same(&t->part[i], &st))
            return error_set(error, ERR_MODEL_CHANGED,
                             "%.200s was replaced or changed meanwhile; tune again", path);
    }
    return 0;
}
