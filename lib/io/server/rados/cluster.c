/* SPDX-License-Identifier: Apache-2.0 */
/* Connects to a Ceph cluster through librados, and reads the layout of a file. */
#include "lib/io/server/rados/cluster.h"

#include <ctype.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"

#define STACK_BYTES (512 * KIB) /* of each thread of the library, as of all threads of an engine */
#define ASK_MS      2           /* between looks at an operation of an attempt */
#define HOSTS_BYTES 4096

/* What the file of the user must not change. A log or an admin socket would be a file of a process
 * that can write none. Times are seconds. One thread for connections receives 2 GB/s. */
static const char *const settings[][2] = {
    {"client_mount_timeout", "3"},
    {"rados_mon_op_timeout", "3"},
    {"rados_osd_op_timeout", "0"},
    {"admin_socket", ""},
    {"log_file", ""},
    {"log_to_file", "false"},
    {"log_to_stderr", "false"},
    {"err_to_stderr", "false"},
    {"log_to_syslog", "false"},
    {"err_to_syslog", "false"},
    {"log_max_recent", "1"},
    {"debug_ms", "0/0"},
    {"debug_objecter", "0/0"},
    {"debug_rados", "0/0"},
    {"debug_monc", "0/0"},
    {"debug_auth", "0/0"},
    {"ms_async_op_threads", "1"},
    {"librados_thread_count", "1"},
    {"objecter_inflight_ops", "1024"},
    {"objecter_inflight_op_bytes", "104857600"},
};

static int failed_because(char why[REMOTE_WHY_BYTES], const char *what, const char *name,
                          const char *reason)
{
    snprintf(why, REMOTE_WHY_BYTES, "%s %.160s: %s", what, name, reason);
    return -1;
}

static int failed(char why[REMOTE_WHY_BYTES], const char *what, const char *name, int error)
{
    return failed_because(why, what, name, strerror(-error));
}

/* ---- the client ------------------------------------------------------------------------------ */

/* Of a monitor, perhaps behind the version of its protocol ("v2:"): a letter, and fewer colons than
 * an IPv6 address has. */
static bool is_name(const char *word)
{
    if (strncmp(word, "v1:", 3) == 0 || strncmp(word, "v2:", 3) == 0)
        word += 3;
    const char *colon = strchr(word, ':');
    if (colon && strchr(colon + 1, ':'))
        return false;
    while (*word && !isalpha((unsigned char)*word))
        word++;
    return *word != 0;
}

/* The library would ask for the addresses of names, which the sandbox forbids. */
static int check_monitors(struct cluster *c, char why[REMOTE_WHY_BYTES])
{
    static const char separators[] = " \t,;[]";
    char hosts[HOSTS_BYTES], *rest = NULL;
    if (rados_conf_get(c->rados, "mon_host", hosts, sizeof hosts) < 0)
        return 0;
    for (char *word = strtok_r(hosts, separators, &rest); word;
         word = strtok_r(NULL, separators, &rest))
        if (is_name(word)) {
            snprintf(why, REMOTE_WHY_BYTES,
                     "ceph.conf must have the addresses of monitors, not names (%.120s)", word);
            return -1;
        }
    return 0;
}

static int configure(struct cluster *c, const struct io_url *url, char why[REMOTE_WHY_BYTES])
{
    int rc = rados_conf_read_file(c->rados, url->conf[0] ? url->conf : NULL);
    if (rc < 0)
        return failed(why, "cannot read", url->conf[0] ? url->conf : "ceph.conf", rc);
    for (size_t i = 0; i < ARRAY_LEN(settings); i++)
        (void)rados_conf_set(c->rados, settings[i][0], settings[i][1]); /* not in every version */
    if (url->credentials[0] && (rc = rados_conf_set(c->rados, "keyring", url->credentials)) < 0)
        return failed(why, "cannot use", url->credentials, rc);
    return check_monitors(c, why);
}

/* Else they may be in sections of their own, which few files have. */
static bool has_monitors(struct cluster *c)
{
    char hosts[HOSTS_BYTES];
    return rados_conf_get(c->rados, "mon_host", hosts, sizeof hosts) < 0 || hosts[0];
}

/* Else they have as much as the first thread, which needs 1 MiB when the library is loaded. */
static void limit_stacks(void)
{
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_setattr_default_np(&attributes);
    pthread_attr_destroy(&attributes);
}

static int connect_client(struct cluster *c, const struct io_url *url, char why[REMOTE_WHY_BYTES])
{
    char user[IO_URL_TEXT_BYTES + 8];
    snprintf(user, sizeof user, "client.%s", url->user[0] ? url->user : "admin");
    limit_stacks();
    int rc = rados_create2(&c->rados, "ceph", user, 0);
    if (rc < 0) {
        c->rados = NULL;
        return failed(why, "no client", user, rc);
    }
    if (configure(c, url, why) != 0)
        return -1;
    rc = rados_connect(c->rados);
    if (rc < 0)
        return failed(why,
                      has_monitors(c) ? "no connection as"
                                      : "ceph.conf has no `mon host`: no connection as",
                      user, rc);
    rc = rados_ioctx_create(c->rados, url->pool, &c->pool);
    if (rc < 0) {
        c->pool = NULL;
        return failed(why, "the pool", url->pool, rc);
    }
    rados_ioctx_set_namespace(c->pool, url->space);
    return 0;
}

void cluster_close(struct cluster *c)
{
    if (c->pool)
        rados_ioctx_destroy(c->pool);
    if (c->rados)
        rados_shutdown(c->rados);
    c->pool = NULL;
    c->rados = NULL;
}

int cluster_connect(struct cluster *c, const struct io_url *url, char why[REMOTE_WHY_BYTES])
{
    if (c->rados || connect_client(c, url, why) == 0)
        return 0;
    cluster_close(c);
    return -1;
}

/* ---- the file -------------------------------------------------------------------------------- */

int cluster_await(struct cluster *c, rados_completion_t done, uint64_t until_ns)
{
    while (!rados_aio_is_complete(done) && clock_now_ns() < until_ns)
        (void)poll(NULL, 0, ASK_MS);
    if (!rados_aio_is_complete(done))
        (void)rados_aio_cancel(c->pool, done);
    (void)rados_aio_wait_for_complete(done);
    int rc = rados_aio_get_return_value(done);
    return rc == -ECANCELED ? -ETIMEDOUT : rc;
}

rados_completion_t cluster_completion(void)
{
    rados_completion_t done = NULL;
    int rc = rados_aio_create_completion2(NULL, NULL, &done);
    sl_assert(rc == 0);
    return done;
}

/* One attribute of an object. Bytes, or -errno. */
static int attribute(struct cluster *c, const char *object, const char *name,
                     char value[LAYOUT_VALUE_BYTES], uint64_t until_ns)
{
    rados_completion_t done = cluster_completion();
    int rc = rados_aio_getxattr(c->pool, object, done, name, value, LAYOUT_VALUE_BYTES - 1);
    if (rc == 0)
        rc = cluster_await(c, done, until_ns);
    if (rc >= 0)
        value[rc] = 0;
    rados_aio_release(done);
    return rc;
}

int cluster_stat(struct cluster *c, const char *object, uint64_t *size, uint64_t *version,
                 uint64_t until_ns)
{
    rados_completion_t done = cluster_completion();
    time_t changed;
    int rc = rados_aio_stat(c->pool, object, done, size, &changed);
    if (rc == 0)
        rc = cluster_await(c, done, until_ns);
    *version = rc < 0 ? 0 : rados_aio_get_version(done);
    rados_aio_release(done);
    return rc;
}

/* Every reader with libradosstriper locks the first object, which is a write and changes its
 * version. So the version is that of the second one, which only those who write the file change;
 * without a second one, only size and layout are known. */
static int identify_striped(struct cluster *c, const char *name, const struct layout *l,
                            uint64_t *identity, uint64_t until_ns)
{
    char second[LAYOUT_NAME_BYTES], text[128];
    uint64_t size, version;
    layout_object(l, name, 1, second);
    int rc = cluster_stat(c, second, &size, &version, until_ns);
    if (rc < 0 && rc != -ENOENT)
        return rc;
    snprintf(text, sizeof text, "%llu %llu %llu %llu %llu", (unsigned long long)l->size,
             (unsigned long long)l->object_size, (unsigned long long)l->stripe_unit,
             (unsigned long long)l->stripe_count, (unsigned long long)version);
    *identity = remote_hash(text);
    return 0;
}

/* -ENOENT: there is none. -EBADMSG: *wrong says what is wrong with it. */
static int look_at_striped(struct cluster *c, const char *name, const char *first,
                           struct layout *layout, uint64_t *identity, const char **wrong,
                           uint64_t until_ns)
{
    char value[LAYOUT_ATTRIBUTES][LAYOUT_VALUE_BYTES];
    int rc = 0;
    for (size_t i = 0; i < LAYOUT_ATTRIBUTES && rc >= 0; i++)
        rc = attribute(c, first, layout_attributes[i], value[i], until_ns);
    if (rc < 0)
        return rc;
    *wrong = layout_take(layout, value);
    if (*wrong)
        return -EBADMSG;
    return identify_striped(c, name, layout, identity, until_ns);
}

int cluster_look(struct cluster *c, const char *name, uint64_t until_ns, char why[REMOTE_WHY_BYTES])
{
    struct layout layout = {.striped = true};
    uint64_t identity;
    const char *wrong = NULL;
    char first[LAYOUT_NAME_BYTES];
    layout_object(&layout, name, 0, first);
    int rc = look_at_striped(c, name, first, &layout, &identity, &wrong, until_ns);
    if (rc == -ENOENT) {
        layout = (struct layout){.striped = false};
        rc = cluster_stat(c, name, &layout.size, &identity, until_ns);
    }
    if (rc < 0) {
        failed_because(why, "the object", layout.striped ? first : name,
                       wrong ? wrong : strerror(-rc));
        return rc;
    }
    c->identity = identity;
    c->layout = layout;
    return 0;
}

static int probe(struct cluster *c, const char *name, uint64_t object, uint64_t until_ns,
                 char why[REMOTE_WHY_BYTES])
{
    char oid[LAYOUT_NAME_BYTES], byte;
    layout_object(&c->layout, name, object, oid);
    rados_completion_t done = cluster_completion();
    int rc = rados_aio_read(c->pool, oid, done, &byte, 1, 0);
    if (rc == 0)
        rc = cluster_await(c, done, until_ns);
    rados_aio_release(done);
    /* What it says is for the read that it is needed for. */
    return rc == -ETIMEDOUT ? failed(why, "the object", oid, rc) : 0;
}

int cluster_attempt(struct cluster *c, const struct io_url *url, uint64_t object,
                    char why[REMOTE_WHY_BYTES])
{
    if (cluster_connect(c, url, why) != 0)
        return -1;
    uint64_t until = clock_now_ns() + REMOTE_ATTEMPT_NS;
    int rc = cluster_look(c, url->name, until, why);
    if (rc != 0 && rc != -ETIMEDOUT)
        cluster_close(c); /* the next attempt reads keys again, and is another client */
    if (rc != 0)
        return -1;
    return object > 0 ? probe(c, url->name, object, until, why) : 0;
}
