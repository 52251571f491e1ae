/* SPDX-License-Identifier: Apache-2.0 */
/* The sandbox of this process, before it reads the model: the model's files are read, the store and
 * its stripes are written, and there is nothing else: no other files, no network, no programs. */
#include <dirent.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/log.h"
#include "lib/file/part_name.h"
#include "lib/model/hf/hf.h"
#include "lib/sandbox/sandbox.h"
#include "procs/tools/pack/pack.h"

struct rules {
    size_t count, capacity;
    struct sandbox_rule *rule; /* with paths of its own */
    bool incomplete;           /* memory is short */
};

static bool grow(struct rules *r)
{
    size_t capacity = r->capacity ? 2 * r->capacity : 64;
    struct sandbox_rule *bigger = reallocarray(r->rule, capacity, sizeof *bigger);
    if (!bigger)
        return false;
    r->rule = bigger;
    r->capacity = capacity;
    return true;
}

/* A path that does not exist stands for its directory. */
static void add(struct rules *r, const char *given, uint32_t access)
{
    struct stat st;
    char *path = r->count < r->capacity || grow(r) ? strdup(given) : NULL;
    if (!path) {
        r->incomplete = true;
        return;
    }
    if (stat(path, &st) != 0) {
        char *slash = strrchr(path, '/');
        if (slash)
            slash[slash == path] = 0;
        else
            strcpy(path, *path ? "." : "");
    }
    r->rule[r->count++] = (struct sandbox_rule){path, access};
}

/* Some file systems do not say what an entry of a directory is. */
static bool is_link(DIR *d, const struct dirent *e)
{
    struct stat st;
    if (e->d_type != DT_UNKNOWN)
        return e->d_type == DT_LNK;
    return fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode);
}

/* Files of a Hugging Face directory may be links to a cache: a rule for each, because the cache has
 * other models, too. */
static void add_targets(struct rules *r, const char *dir)
{
    char path[PATH_MAX], target[PATH_MAX];
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));)
        if (is_link(d, e) &&
            snprintf(path, sizeof path, "%s/%s", dir, e->d_name) < (int)sizeof path &&
            realpath(path, target))
            add(r, target, SANDBOX_READ);
    if (d)
        closedir(d);
}

/* Of the model, and of the directory in it whose files are read. */
static void add_links(struct rules *r, const char *model)
{
    char path[PATH_MAX];
    add_targets(r, model);
    if (snprintf(path, sizeof path, "%s/" HF_NAMED_TEMPLATES, model) < (int)sizeof path)
        add_targets(r, path);
}

/* All files of a split model. Each may be a link. */
static void add_parts(struct rules *r, const char *model)
{
    char path[PATH_MAX], target[PATH_MAX];
    uint32_t number, count;
    if (!gguf_real_path(model, path) || !gguf_part_name(path, &number, &count))
        return;
    for (uint32_t i = 1; i <= count && i <= MODEL_PARTS_MAX; i++) {
        gguf_set_part(path, i);
        if (realpath(path, target))
            add(r, target, SANDBOX_READ);
    }
}

static void add_list(struct rules *r, const char *list)
{
    char one[PATH_MAX];
    for (; list; list = strchr(list, ',') ? strchr(list, ',') + 1 : NULL) {
        snprintf(one, sizeof one, "%.*s", (int)strcspn(list, ","), list);
        add(r, one, SANDBOX_WRITE);
        char *slash = strrchr(one, '/'); /* it is made again if it is a file */
        if (slash && slash > one)
            *slash = 0;
        else
            strcpy(one, slash ? "/" : ".");
        struct stat st;
        if (stat(one, &st) == 0)
            add(r, one, SANDBOX_WRITE);
    }
}

/* The tables of a plan: files in its directory (lib/plan). */
static void add_plan(struct rules *r, const char *plan)
{
    char dir[PATH_MAX], path[PATH_MAX];
    const char *slash = strrchr(plan, '/'), *name = slash ? slash + 1 : plan;
    snprintf(dir, sizeof dir, "%.*s", (int)(slash ? name - plan : 1), slash ? plan : ".");
    add(r, plan, SANDBOX_READ);
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));)
        if (strncmp(e->d_name, name, strlen(name)) == 0 && strstr(e->d_name, ".tables") &&
            snprintf(path, sizeof path, "%s/%s", dir, e->d_name) < (int)sizeof path)
            add(r, path, SANDBOX_READ);
    if (d)
        closedir(d);
}

static void rules_make(struct rules *r, const struct pack_options *o)
{
    add(r, "/dev/null", SANDBOX_WRITE);
    add(r, "/sys/devices/system/cpu", SANDBOX_READ); /* the C library counts CPUs there */
    if (o->check) {                                  /* the stripes may be anywhere */
        add(r, "/", SANDBOX_READ);
        return;
    }
    add(r, o->model, SANDBOX_READ);
    add_parts(r, o->model);
    add_links(r, o->model);
    if (o->plan)
        add_plan(r, o->plan);
    add(r, o->dir, SANDBOX_WRITE);
    add_list(r, o->stripes);
    add_list(r, o->mirrors);
}

static void report(const char *text, void *arg)
{
    ssize_t n = write(STDERR_FILENO, "sluice pack: ", 13);
    (void)arg;
    n = write(STDERR_FILENO, text, strlen(text));
    n = write(STDERR_FILENO, "\n", 1);
    (void)n;
}

int pack_confine(const struct pack_options *o, struct error *error)
{
    struct rules r = {0};
    uint32_t parts = 0;
    tzset();
    json_object_seed(0); /* both read a file at their first use */
    rules_make(&r, o);
    int status = r.incomplete ? error_set(error, ERR_NO_MEMORY, "out of memory (sandbox)")
                              : sandbox_files(r.rule, r.count, &parts, error);
    if (status == 0)
        status = sandbox_calls(SANDBOX_PACK, report, NULL, &parts, error);
    for (size_t i = 0; i < r.count; i++)
        free((char *)(uintptr_t)r.rule[i].path);
    free(r.rule);
    return status;
}
