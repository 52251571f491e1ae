/* SPDX-License-Identifier: Apache-2.0 */
/* sluice pack -o URL: packs into a directory of this machine, the stage, and then has
 * sluice-push-MODULE send it (procs/tools/push). This process waits for both of them and does
 * nothing else: the one that packs has no network, and the one that sends reads no model.
 *
 * The journal of the pack remains until all is sent, so that the same command continues wherever it
 * was interrupted. A stage that the user did not name goes away at the end. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>

#include "lib/base/bytes.h"
#include "lib/io/server/url.h"
#include "lib/model/store/store.h"
#include "procs/tools/pack/pack.h"
#include "procs/tools/push/status.h"

#define PROGRAM   "sluice-push-%s" /* module of its row in lib/io/backends.tbl.h */
#define STAGE     "sluice-stage-%016" PRIx64
#define SIGNALLED 128 /* as shells say it: 128 and the number of the signal */
#define ARGUMENTS 6

extern char **environ;

int pack_check_url(struct pack_options *o, struct error *error)
{
    static char stage[64];
    struct io_url url;
    char manifest[IO_URL_TEXT_BYTES];
    if (io_url_below(o->url, STORE_MANIFEST_FILE, manifest, error) != 0 ||
        io_url_parse(manifest, &url, error) != 0)
        return -1;
    if (url.backend == IO_NBD)
        return error_set(error, ERR_BAD_INPUT,
                         "%.200s: a network block device has a size and no files: pack into a "
                         "directory and serve that, for example by `nbdkit file dir=DIRECTORY`",
                         o->url);
    if (o->stripes || o->mirrors || o->delta)
        return error_set(error, ERR_BAD_INPUT,
                         "--stripes, --mirrors and --delta: of a store on a server, all files are "
                         "next to its manifest");
    snprintf(stage, sizeof stage, STAGE, (uint64_t)XXH3_64bits(o->url, strlen(o->url)));
    o->dir = o->stage ? o->stage : stage;
    return 0;
}

/* ---- processes ------------------------------------------------------------------------------- */

/* Its exit status. It has printed why. */
static int wait_for(pid_t pid)
{
    int status;
    while (waitpid(pid, &status, 0) != pid)
        if (errno != EINTR)
            return 1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : SIGNALLED + WTERMSIG(status);
}

static int own_path(char path[PATH_MAX], struct error *error)
{
    ssize_t n = readlink("/proc/self/exe", path, PATH_MAX - 1);
    if (n < 0)
        return error_set_errno(error, ERR_FAILED, errno, "cannot read /proc/self/exe");
    path[n] = 0;
    return 0;
}

static int find_program(const struct pack_options *o, char path[PATH_MAX + 64], struct error *error)
{
    struct io_url url;
    char manifest[IO_URL_TEXT_BYTES], own[PATH_MAX];
    if (io_url_below(o->url, STORE_MANIFEST_FILE, manifest, error) != 0 ||
        io_url_parse(manifest, &url, error) != 0 || own_path(own, error) != 0)
        return -1;
    const char *module = io_backend_info(url.backend)->module;
    snprintf(path, PATH_MAX + 64, "%.*s/" PROGRAM, (int)(strrchr(own, '/') - own), own, module);
    return access(path, X_OK) == 0
               ? 0
               : error_set(error, ERR_BAD_INPUT,
                           "%.150s: %.150s is not there; it is in the package sluice-%s, and is "
                           "built where the library of it is installed",
                           o->url, path, module);
}

/* Exit status; -1: *error. */
static int start_and_wait(const char *path, char *const argv[], char *const environment[],
                          struct error *error)
{
    pid_t pid;
    int rc = posix_spawn(&pid, path, NULL, NULL, argv, environment);
    return rc == 0 ? wait_for(pid)
                   : error_set_errno(error, ERR_FAILED, rc, "cannot start %.250s", path);
}

static bool is_secret(const char *variable)
{
    static const char *const secrets[] = {
#define SANDBOX_SECRET(name) name "=",
#include "lib/sandbox/profiles.tbl.h"
    };
    for (size_t i = 0; i < ARRAY_LEN(secrets); i++)
        if (strncmp(variable, secrets[i], strlen(secrets[i])) == 0)
            return true;
    return false;
}

/* The same command with --staged, in a process of its own, which gives up network and files, and
 * does not get the keys of the server. Exit status; -1: *error. */
static int pack_apart(const struct pack_options *o, int argc, char **argv, struct error *error)
{
    char path[PATH_MAX], staged[PATH_MAX + 16];
    size_t variables = 0, kept = 0;
    while (environ[variables])
        variables++;
    char **environment = calloc(variables + 1, sizeof *environment);
    char **arguments = calloc((size_t)argc + 2, sizeof *arguments);
    int rc = environment && arguments ? own_path(path, error)
                                      : error_set(error, ERR_NO_MEMORY, "out of memory (pack)");
    if (rc == 0) {
        snprintf(staged, sizeof staged, "--staged=%s", o->dir);
        for (size_t i = 0; i < variables; i++)
            if (!is_secret(environ[i]))
                environment[kept++] = environ[i];
        arguments[0] = argv[0];
        arguments[1] = staged;
        memcpy(arguments + 2, argv + 1, ((size_t)argc - 1) * sizeof *argv);
        rc = start_and_wait(path, arguments, environment, error);
    }
    free(environment);
    free(arguments);
    return rc;
}

/* Exit status; -1: *error. */
static int push(const struct pack_options *o, bool probe, struct error *error)
{
    char path[PATH_MAX + 64], rate[48], url[IO_URL_TEXT_BYTES], dir[PATH_MAX];
    char probe_flag[] = "--probe", quiet_flag[] = "--quiet";
    char *argv[ARGUMENTS + 1] = {path};
    int n = 1;
    if (find_program(o, path, error) != 0)
        return -1;
    snprintf(url, sizeof url, "%s", o->url);
    snprintf(dir, sizeof dir, "%s", o->dir);
    snprintf(rate, sizeof rate, "--rate=%" PRIu64, o->bytes_per_s);
    if (probe)
        argv[n++] = probe_flag;
    if (o->quiet)
        argv[n++] = quiet_flag;
    if (o->bytes_per_s > 0)
        argv[n++] = rate;
    argv[n++] = url;
    argv[n++] = dir;
    return start_and_wait(path, argv, environ, error);
}

/* ---- the stage ------------------------------------------------------------------------------- */

/* The default one has a name that others can compute: in a directory that all may write, it must
 * not be theirs. *made: this run has made it. */
static int make_stage(const struct pack_options *o, bool *made, struct error *error)
{
    struct stat st;
    *made = mkdir(o->dir, o->stage ? 0777 : 0700) == 0;
    if (*made || (errno == EEXIST && o->stage))
        return 0;
    if (errno != EEXIST || lstat(o->dir, &st) != 0)
        return error_set_errno(error, ERR_BAD_INPUT, errno, "cannot create %.250s", o->dir);
    return S_ISDIR(st.st_mode) && st.st_uid == geteuid()
               ? 0
               : error_set(error, ERR_BAD_INPUT,
                           "%.250s is no directory of this user; name another one (--stage DIR)",
                           o->dir);
}

static bool has(const struct pack_options *o, const char *name)
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/%s", o->dir, name);
    return n > 0 && n < (int)sizeof path && access(path, F_OK) == 0;
}

/* All that a pack and a push make there; a directory with other files remains. A manifest without a
 * journal says that all was sent: so the journal goes first, and the manifest last. */
static void remove_stage(const struct pack_options *o)
{
    char stripe[32], path[PATH_MAX];
    snprintf(stripe, sizeof stripe, STORE_STRIPE_FILE, 0u);
    const char *const names[] = {STORE_JOURNAL_FILE, STORE_ENTRIES_FILE, STORE_MODEL_FILE, stripe,
                                 STORE_MANIFEST_FILE};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        int n = snprintf(path, sizeof path, "%s/%s", o->dir, names[i]);
        if (n > 0 && n < (int)sizeof path)
            (void)unlink(path);
    }
    (void)rmdir(o->dir);
}

static void remove_journal(const struct pack_options *o)
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/" STORE_JOURNAL_FILE, o->dir);
    if (n > 0 && n < (int)sizeof path)
        (void)unlink(path);
}

static int finish(const struct pack_options *o, struct error *error)
{
    char manifest[IO_URL_TEXT_BYTES];
    if (o->stage)
        remove_journal(o);
    else
        remove_stage(o);
    if (io_url_below(o->url, STORE_MANIFEST_FILE, manifest, error) != 0)
        return -1;
    if (!o->json && !o->quiet)
        fprintf(stderr, "sluice run -m '%s' reads it\n", manifest);
    return 0;
}

int pack_publish(const struct pack_options *o, int argc, char **argv, struct error *error)
{
    bool made;
    if (make_stage(o, &made, error) != 0)
        return -1;
    int status = push(o, true, error);
    bool there = status == PUSH_IS_THERE;
    status = there ? 0 : status;
    bool finished = has(o, STORE_MANIFEST_FILE) && !has(o, STORE_JOURNAL_FILE);
    if (status == 0 && o->model && finished) {
        if (there && !o->stage) /* a run was killed while it removed the stage */
            return finish(o, error);
        return error_set(error, ERR_BAD_INPUT,
                         "%.200s has a store already%s; without -m, `sluice pack -o URL --stage "
                         "DIR` sends what the server has not",
                         o->dir, there ? ", which is at the URL, too" : "");
    }
    if (status == 0 && o->model)
        status = pack_apart(o, argc, argv, error);
    if (status == 0)
        status = push(o, false, error);
    if (status == 0)
        return finish(o, error);
    if (made)
        (void)rmdir(o->dir); /* if there is nothing in it */
    return status;
}
