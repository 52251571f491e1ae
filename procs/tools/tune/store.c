/* SPDX-License-Identifier: Apache-2.0 */
/* The store of a plan: its name, its space, and what earlier tunings left. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
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
#include "lib/offline/measure/evaluate.h"
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

/* The name has a hash of model and plan: a store under it is of both, or unfinished. The path
 * counts, too: a delta of a copy reads the copy. */
static int store_path(struct tune *t, struct error *error)
{
    struct error why;
    struct plan *plan = plan_read(t->plan, &why);
    if (!plan)
        return error_set(error, ERR_IO, "%s", why.text);
    uint32_t precisions = choose_precisions(t, plan);
    uint64_t hash = precisions
                        ? XXH3_64bits(&precisions, sizeof precisions)
                        : XXH3_64bits(plan_width(plan), (size_t)plan->layers * plan->experts);
    hash = XXH3_64bits_withSeed(&plan->scalar[PLAN_edgemoe_dense], sizeof(double), hash);
    hash = XXH3_64bits_withSeed(t->hash, sizeof t->hash, hash);
    hash = XXH3_64bits_withSeed(t->model, strlen(t->model), hash);
    free(plan);
    return store_name(t, hash, t->store, error);
}

int store_name(const struct tune *t, uint64_t hash, char out[PATH_MAX], struct error *error)
{
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
    int n =
        snprintf(out, PATH_MAX, "%s/%s.tuned-%016llx", absolute, name, (unsigned long long)hash);
    return n < PATH_MAX ? 0 : error_set(error, ERR_BAD_INPUT, "the path of the store is too long");
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

/* Of all experts at these precisions, or as the plan has them if there are none. */
static double experts_bytes(const struct offline_model *m, const struct plan *plan,
                            uint32_t precisions)
{
    double bytes = 0;
    const struct model_hparams *hp = &offline_index(m)->hparams;
    for (uint32_t l = hparams_next_experts(hp, 0); l < hp->layers;
         l = hparams_next_experts(hp, l + 1))
        for (enum precision x = PRECISION_INT8; x < PRECISION__COUNT; x++) {
            uint32_t experts = precisions >> x & 1 ? plan->experts : 0;
            for (uint32_t e = 0; !precisions && e < plan->experts; e++)
                experts += plan_width(plan)[(size_t)l * plan->experts + e] == x;
            bytes += experts > 0 ? (double)experts * (double)form_bytes(m, l, x) : 0;
        }
    return bytes;
}

/* At most: the dense weights, and of the experts what is lowered. */
static int bytes_wanted(const struct tune *t, uint64_t *bytes, struct error *error)
{
    struct plan *plan = plan_read(t->plan, error);
    struct offline_model *m =
        plan ? offline_open_within(t->model, inspected_index, t->memory, error) : NULL;
    if (m) {
        double all = (double)t->model_bytes, experts = fmin(all, t->job.expert_bytes);
        *bytes = (uint64_t)(all - experts + experts_bytes(m, plan, choose_precisions(t, plan)));
        offline_close(m);
    }
    free(plan);
    return m ? 0 : -1;
}

/* All stores together, and the space of the file system. */
int store_space(const struct tune *t, const char *store, uint64_t whole, struct error *error)
{
    char parent[PATH_MAX], need[16], have[16];
    uint64_t there = directory_bytes(store), more = whole > there ? whole - there : 0;
    struct others others = {.store = store};
    struct statvfs vfs;
    if (tunings_each_store(add_other, &others, error) != 0)
        return -1;
    if (others.bytes + whole > t->store_limit)
        return error_set(error, ERR_BAD_INPUT,
                         "the stores of all tunings would take %s, more than --store-limit %s; "
                         "remove some with 'sluice models rm'",
                         bytes_format(others.bytes + whole, need),
                         bytes_format(t->store_limit, have));
    snprintf(parent, sizeof parent, "%.*s", (int)(strrchr(store, '/') - store), store);
    more += STORE_RESERVE_BYTES;
    if (statvfs(parent, &vfs) == 0 && (uint64_t)vfs.f_bavail * vfs.f_frsize < more)
        return error_set(
            error, ERR_IO, "no space for the store in %.200s: up to %s needed, %s free", parent,
            bytes_format(more, need), bytes_format((uint64_t)vfs.f_bavail * vfs.f_frsize, have));
    return 0;
}

int store_space_begin(const struct tune *t, struct error *error)
{
    char store[PATH_MAX];
    double dense = fmax(0, (double)t->model_bytes - t->job.expert_bytes);
    if (store_name(t, 0, store, error) != 0)
        return -1;
    return store_space(t, store, (uint64_t)dense, error);
}

static int check_space(const struct tune *t, struct error *error)
{
    uint64_t whole;
    return bytes_wanted(t, &whole, error) != 0 ? -1 : store_space(t, t->store, whole, error);
}

/* Whether the index is that of a delta of this model file. */
static bool is_of_model(const struct tune *t, const struct model_index *index)
{
    return index->stripe_count > 0 && index->part_count == t->parts &&
           strcmp(model_loader_file(index, index->stripe_count)->path, t->model) == 0;
}

int store_find(const struct tune *t, const char *store, struct error *error)
{
    struct model_index *index = NULL;
    struct error why = {0};
    char manifest[PATH_MAX + 16];
    uint64_t bytes;
    snprintf(manifest, sizeof manifest, "%s/" STORE_MANIFEST_FILE, store);
    if (access(manifest, F_OK) != 0)
        return 0;
    int fd = open(store, O_RDONLY | O_DIRECTORY | O_CLOEXEC), status;
    if (fd < 0)
        return error_set_errno(error, ERR_IO, errno, "cannot open %.200s", store);
    status = inspected_index(fd, store, &index, &why);
    close(fd);
    if (status == 0 && !is_of_model(t, index))
        status = error_set(&why, ERR_BAD_INPUT, "%.200s is not of this model file", store);
    free(index);
    if (status == 0)
        return 1;
    if (why.code != ERR_BAD_INPUT) {
        *error = why;
        return -1;
    }
    fprintf(stderr, "sluice tune: the store of an earlier run is made again: %s\n", why.text);
    if (tunings_store_drop(t->directory, store, &bytes) == 0)
        return 0;
    return error_set(error, ERR_IO, "cannot remove all of %.200s", store);
}

/* Where the store goes, and whether it exists: 1; 0: there is space for it. */
static int place_store(struct tune *t, struct error *error)
{
    if (store_path(t, error) != 0)
        return -1;
    tunings_prune(t->directory, t->store, report_line, t);
    int found = store_find(t, t->store, error);
    if (found != 0 || check_space(t, error) == 0)
        return found;
    if (!choose_fewer(t))
        return -1;
    fprintf(stderr, "sluice tune: one system less is stored: %s\n", error->text);
    return place_store(t, error);
}

void precisions_list(uint32_t precisions, char *out, size_t bytes)
{
    size_t used = 0;
    out[0] = 0;
    for (enum precision x = PRECISION_INT8; x < PRECISION__COUNT; x++)
        if (precisions >> x & 1)
            used += (size_t)snprintf(out + used, bytes - used, "%s%s", used ? "," : "",
                                     precision_name(x));
}

static int run_pack(struct tune *t, struct error *error)
{
    struct arguments a = {.count = 0};
    char list[64];
    struct plan *plan = plan_read(t->plan, error);
    if (!plan)
        return -1;
    precisions_list(choose_precisions(t, plan), list, sizeof list);
    arguments_add(&a, "-m", t->model);
    arguments_add(&a, "-o", t->store);
    if (plan_width(plan)) /* also: the precision of dense weights */
        arguments_add(&a, "--plan", t->plan);
    if (list[0])
        arguments_add(&a, "--precisions", list);
    else if (plan_width(plan))
        a.at[a.count++] = "--edgemoe-only";
    free(plan);
    arguments_add_number(&a, "--memory", (double)memory_of_child(t));
    arguments_add(&a, "--output", "text");
    a.at[a.count++] = "--delta";
    return stage_run(t, "pack", a.at, false, 0, error);
}

int stage_pack(struct tune *t, struct error *error)
{
    stage_begin(t, 3, "pack", &t->left.pack);
    int found = place_store(t, error);
    if (found < 0 || tunings_store_note(t->directory, t->store, error) != 0 ||
        (!found && run_pack(t, error) != 0))
        return -1;
    t->result.store_bytes = directory_bytes(t->store);
    return 0;
}
