/* SPDX-License-Identifier: Apache-2.0 */
/* The store of a plan: its name, its space, and what earlier tunings left. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <xxhash.h>

#include "lib/base/bytes.h"
#include "lib/inspected/inspected.h"
#include "lib/model/index/model_index.h"
#include "lib/model/store/store.h"
#include "lib/plan/plan.h"
#include "procs/tools/tune/tune.h"

void report_line(void *arg, const char *line)
{
    (void)arg;
    fprintf(stderr, "sluice tune: %s\n", line);
}

uint64_t directory_bytes(const char *path)
{
    uint64_t bytes = 0;
    struct stat st;
    DIR *dir = opendir(path);
    for (const struct dirent *e; dir && (e = readdir(dir));)
        if (fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode))
            bytes += (uint64_t)st.st_size;
    if (dir)
        closedir(dir);
    return bytes;
}

/* The name has a hash of model and plan: a store under it is of both, or unfinished. The path counts, too: a delta of a copy
 * reads the copy. */
static int store_path(struct tune *t, struct error *error)
{
    struct error why;
    struct plan *plan = plan_read(t->plan, &why);
    if (!plan)
        return error_set(error, ERR_IO, "%s", why.text);
    uint64_t hash = XXH3_64bits(plan_width(plan), (size_t)plan->layers * plan->experts);
    hash = XXH3_64bits_withSeed(&plan->scalar[PLAN_edgemoe_dense], sizeof(double), hash);
    hash = XXH3_64bits_withSeed(t->hash, sizeof t->hash, hash);
    hash = XXH3_64bits_withSeed(t->model, strlen(t->model), hash);
    free(plan);
    char parent[PATH_MAX];
    const char *name = strrchr(t->model, '/') + 1;
    if (t->store_dir)
        snprintf(parent, sizeof parent, "%s", t->store_dir);
    else
        snprintf(parent, sizeof parent, "%.*s", (int)(name - t->model), t->model);
    if (!t->store_dir && access(parent, W_OK) != 0)
        snprintf(parent, sizeof parent, "%s", t->directory);
    char absolute[PATH_MAX];
    if (!realpath(parent, absolute))
        return error_set_errno(error, ERR_BAD_INPUT, errno, "cannot use --store-dir %.200s",
                               parent);
    int n = snprintf(t->store, sizeof t->store, "%s/%s.tuned-%016llx", absolute, name,
                     (unsigned long long)hash);
    return n < (int)sizeof t->store
               ? 0
               : error_set(error, ERR_BAD_INPUT, "the path of the store is too long");
}

struct others {
    const char *store;
    uint64_t bytes;
};

static void add_other(void *arg, const struct tuning_store *s)
{
    struct others *o = arg;
    if (strcmp(s->path, o->store) != 0)
        o->bytes += s->bytes;
}

/* At most: the dense weights, and of the experts those that the plan lowers, at their size in the model. */
static uint64_t bytes_wanted(const struct tune *t)
{
    struct error error;
    struct plan *plan = plan_read(t->plan, &error);
    size_t cells = plan ? (size_t)plan->layers * plan->experts : 0, lowered = 0;
    for (size_t i = 0; i < cells; i++)
        lowered += plan_width(plan)[i] != PRECISION_NATIVE;
    free(plan);
    double all = (double)t->model_bytes, experts = fmin(all, t->job.expert_bytes);
    return cells ? (uint64_t)(all - experts + experts * (double)lowered / (double)cells)
                 : (uint64_t)all;
}

/* All stores together, and the space of the file system. */
static int check_space(const struct tune *t, struct error *error)
{
    char parent[PATH_MAX], need[16], have[16];
    uint64_t there = directory_bytes(t->store), whole = bytes_wanted(t);
    uint64_t more = whole > there ? whole - there : 0;
    struct others others = {.store = t->store};
    struct statvfs vfs;
    if (tunings_each_store(add_other, &others, error) != 0)
        return -1;
    if (others.bytes + whole > t->store_limit)
        return error_set(error, ERR_BAD_INPUT,
                         "the stores of all tunings would take %s, more than --store-limit %s; "
                         "remove some with 'sluice models rm'",
                         bytes_format(others.bytes + whole, need),
                         bytes_format(t->store_limit, have));
    snprintf(parent, sizeof parent, "%.*s", (int)(strrchr(t->store, '/') - t->store), t->store);
    if (statvfs(parent, &vfs) == 0 && (uint64_t)vfs.f_bavail * vfs.f_frsize < more)
        return error_set(
            error, ERR_IO, "no space for the store in %.200s: up to %s needed, %s free", parent,
            bytes_format(more, need), bytes_format((uint64_t)vfs.f_bavail * vfs.f_frsize, have));
    return 0;
}

/* Whether the index is that of a delta of this model file. */
static bool is_of_model(const struct tune *t, const struct model_index *index)
{
    return index->stripe_count > 0 && index->part_count == t->parts &&
           strcmp(model_loader_file(index, index->stripe_count)->path, t->model) == 0;
}

/* A store that an earlier run finished, if an engine opens it: 1, else 0. One that it rejects is removed. */
static int find_store(const struct tune *t, struct error *error)
{
    struct model_index *index = NULL;
    struct error why = {0};
    char manifest[PATH_MAX + 16];
    uint64_t bytes;
    snprintf(manifest, sizeof manifest, "%s/" STORE_MANIFEST_FILE, t->store);
    if (access(manifest, F_OK) != 0)
        return 0;
    int fd = open(t->store, O_RDONLY | O_DIRECTORY | O_CLOEXEC), status;
    if (fd < 0)
        return error_set_errno(error, ERR_IO, errno, "cannot open %.200s", t->store);
    status = inspected_index(fd, t->store, &index, &why);
    close(fd);
    if (status == 0 && !is_of_model(t, index))
        status = error_set(&why, ERR_BAD_INPUT, "%.200s is not of this model file", t->store);
    free(index);
    if (status == 0)
        return 1;
    if (why.code != ERR_BAD_INPUT) {
        *error = why;
        return -1;
    }
    fprintf(stderr, "sluice tune: the store of an earlier run is made again: %s\n", why.text);
    if (tunings_store_drop(t->directory, t->store, &bytes) == 0)
        return 0;
    return error_set(error, ERR_IO, "cannot remove all of %.200s", t->store);
}

int stage_pack(struct tune *t, struct error *error)
{
    char memory[32];
    snprintf(memory, sizeof memory, "%" PRIu64, t->memory);
    const char *const argv[] = {"-m",      t->model,   "-o",   t->store,   "--plan", t->plan,
                                "--delta", "--output", "text", "--memory", memory,   NULL};
    stage_begin(t, 3, "pack", &t->left.pack);
    if (store_path(t, error) != 0)
        return -1;
    tunings_prune(t->directory, t->store, report_line, t);
    int found = find_store(t, error);
    if (found < 0 || (!found && check_space(t, error) != 0) ||
        tunings_store_note(t->directory, t->store, error) != 0 ||
        (!found && stage_run(t, "pack", argv, 0, error) != 0))
        return -1;
    t->result.store_bytes = directory_bytes(t->store);
    return 0;
}
