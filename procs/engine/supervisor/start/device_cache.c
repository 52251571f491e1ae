/* SPDX-License-Identifier: Apache-2.0 */
/* The files in front of servers (the parameter device_cache): checks what was given, names the
 * model that their bytes belong to, and makes the files, because loaders may write these and no
 * others. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "lib/base/log.h"
#include "lib/file/skeleton.h"
#include "procs/engine/child/run_cache.h"
#include "procs/engine/child/run_storage.h"
#include "procs/engine/supervisor/start/start.h"
#include "procs/engine/supervisor/supervisor.h"

_Static_assert(sizeof(XXH128_canonical_t) == sizeof(((struct supervisor *)0)->model_identity) &&
                   sizeof(XXH128_canonical_t) == sizeof(((struct procs_head *)0)->model_identity),
               "one identity");

static bool cache_of(const struct supervisor *s, uint32_t loader, struct run_cache *cache)
{
    return run_cache(&s->params, s->model, s->options.model, s->model_identity, loader, cache);
}

static int check_shape(const struct run_cache *c, uint32_t loader, struct error *error)
{
    char size[32], least[32];
    struct stat st;
    if (stat(c->directory, &st) != 0)
        return error_set_errno(error, ERR_BAD_INPUT, errno,
                               "loader.%" PRIu32 ": the directory of the cache, %.200s", loader,
                               c->directory);
    if (!S_ISDIR(st.st_mode))
        return error_set(error, ERR_BAD_INPUT,
                         "loader.%" PRIu32 ": the cache: %.200s is not a directory", loader,
                         c->directory);
    if (c->slots == 0)
        return error_set(error, ERR_BAD_INPUT,
                         "loader.%" PRIu32 ": a cache of %s has no room for an expert; give at "
                         "least %s",
                         loader, bytes_format(c->bytes, size),
                         bytes_format(PAGE_BYTES + c->slot_bytes, least));
    return 0;
}

/* One that was given for this device; false: for all of them, or none. */
static bool own_cache(struct supervisor *s, uint32_t loader)
{
    const char *given = storage_params(s, loader)->device_cache;
    return *given && strcmp(given, s->params.device_cache) != 0;
}

int device_cache_check(struct supervisor *s, struct error *error)
{
    uint32_t used = 0;
    for (uint32_t loader = 0; loader < s->params.loaders; loader++) {
        struct run_cache cache;
        char directory[STORAGE_PATH_BYTES];
        uint64_t bytes;
        if (storage_cache(storage_params(s, loader), directory, &bytes, error) != 0)
            return -1;
        if (cache_of(s, loader, &cache)) {
            used++;
            if (check_shape(&cache, loader, error) != 0)
                return -1;
            s->device_cache_bytes[loader] = run_cache_memory(&cache, s->model);
        } else if (cache.idle) {
            used++;
        } else if (own_cache(s, loader)) {
            return error_set(error, ERR_BAD_INPUT,
                             "--devices: device %" PRIu32 " has a cache, but its first copy is a "
                             "local file: a cache is for servers",
                             loader);
        }
    }
    if (used == 0 && s->params.device_cache[0])
        return error_set(error, ERR_BAD_INPUT,
                         "--device-cache: no device is a server (see --devices and -m URL)");
    return 0;
}

/* Of a model on a server, the skeleton has no experts: its directory names the bytes of the server
 * (procs/engine/fetch). */
static const char *remote_identity(const struct supervisor *s)
{
    return run_remote(&s->params) ? skeleton_identity(s->options.model) : NULL;
}

/* The index has where each expert is, and the checksums of a store. */
static int identify(struct supervisor *s, struct error *error)
{
    const struct model_index *m = s->model;
    uint8_t hash[WARM_HASH_BYTES];
    const char *remote = remote_identity(s);
    if (warm_hash_model(s, hash, error) != 0)
        return -1;
    XXH3_state_t *state = XXH3_createState();
    if (!state)
        return error_set(error, ERR_NO_MEMORY, "out of memory (cache)");
    XXH3_128bits_reset(state);
    XXH3_128bits_update(state, hash, sizeof hash);
    if (remote)
        XXH3_128bits_update(state, remote, SKELETON_IDENTITY_CHARS);
    XXH3_128bits_update(state, model_index_entries(m), m->entry_count * sizeof(struct model_entry));
    XXH3_128bits_update(state, model_index_checksums(m), m->checksum_count * sizeof(uint64_t));
    XXH128_canonicalFromHash((XXH128_canonical_t *)(void *)s->model_identity,
                             XXH3_128bits_digest(state));
    XXH3_freeState(state);
    return 0;
}

/* Never through a link, and no pipe: others may write the directory. -1 with errno. */
static int open_regular(const char *path, int flags)
{
    struct stat st;
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | flags, 0600);
    if (fd < 0 || (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)))
        return fd;
    close(fd);
    errno = EINVAL;
    return -1;
}

void device_cache_empty(struct supervisor *s, uint32_t loader)
{
    struct run_cache cache;
    uint64_t magic = 0;
    if (!cache_of(s, loader, &cache))
        return;
    int fd = open_regular(cache.path, 0);
    if (fd < 0)
        return;
    if (pread(fd, &magic, sizeof magic, 0) == sizeof magic && magic == RUN_CACHE_MAGIC &&
        ftruncate(fd, 0) != 0)
        log_warn("the cache %s: %s", cache.path, strerror(errno));
    close(fd);
}

void device_cache_make(struct supervisor *s)
{
    struct error error;
    bool known = false;
    for (uint32_t loader = 0; loader < s->params.loaders; loader++) {
        struct run_cache cache;
        if (!cache_of(s, loader, &cache))
            continue;
        if (!known && identify(s, &error) != 0) {
            log_warn("no cache: %s", error.text);
            memset(s->model_identity, 0, sizeof s->model_identity);
            return;
        }
        known = true;
        (void)cache_of(s, loader, &cache); /* its path has the identity */
        int fd = open_regular(cache.path, O_CREAT);
        if (fd < 0) /* the loader runs without it, and says so, too */
            log_warn("the cache %s: %s", cache.path, strerror(errno));
        else
            close(fd);
    }
}
