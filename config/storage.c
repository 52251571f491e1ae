/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the parameter `devices` item by item: a path, then KEY=VALUE pairs that are checked by the
 * rows of STORAGE_PARAMS. */
#include "config/storage.h"

#include <inttypes.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"

#define KEY_MIRROR          "mirror"
#define KEY_CACHE           "cache" /* of the parameter device_cache */
#define READ_MIN_BYTES      (256 * KIB)
#define FLIGHT_TARGET_BYTES (8 * MIB) /* more in flight does not increase bandwidth */

/* An option of an item: ":KEY=VALUE". */
struct option {
    char key[32];
    const char *value;
    size_t value_bytes;
};

static const char *const keys[] = {
#define X(name) #name,
    STORAGE_PARAMS(X)
#undef X
        KEY_CACHE,
    KEY_MIRROR};

#define X(name) #name ", "
static const char key_list[] = STORAGE_PARAMS(X) KEY_CACHE ", " KEY_MIRROR;
#undef X

uint32_t storage_count(const struct params *p)
{
    uint32_t count = p->devices[0] != 0;
    for (const char *c = p->devices; *c; c++)
        count += *c == ',';
    return count;
}

/* Offset of the first option (":key=") in text; `bytes` when there is none. Other colons are part
 * of the path. */
static size_t option_at(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] != ':')
            continue;
        size_t key_bytes = strspn(text + i + 1, "abcdefghijklmnopqrstuvwxyz_-");
        if (key_bytes > 0 && i + 1 + key_bytes < bytes && text[i + 1 + key_bytes] == '=')
            return i;
    }
    return bytes;
}

static bool key_known(const char *key)
{
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        if (strcmp(keys[i], key) == 0)
            return true;
    return false;
}

static int copy_path(char to[STORAGE_PATH_BYTES], const char *from, size_t bytes, uint32_t number,
                     struct error *error)
{
    if (bytes >= STORAGE_PATH_BYTES)
        return error_set(error, ERR_BAD_INPUT,
                         "--devices: the path of device %" PRIu32 " is longer than %d bytes",
                         number, STORAGE_PATH_BYTES - 1);
    memcpy(to, from, bytes);
    to[bytes] = 0;
    return 0;
}

static int apply(const struct option *o, uint32_t number, struct params *own,
                 struct storage_paths *paths, struct error *error)
{
    char value[PARAM_TEXT_BYTES];
    struct error why;
    if (!key_known(o->key))
        return error_set(error, ERR_BAD_INPUT,
                         "--devices: device %" PRIu32 ": unknown key '%s'; expected one of: %s",
                         number, o->key, key_list);
    if (strcmp(o->key, KEY_MIRROR) == 0)
        return paths ? copy_path(paths->mirror, o->value, o->value_bytes, number, error) : 0;
    sl_assert(o->value_bytes < sizeof value); /* a piece of a parameter */
    memcpy(value, o->value, o->value_bytes);
    value[o->value_bytes] = 0;
    const char *name = strcmp(o->key, KEY_CACHE) == 0 ? "device_cache" : o->key;
    if (own && params_set(own, name, value, &why) != 0)
        return error_set(error, ERR_BAD_INPUT, "--devices: device %" PRIu32 ": %.300s", number,
                         why.text);
    return 0;
}

static int take_item(const char *item, size_t bytes, uint32_t number, struct params *own,
                     struct storage_paths *paths, struct error *error)
{
    size_t at = option_at(item, bytes);
    if (paths && copy_path(paths->path, item, at, number, error) != 0)
        return -1;
    while (at < bytes) {
        struct option o = {.key = ""};
        size_t key = at + 1, equals = key + strcspn(item + key, "=");
        if (equals - key < sizeof o.key)
            memcpy(o.key, item + key, equals - key);
        o.value = item + equals + 1;
        o.value_bytes = option_at(o.value, bytes - (equals + 1));
        if (apply(&o, number, own, paths, error) != 0)
            return -1;
        at = equals + 1 + o.value_bytes;
    }
    return 0;
}

int storage_take(const struct params *p, uint32_t number, struct params *own,
                 struct storage_paths *paths, struct error *error)
{
    if (own && own != p)
        *own = *p;
    if (paths)
        paths->path[0] = paths->mirror[0] = 0;
    if (number >= storage_count(p))
        return 0;
    const char *item = p->devices;
    for (uint32_t i = 0; i < number; i++)
        item += strcspn(item, ",") + 1;
    return take_item(item, strcspn(item, ","), number, own, paths, error);
}

int storage_cache(const struct params *own, char directory[STORAGE_PATH_BYTES], uint64_t *bytes,
                  struct error *error)
{
    const char *text = own->device_cache, *size = strrchr(text, ':');
    directory[0] = 0;
    *bytes = 0;
    if (!*text)
        return 0;
    if (!size || size == text || !bytes_parse(size + 1, bytes))
        return error_set(error, ERR_BAD_INPUT,
                         "a cache is DIR:SIZE, such as /ssd/cache:200GiB, not '%.200s'", text);
    memcpy(directory, text, (size_t)(size - text));
    directory[size - text] = 0;
    return 0;
}

/* A read is never larger than an expert; the lower bound keeps dense tensors from being read in
 * pieces as small as a small expert. */
uint64_t storage_read_bytes(const struct params *own, uint64_t expert_bytes)
{
    uint64_t max =
        expert_bytes > READ_MIN_BYTES ? align_up(expert_bytes, PAGE_BYTES) : READ_MIN_BYTES;
    uint64_t chunk = align_down(own->io_size, PAGE_BYTES);
    return chunk < max ? chunk : max;
}

uint64_t storage_flight_bytes(const struct params *own, uint64_t expert_bytes)
{
    uint64_t one = storage_read_bytes(own, expert_bytes), all = own->queue_depth * one;
    uint64_t max = one > FLIGHT_TARGET_BYTES ? one : FLIGHT_TARGET_BYTES;
    return all < max ? all : max;
}
