/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of librados that the backend calls, on objects in memory. */
#include "tests/unit/lib/io/server/rados/fake.h"

#include <errno.h>
#include <pthread.h>
#include <rados/librados.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define OBJECTS_MAX  16
#define SETTINGS_MAX 48
#define OPEN_MAX     256

struct object {
    char name[64];
    const char *bytes;
    uint64_t size, version, sizes[4];
    bool has_sizes;
};

enum kind { READ, STAT, ATTRIBUTE };

struct op {
    enum kind kind;
    char object[64], attribute[48];
    char *to;
    uint64_t bytes, offset, *size, version;
    rados_callback_t callback;
    void *arg;
    bool started, cancelled, complete, told;
    int result, references;
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool running;
    pthread_t thread;
    struct object object[OBJECTS_MAX];
    unsigned objects, open, started;
    struct op *op[OPEN_MAX];
    uint64_t version;
    char silent[64];
    bool any_silent;
    int read_error, connect_error;
    const char *monitors;
    char user[64], pool[64];
    char key[SETTINGS_MAX][48], value[SETTINGS_MAX][128];
    unsigned settings;
} fake = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* ---- for tests ------------------------------------------------------------------------------- */

static void lock(void)
{
    pthread_mutex_lock(&fake.lock);
}

static void unlock(void)
{
    pthread_cond_broadcast(&fake.changed);
    pthread_mutex_unlock(&fake.lock);
}

static struct object *find(const char *name)
{
    for (unsigned i = 0; i < fake.objects; i++)
        if (strcmp(fake.object[i].name, name) == 0 && fake.object[i].bytes)
            return &fake.object[i];
    return NULL;
}

void fake_object(const char *name, const void *bytes, uint64_t size, const uint64_t sizes[4])
{
    lock();
    struct object *o = find(name);
    if (!o)
        o = &fake.object[fake.objects++];
    *o = (struct object){
        .bytes = bytes, .size = size, .version = ++fake.version, .has_sizes = sizes != NULL};
    snprintf(o->name, sizeof o->name, "%s", name);
    if (sizes)
        memcpy(o->sizes, sizes, sizeof o->sizes);
    unlock();
}

void fake_silent(const char *name)
{
    lock();
    fake.any_silent = name && !*name;
    snprintf(fake.silent, sizeof fake.silent, "%s", name ? name : "");
    unlock();
}

void fake_errors(int reads, int connecting)
{
    lock();
    fake.read_error = reads;
    fake.connect_error = connecting;
    unlock();
}

void fake_monitors(const char *hosts)
{
    fake.monitors = hosts;
}

const char *fake_user(void)
{
    return fake.user;
}

const char *fake_pool(void)
{
    return fake.pool;
}

const char *fake_setting(const char *key)
{
    const char *found = NULL;
    for (unsigned i = 0; i < fake.settings; i++)
        if (strcmp(fake.key[i], key) == 0)
            found = fake.value[i];
    return found;
}

unsigned fake_started(void)
{
    lock();
    unsigned n = fake.started;
    unlock();
    return n;
}

unsigned fake_open(void)
{
    lock();
    unsigned n = fake.open;
    unlock();
    return n;
}

/* ---- the thread that answers ----------------------------------------------------------------- */

static int attribute_of(const struct op *op, const struct object *o)
{
    static const char *const names[] = {"striper.size", "striper.layout.object_size",
                                        "striper.layout.stripe_unit",
                                        "striper.layout.stripe_count"};
    char text[24];
    for (unsigned i = 0; i < 4 && o->has_sizes; i++)
        if (strcmp(op->attribute, names[i]) == 0) {
            int n = snprintf(text, sizeof text, "%llu", (unsigned long long)o->sizes[i]);
            memcpy(op->to, text, (size_t)n);
            return n;
        }
    return -ENODATA;
}

static int perform(struct op *op)
{
    const struct object *o = find(op->object);
    if (op->cancelled)
        return -ECANCELED;
    if (!o)
        return -ENOENT;
    op->version = o->version;
    if (op->kind == STAT) {
        *op->size = o->size;
        return 0;
    }
    if (op->kind == ATTRIBUTE)
        return attribute_of(op, o);
    if (fake.read_error)
        return -fake.read_error;
    uint64_t left = op->offset < o->size ? o->size - op->offset : 0;
    uint64_t bytes = op->bytes < left ? op->bytes : left;
    memcpy(op->to, o->bytes + op->offset, bytes);
    return (int)bytes;
}

static void drop_reference(struct op *op)
{
    if (--op->references == 0)
        free(op);
}

static void end(unsigned i)
{
    struct op *op = fake.op[i];
    fake.op[i] = fake.op[--fake.open];
    op->result = perform(op);
    op->complete = true;
    pthread_mutex_unlock(&fake.lock);
    if (op->callback)
        op->callback(op, op->arg);
    pthread_mutex_lock(&fake.lock);
    op->told = true;
    drop_reference(op);
    pthread_cond_broadcast(&fake.changed);
}

static bool answered(const struct op *op)
{
    return op->cancelled ||
           !(fake.any_silent || (fake.silent[0] && strcmp(op->object, fake.silent) == 0));
}

static void *answer(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&fake.lock);
    while (fake.running || fake.open > 0) {
        unsigned i = 0;
        while (i < fake.open && !answered(fake.op[i]))
            i++;
        if (i < fake.open)
            end(i);
        else
            pthread_cond_wait(&fake.changed, &fake.lock);
    }
    pthread_mutex_unlock(&fake.lock);
    return NULL;
}

/* ---- the library ----------------------------------------------------------------------------- */

int rados_create2(rados_t *cluster, const char *const name, const char *const user, uint64_t flags)
{
    (void)name, (void)flags;
    lock();
    snprintf(fake.user, sizeof fake.user, "%s", user);
    fake.settings = 0;
    unlock();
    *cluster = &fake;
    return 0;
}

int rados_conf_read_file(rados_t cluster, const char *path)
{
    (void)cluster;
    return path && strstr(path, "missing") ? -ENOENT : 0;
}

int rados_conf_set(rados_t cluster, const char *key, const char *value)
{
    (void)cluster;
    lock();
    snprintf(fake.key[fake.settings], sizeof fake.key[0], "%s", key);
    snprintf(fake.value[fake.settings++], sizeof fake.value[0], "%s", value);
    unlock();
    return 0;
}

int rados_conf_get(rados_t cluster, const char *key, char *to, size_t bytes)
{
    (void)cluster;
    snprintf(to, bytes, "%s", fake.monitors && strcmp(key, "mon_host") == 0 ? fake.monitors : "");
    return 0;
}

int rados_connect(rados_t cluster)
{
    (void)cluster;
    lock();
    int error = fake.connect_error;
    bool start = !error && !fake.running;
    fake.running |= start;
    unlock();
    if (start)
        pthread_create(&fake.thread, NULL, answer, NULL);
    return -error;
}

void rados_shutdown(rados_t cluster)
{
    (void)cluster;
    lock();
    bool running = fake.running;
    fake.running = false;
    unlock();
    if (running)
        pthread_join(fake.thread, NULL);
}

int rados_ioctx_create(rados_t cluster, const char *pool, rados_ioctx_t *io)
{
    (void)cluster;
    snprintf(fake.pool, sizeof fake.pool, "%s", pool);
    *io = &fake;
    return strcmp(pool, "none") == 0 ? -ENOENT : 0;
}

void rados_ioctx_destroy(rados_ioctx_t io)
{
    (void)io;
}

void rados_ioctx_set_namespace(rados_ioctx_t io, const char *space)
{
    (void)io, (void)space;
}

int rados_aio_create_completion2(void *arg, rados_callback_t callback, rados_completion_t *to)
{
    struct op *op = calloc(1, sizeof *op);
    if (!op)
        return -ENOMEM;
    op->callback = callback;
    op->arg = arg;
    op->references = 1;
    *to = op;
    return 0;
}

static int begin(struct op *op, enum kind kind, const char *object)
{
    lock();
    bool room = fake.open < OPEN_MAX;
    if (room) {
        op->kind = kind;
        op->references++;
        snprintf(op->object, sizeof op->object, "%s", object);
        fake.op[fake.open++] = op;
        fake.started++;
    }
    unlock();
    return room ? 0 : -EBUSY;
}

int rados_aio_read(rados_ioctx_t io, const char *object, rados_completion_t done, char *buffer,
                   size_t bytes, uint64_t offset)
{
    struct op *op = done;
    (void)io;
    op->to = buffer;
    op->bytes = bytes;
    op->offset = offset;
    return begin(op, READ, object);
}

int rados_aio_stat(rados_ioctx_t io, const char *object, rados_completion_t done, uint64_t *size,
                   time_t *changed)
{
    struct op *op = done;
    (void)io, (void)changed;
    op->size = size;
    return begin(op, STAT, object);
}

int rados_aio_getxattr(rados_ioctx_t io, const char *object, rados_completion_t done,
                       const char *name, char *buffer, size_t bytes)
{
    struct op *op = done;
    (void)io, (void)bytes;
    op->to = buffer;
    snprintf(op->attribute, sizeof op->attribute, "%s", name);
    return begin(op, ATTRIBUTE, object);
}

int rados_aio_is_complete(rados_completion_t done)
{
    struct op *op = done;
    lock();
    int complete = op->complete;
    unlock();
    return complete;
}

int rados_aio_wait_for_complete(rados_completion_t done)
{
    struct op *op = done;
    pthread_mutex_lock(&fake.lock);
    while (!op->told)
        pthread_cond_wait(&fake.changed, &fake.lock);
    pthread_mutex_unlock(&fake.lock);
    return 0;
}

int rados_aio_wait_for_complete_and_cb(rados_completion_t done)
{
    return rados_aio_wait_for_complete(done);
}

int rados_aio_get_return_value(rados_completion_t done)
{
    return ((struct op *)done)->result;
}

uint64_t rados_aio_get_version(rados_completion_t done)
{
    return ((struct op *)done)->version;
}

int rados_aio_cancel(rados_ioctx_t io, rados_completion_t done)
{
    (void)io;
    lock();
    ((struct op *)done)->cancelled = true;
    unlock();
    return 0;
}

void rados_aio_release(rados_completion_t done)
{
    lock();
    drop_reference(done);
    unlock();
}
