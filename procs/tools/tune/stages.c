/* SPDX-License-Identifier: Apache-2.0 */
/* profile, plan and pack. */
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
#include "lib/plan/plan.h"
#include "procs/tools/tune/tune.h"

#define ARGS_MAX    (2 * TUNE_TEXTS_MAX + 40)
#define VALUE_BYTES 32

struct arguments {
    const char *at[ARGS_MAX];
    size_t count;
    char value[8][VALUE_BYTES];
    size_t values;
};

static void add(struct arguments *a, const char *option, const char *value)
{
    a->at[a->count++] = option;
    a->at[a->count++] = value;
}

static void add_number(struct arguments *a, const char *option, double value)
{
    char *text = a->value[a->values++];
    snprintf(text, VALUE_BYTES, "%.10g", value);
    add(a, option, text);
}

static void add_texts(struct arguments *a, const struct tune *t)
{
    for (size_t i = 0; i < t->texts; i++)
        add(a, "--text", t->text[i]);
    add_number(a, "--ctx-size", (double)t->window);
}

int model_unchanged(const struct tune *t, struct error *error)
{
    struct stat st;
    const struct stat *was = &t->model_stat;
    if (stat(t->model, &st) == 0 && st.st_dev == was->st_dev && st.st_ino == was->st_ino &&
        st.st_size == was->st_size && st.st_mtim.tv_sec == was->st_mtim.tv_sec &&
        st.st_mtim.tv_nsec == was->st_mtim.tv_nsec)
        return 0;
    return error_set(error, ERR_MODEL_CHANGED,
                     "%.200s was replaced or changed meanwhile; tune again", t->model);
}

static void begin(struct tune *t, int number, const char *what, double *seconds)
{
    double all = t->left.profile + t->left.plan + t->left.pack + t->left.confirm;
    fprintf(stderr, "sluice tune: step %d of 4: %s, about %.1f minutes; %.1f until the end\n",
            number, what, *seconds / 60, all / 60);
    *seconds = 0;
}

/* Runs a stage whose messages go to stderr; any failure but `allowed` is an error. */
static int run(struct tune *t, const char *name, struct arguments *a, int allowed,
               struct error *error)
{
    int status = 0;
    if (model_unchanged(t, error) != 0 || run_program(t, name, a->at, NULL, &status, error) != 0)
        return -1;
    if (model_unchanged(t, error) != 0) /* the reason of a failure, too */
        return -1;
    if (status != 0 && status != allowed)
        return error_set(error, status == 2 ? ERR_BAD_INPUT : ERR_FAILED,
                         "%s failed (see its message above); nothing is recorded", name);
    return status;
}

int stage_profile(struct tune *t, struct error *error)
{
    struct arguments a = {.count = 0};
    begin(t, 1, "profile", &t->left.profile);
    add(&a, "-m", t->model);
    add_texts(&a, t);
    add(&a, "-o", t->profile);
    add_number(&a, "--memory", (double)t->memory);
    add_number(&a, "--tokens", t->job.profile_tokens);
    add_number(&a, "--importance-tokens", t->job.importance_tokens);
    add_number(&a, "--importance-experts", t->job.importance_experts);
    return run(t, "profile", &a, 0, error);
}

/* Of a plan that is there: whether it has precisions for this loss. */
bool plan_is_done(struct tune *t)
{
    struct error error;
    struct plan *plan = access(t->plan, F_OK) == 0 ? plan_read(t->plan, &error) : NULL;
    bool done = plan && plan_width(plan) && plan_knows(plan, PLAN_edgemoe_loss_high) &&
                plan->scalar[PLAN_edgemoe_loss_high] * 100 <= t->max_loss;
    if (done)
        t->result.loss_high = fmax(0, plan->scalar[PLAN_edgemoe_loss_high] * 100);
    if (plan && plan_knows(plan, PLAN_drive_bytes_per_s))
        t->result.read_bytes_per_s = plan->scalar[PLAN_drive_bytes_per_s];
    free(plan);
    return done;
}

int stage_plan(struct tune *t, struct error *error)
{
    struct arguments a = {.count = 0};
    begin(t, 2, "plan", &t->left.plan);
    if (plan_is_done(t))
        return 1;
    add(&a, "-m", t->model);
    add(&a, "--profile", t->profile);
    add_texts(&a, t);
    add_number(&a, "--max-loss", t->max_loss);
    add(&a, "--preset", "edgemoe");
    add_number(&a, "--tokens", t->job.plan_tokens);
    add_number(&a, "--memory", (double)t->memory);
    add(&a, "-o", t->plan);
    int none = error_exit_status(ERR_NO_PLAN), status = run(t, "plan", &a, none, error);
    if (status == none)
        return 0;
    if (status != 0)
        return -1;
    return plan_is_done(t) ? 1 : 0;
}

/* ---- the store ---- */

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

/* The name has a hash of the plan: a store under it is of this plan, or unfinished. */
static int store_path(struct tune *t, struct error *error)
{
    struct error why;
    struct plan *plan = plan_read(t->plan, &why);
    if (!plan)
        return error_set(error, ERR_IO, "%s", why.text);
    uint64_t hash = XXH3_64bits(plan_width(plan), (size_t)plan->layers * plan->experts);
    hash ^= XXH3_64bits(&plan->scalar[PLAN_edgemoe_dense], sizeof(double));
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

static void add_store(void *arg, const char *hash, const char *path, const struct tuning *other)
{
    (void)hash, (void)path;
    *(uint64_t *)arg += other->store_bytes;
}

/* All stores together, and the space of the file system. */
static int check_space(const struct tune *t, uint64_t wanted, struct error *error)
{
    char parent[PATH_MAX], need[16], have[16];
    uint64_t stores = 0;
    struct statvfs vfs;
    if (tunings_each(add_store, NULL, &stores, error) != 0)
        return -1;
    if (stores + wanted > t->store_limit)
        return error_set(error, ERR_BAD_INPUT,
                         "the stores of all tunings would take %s, more than --store-limit %s; "
                         "remove some with 'sluice models rm'",
                         bytes_format(stores + wanted, need), bytes_format(t->store_limit, have));
    snprintf(parent, sizeof parent, "%.*s", (int)(strrchr(t->store, '/') - t->store), t->store);
    if (statvfs(parent, &vfs) == 0 && (uint64_t)vfs.f_bavail * vfs.f_frsize < wanted)
        return error_set(
            error, ERR_IO, "no space for the store in %.200s: up to %s needed, %s free", parent,
            bytes_format(wanted, need), bytes_format((uint64_t)vfs.f_bavail * vfs.f_frsize, have));
    return 0;
}

int stage_pack(struct tune *t, struct error *error)
{
    struct arguments a = {.count = 0};
    char manifest[PATH_MAX + 16];
    begin(t, 3, "pack", &t->left.pack);
    if (store_path(t, error) != 0)
        return -1;
    snprintf(manifest, sizeof manifest, "%s/manifest.json", t->store);
    if (access(manifest, F_OK) != 0) {
        uint64_t there = directory_bytes(t->store), whole = (uint64_t)t->model_stat.st_size;
        if (check_space(t, whole > there ? whole - there : 0, error) != 0)
            return -1;
        add(&a, "-m", t->model);
        add(&a, "-o", t->store);
        add(&a, "--plan", t->plan);
        add(&a, "--output", "text");
        if (run(t, "pack", &a, 0, error) != 0)
            return -1;
    }
    t->result.store_bytes = directory_bytes(t->store);
    return 0;
}
