/* SPDX-License-Identifier: Apache-2.0 */
/* sluice-push-MODULE [--probe] URL DIRECTORY: sends the store in DIRECTORY to a server, below URL.
 * `sluice pack -o URL` starts it: with --probe before it packs, to see that the server can be asked
 * and has no other store there, and then without it. A program of its own, so that pack needs none
 * of the libraries, and what a server answers meets this sandbox only.
 *
 *   store.c   order of the files     journal.c  what was sent, for a run that continues
 *   web.c     web servers and S3     rados.c    Ceph clusters            request.c  HTTP
 *   meter.c   progress and rate      watch.c    how long a request may be silent
 *
 * Memory     some MiB; 16 MiB of buffers for Ceph.
 * Trust      answers of the server are untrusted: numbers, an ETag and an UploadId are taken.
 * On its crash, or a kill at any moment, the server has no manifest; the next run continues. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "config/option_table.h"
#include "lib/base/log.h"
#include "lib/io/server/address.h"
#include "lib/model/store/store.h"
#include "lib/sandbox/sandbox.h"
#include "procs/tools/push/push.h"
#include "procs/tools/push/status.h"

#define TRIES       8 /* about 16 s */
#define TRIES_PROBE 3
#define RULES       9 /* without those of authorities */

struct program {
    bool probe;
    const char *base;
    struct push push;
};

static const struct option_row rows[] = {
    {0, "probe", NULL, OPTION_FLAG(struct program, probe), NULL},
    {0, "quiet", NULL, OPTION_FLAG(struct program, push.quiet), NULL},
    {0, "rate", "SIZE", OPTION_BYTES(struct program, push.rate), NULL},
    {0, "part", "SIZE", OPTION_BYTES(struct program, push.part_bytes), NULL},
};

static const struct option_table options = {
    .command = "push",
    .before = "usage: sluice-push-MODULE [--probe] URL DIRECTORY\n"
              "\n"
              "Sends an expert store to a server. `sluice pack -o URL` runs it.\n"
              "\n",
    OPTION_ROWS(rows),
    .column = 19,
    .after = "",
};

static int options_take(struct program *p, int argc, char **argv, struct error *error)
{
    struct push *push = &p->push;
    if (options_read(&options, p, argc, argv, error) != 0)
        return -1;
    if (optind + 2 != argc || push->part_bytes == 0)
        return error_set(error, ERR_BAD_INPUT, "expected a URL and a directory");
    push->tries = p->probe ? TRIES_PROBE : TRIES;
    p->base = argv[optind];
    push->directory = argv[optind + 1];
    push->dir_fd = open(push->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (push->dir_fd < 0)
        return error_set_errno(error, ERR_BAD_INPUT, errno, "cannot open %.250s", push->directory);
    return io_url_below(p->base, STORE_MANIFEST_FILE, push->given, error) != 0
               ? -1
               : io_address_complete(push->given, push->url, error);
}

/* "": that of no file. */
static void directory_of(const char *path, char to[PATH_MAX])
{
    const char *slash = strrchr(path, '/');
    if (slash)
        snprintf(to, PATH_MAX, "%.*s", slash == path ? 1 : (int)(slash - path), path);
    else
        snprintf(to, PATH_MAX, "%s", path[0] ? "." : "");
}

/* Before anything is asked of the server. Keys may be replaced by a file that is renamed: it is
 * another one, in the directory of the first or of what a link leads to. */
static int confine(const struct push *p, struct error *error)
{
    struct io_url url;
    char conf[PATH_MAX], keys[PATH_MAX], real[PATH_MAX], target[PATH_MAX] = "";
    uint32_t parts = 0;
    if (io_url_parse(p->url, &url, error) != 0)
        return -1;
    tzset();                      /* reads a file at its first use */
    directory_of(url.conf, conf); /* keyrings are beside it */
    directory_of(url.credentials, keys);
    if (realpath(url.credentials, real))
        directory_of(real, target);
    static const char *const authorities[] = SANDBOX_AUTHORITIES;
    struct sandbox_rule rules[RULES + ARRAY_LEN(authorities)] = {
        {p->directory, SANDBOX_WRITE},  {p->directory, SANDBOX_READ},
        {"/dev/urandom", SANDBOX_READ}, {"/dev/null", SANDBOX_READ},
        {keys, SANDBOX_READ},           {target, SANDBOX_READ},
        {conf, SANDBOX_READ},           {url.certificates, SANDBOX_READ},
        {url.ports, SANDBOX_CONNECT}};
    for (size_t i = 0; i < ARRAY_LEN(authorities); i++)
        rules[RULES + i] = (struct sandbox_rule){authorities[i], SANDBOX_READ};
    return sandbox_files(rules, ARRAY_LEN(rules), &parts, error) != 0
               ? -1
               : sandbox_calls(SANDBOX_PUSH, NULL, NULL, &parts, error);
}

int main(int argc, char **argv)
{
    static struct program program = {
        .push = {.dir_fd = -1, .journal_fd = -1, .part_bytes = PUSH_PART_BYTES}};
    struct error error;
    log_init("push", LOG_LEVEL_INFO);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)signal(SIGPIPE, SIG_IGN); /* libraries of TLS write to connections that are gone */
    int status = options_take(&program, argc, argv, &error);
    if (status == 0)
        status = confine(&program.push, &error);
    if (status == 0)
        status =
            program.probe ? push_probe(&program.push, &error) : push_store(&program.push, &error);
    if (status >= 0)
        return status > 0 ? PUSH_IS_THERE : 0;
    fprintf(stderr, "push: %s\n", error.text);
    return error_exit_status(error.code);
}
