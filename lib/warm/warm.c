/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and writes the file of a model's most used experts, and adds the experts of a run to it. */
#include "lib/warm/warm.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "lib/base/assert.h"
#include "lib/file/replace.h"

#define SHARE_ALL 65535

/* ---- the file -------------------------------------------------------------------------------- */

static int check_uses(const struct warm_list *list, const struct warm_model *model,
                      struct error *error)
{
    for (uint32_t i = 0; i < list->count; i++) {
        const struct warm_use *u = &list->use[i];
        if (u->layer >= model->layers || u->expert >= model->experts)
            return error_set(error, ERR_BAD_INPUT, "expert %u of layer %u does not exist",
                             u->expert, u->layer);
        if (i > 0 && u->share > list->use[i - 1].share)
            return error_set(error, ERR_BAD_INPUT, "not ordered by share");
    }
    return 0;
}

int warm_parse(const void *bytes, size_t size, const struct warm_model *model,
               struct warm_list *list, struct error *error)
{
    struct warm_header h;
    list->count = 0;
    if (size < sizeof h)
        return error_set(error, ERR_BAD_INPUT, "cut off");
    memcpy(&h, bytes, sizeof h);
    if (h.magic != WARM_MAGIC)
        return error_set(error, ERR_BAD_INPUT, "not a list of used experts");
    if (memcmp(h.hash, model->hash, sizeof h.hash) != 0 || h.layers != model->layers ||
        h.experts != model->experts)
        return error_set(error, ERR_BAD_INPUT, "of another model");
    const char *uses = (const char *)bytes + sizeof h;
    if (h.count > WARM_USES_MAX || size - sizeof h != h.count * sizeof list->use[0] ||
        h.checksum != XXH3_64bits(uses, size - sizeof h))
        return error_set(error, ERR_BAD_INPUT, "damaged");
    memcpy(list->use, uses, size - sizeof h);
    list->count = h.count;
    if (check_uses(list, model, error) == 0)
        return 0;
    list->count = 0;
    return -1;
}

size_t warm_format(const struct warm_list *list, const struct warm_model *model, void *bytes)
{
    sl_assert(list->count <= WARM_USES_MAX);
    size_t n = list->count * sizeof list->use[0];
    struct warm_header h = {.magic = WARM_MAGIC,
                            .layers = model->layers,
                            .experts = model->experts,
                            .count = list->count,
                            .checksum = XXH3_64bits(list->use, n)};
    memcpy(h.hash, model->hash, sizeof h.hash);
    memcpy(bytes, &h, sizeof h);
    memcpy((char *)bytes + sizeof h, list->use, n);
    return sizeof h + n;
}

static ssize_t read_all(int fd, char *to, size_t most)
{
    size_t done = 0;
    while (done < most) {
        ssize_t n = read(fd, to + done, most - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        if (n == 0)
            break;
        done += (size_t)n;
    }
    return (ssize_t)done;
}

int warm_read(const char *path, const struct warm_model *model, struct warm_list *list,
              struct error *error)
{
    char bytes[WARM_BYTES_MAX + 1];
    list->count = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT)
        return 0;
    ssize_t n = fd < 0 ? -1 : read_all(fd, bytes, sizeof bytes);
    int why = errno;
    if (fd >= 0)
        close(fd);
    if (n < 0)
        return error_set_errno(error, ERR_IO, why, "cannot read %.200s", path);
    struct error of_bytes;
    if (warm_parse(bytes, (size_t)n, model, list, &of_bytes) == 0)
        return 0;
    return error_set(error, of_bytes.code, "%.200s: %.100s", path, of_bytes.text);
}

static bool write_all(int fd, const char *from, size_t count)
{
    for (size_t done = 0; done < count;) {
        ssize_t n = write(fd, from + done, count - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        done += (size_t)n;
    }
    return true;
}

int warm_write(const char *path, const struct warm_model *model, const struct warm_list *list,
               struct error *error)
{
    char bytes[WARM_BYTES_MAX], temporary[PATH_MAX];
    size_t n = warm_format(list, model, bytes);
    if (snprintf(temporary, sizeof temporary, "%s.%d", path, (int)getpid()) >=
        (int)sizeof temporary)
        return error_set(error, ERR_BAD_INPUT, "%.200s: the path is too long", path);
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    bool good = fd >= 0 && write_all(fd, bytes, n);
    int why = good ? 0 : errno;
    if (fd >= 0 && close(fd) != 0 && good)
        why = errno;
    if (why == 0)
        why = file_replace(temporary, path, true);
    if (why == 0)
        return 0;
    if (fd >= 0)
        unlink(temporary);
    return error_set_errno(error, ERR_IO, why, "cannot write %.200s", path);
}

/* ---- shares ---------------------------------------------------------------------------------- */

static int by_share(const void *a, const void *b)
{
    const struct warm_use *x = a, *y = b;
    if (x->share != y->share)
        return x->share < y->share ? 1 : -1;
    if (x->layer != y->layer)
        return x->layer < y->layer ? -1 : 1;
    return (x->expert > y->expert) - (x->expert < y->expert);
}

/* Share of a run's tokens that accessed each expert, if its accesses are those of tokens. */
static double run_share(uint32_t accesses, double tokens)
{
    double share = accesses / tokens;
    return share < 1 ? share : 1;
}

/* Tokens of a run. Layers without an access have no experts. */
static double tokens_of(const struct warm_model *model, const uint32_t *accesses)
{
    double total = 0;
    uint32_t layers = 0;
    for (uint32_t l = 0; l < model->layers; l++) {
        double before = total;
        for (uint32_t e = 0; e < model->experts; e++)
            total += accesses[(size_t)l * model->experts + e];
        layers += total > before;
    }
    return total > 0 ? total / ((double)layers * model->top_k) : 0;
}

int warm_add(struct warm_list *list, const struct warm_model *model, const uint32_t *accesses,
             struct error *error)
{
    size_t cells = (size_t)model->layers * model->experts, kept = 0;
    double tokens = tokens_of(model, accesses);
    if (tokens <= 0)
        return 0;
    struct warm_use *all = calloc(cells, sizeof *all);
    double *before = calloc(cells, sizeof *before);
    if (!all || !before) {
        free(all);
        free(before);
        return error_set(error, ERR_NO_MEMORY, "out of memory (warm start)");
    }
    for (uint32_t i = 0; i < list->count; i++)
        before[(size_t)list->use[i].layer * model->experts + list->use[i].expert] =
            list->use[i].share / (double)SHARE_ALL;
    double weight = list->count > 0 ? tokens / (tokens + WARM_PRIOR_TOKENS) : 1;
    for (size_t i = 0; i < cells; i++) {
        double share = weight * run_share(accesses[i], tokens) + (1 - weight) * before[i];
        uint16_t rounded = (uint16_t)(share * SHARE_ALL + 0.5);
        if (rounded > 0)
            all[kept++] = (struct warm_use){.layer = (uint16_t)(i / model->experts),
                                            .expert = (uint16_t)(i % model->experts),
                                            .share = rounded};
    }
    qsort(all, kept, sizeof *all, by_share);
    list->count = (uint32_t)(kept < WARM_USES_MAX ? kept : WARM_USES_MAX);
    memcpy(list->use, all, list->count * sizeof *all);
    free(all);
    free(before);
    return 0;
}

/* ---- the directory --------------------------------------------------------------------------- */

/* Appends a name to the path. It must be a directory of this user, and if it is ours, one that no
 * other may write; it is made if it is not there. */
static int descend(char *path, size_t bytes, const char *name, bool ours, struct error *error)
{
    struct stat st;
    size_t n = strlen(path);
    if (n + strlen(name) >= bytes)
        return error_set(error, ERR_BAD_INPUT, "the path of the cache directory is too long");
    memcpy(path + n, name, strlen(name) + 1);
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return error_set_errno(error, ERR_IO, errno, "cannot make %.200s", path);
    if ((ours ? lstat(path, &st) : stat(path, &st)) != 0)
        return error_set_errno(error, ERR_IO, errno, "cannot read %.200s", path);
    if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (ours && (st.st_mode & 022) != 0))
        return error_set(error, ERR_BAD_INPUT,
                         "%.200s is not a directory that only this user may write", path);
    return 0;
}

int warm_cache(char *path, size_t path_bytes, struct error *error)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    bool given = cache && cache[0] == '/';
    if (!given && !(home && home[0] == '/'))
        return error_set(error, ERR_BAD_INPUT, "neither XDG_CACHE_HOME nor HOME is set");
    path[0] = 0;
    if (descend(path, path_bytes, given ? cache : home, false, error) != 0 ||
        (!given && descend(path, path_bytes, "/.cache", false, error) != 0))
        return -1;
    return descend(path, path_bytes, "/sluice", true, error);
}

int warm_directory(const uint8_t hash[WARM_HASH_BYTES], char *path, size_t path_bytes,
                   struct error *error)
{
    char name[2 * WARM_HASH_BYTES + 2] = "/";
    for (int i = 0; i < WARM_HASH_BYTES; i++)
        snprintf(name + 1 + 2 * i, 3, "%02x", hash[i]);
    return warm_cache(path, path_bytes, error) == 0 ? descend(path, path_bytes, name, true, error)
                                                    : -1;
}
