/* SPDX-License-Identifier: Apache-2.0 */
/* sluice-fetch-MODULE --key=URL URL DIRECTORY: makes the skeleton of the model at URL below
 * DIRECTORY, or finds a complete one there, and prints the path of the model.
 * The supervisor starts it before the engine; --key is the URL as the user gave it, the other one
 * has the address of its host in numbers.
 *
 * Memory     some MiB, and the header of the model twice.
 * Trust      what the server sends is untrusted: it is parsed here by the parsers of files, in a
 *            sandbox that leaves this directory, the keys of the server and its port.
 * On its crash, or a kill at any moment, the start fails; the next one continues (place.c). */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "config/option_table.h"
#include "lib/base/log.h"
#include "lib/model/store/store.h"
#include "lib/sandbox/sandbox.h"
#include "procs/engine/fetch/fetch.h"

struct program {
    const char *key, *sandbox;
    struct fetch fetch;
};

static int take_log_format(void *program, const char *value, struct error *error)
{
    enum log_format format;
    (void)program, (void)error;
    if (log_format_parse(value, &format))
        log_set_format(format);
    return 0;
}

static const struct option_row rows[] = {
    {0, "key", "URL", OPTION_TEXT(struct program, key), NULL},
    {0, "sandbox", "MODE", OPTION_TEXT(struct program, sandbox), NULL},
    {0, "log-format", "FORMAT", OPTION_CALL(take_log_format), NULL},
};

static const struct option_table options = {
    .command = "fetch",
    .before = "usage: sluice-fetch-MODULE --key=URL URL DIRECTORY\n"
              "\n"
              "Fetches all of a model on a server but its experts. `sluice run -m URL` runs it.\n"
              "\n",
    OPTION_ROWS(rows),
    .column = 19,
    .after = "",
};

static int options_take(struct program *p, int argc, char **argv, struct error *error)
{
    if (options_read(&options, p, argc, argv, error) != 0)
        return -1;
    if (optind + 2 != argc)
        return error_set(error, ERR_BAD_INPUT, "expected a URL and a directory");
    p->fetch.url = argv[optind];
    p->fetch.directory = argv[optind + 1];
    p->fetch.key = p->key ? p->key : p->fetch.url;
    return 0;
}

/* Keyrings are there, too. "": none. */
static void directory_of(const char *path, char to[IO_URL_TEXT_BYTES])
{
    const char *slash = strrchr(path, '/');
    snprintf(to, IO_URL_TEXT_BYTES, "%.*s", slash ? (int)(slash - path) : 0, path);
}

/* Before the first byte of the server. Keys may be replaced by another file. */
static int confine(const struct program *p, struct error *error)
{
    struct io_url url;
    char text[SANDBOX_TEXT_BYTES], conf[IO_URL_TEXT_BYTES], keys[IO_URL_TEXT_BYTES];
    uint32_t parts = 0;
    if (io_url_parse(p->fetch.url, &url, error) != 0)
        return -1;
    if (strcmp(p->sandbox, "off") == 0)
        return 0;
    tzset(); /* reads a file at its first use */
    directory_of(url.conf, conf);
    directory_of(url.credentials, keys);
    static const char *const authorities[] = SANDBOX_AUTHORITIES;
    struct sandbox_rule rules[8 + ARRAY_LEN(authorities)] = {
        {p->fetch.directory, SANDBOX_WRITE},
        {p->fetch.directory, SANDBOX_READ},
        {"/dev/urandom", SANDBOX_READ},
        {url.certificates, SANDBOX_READ},
        {url.psk_file, SANDBOX_READ},
        {url.ports, url.tcp ? SANDBOX_CONNECT : SANDBOX_READ},
        {keys, SANDBOX_READ},
        {conf, SANDBOX_READ}};
    for (size_t i = 0; i < ARRAY_LEN(authorities); i++)
        rules[8 + i] = (struct sandbox_rule){authorities[i], SANDBOX_READ};
    if (sandbox_files(rules, ARRAY_LEN(rules), &parts, error) != 0 ||
        sandbox_calls(SANDBOX_FETCH, NULL, NULL, &parts, error) != 0)
        return -1;
    return strcmp(p->sandbox, "require") != 0 || (parts & SANDBOX_ALL) == SANDBOX_ALL
               ? 0
               : error_set(error, ERR_BAD_INPUT, "--sandbox require: the kernel provides only %s",
                           sandbox_text(parts, text));
}

static int run(struct program *p, struct error *error)
{
    struct fetch *f = &p->fetch;
    char name[FETCH_URL_BYTES];
    if (confine(p, error) != 0)
        return -1;
    io_url_name(f->url, name);
    if ((strcmp(name, STORE_MANIFEST_FILE) == 0 ? fetch_store : fetch_gguf)(f, error) != 0)
        return -1;
    printf("%s\n", f->model);
    return fflush(stdout) == 0 ? 0 : error_set(error, ERR_IO, "cannot write the result");
}

int main(int argc, char **argv)
{
    static struct program program = {.sandbox = "auto", .fetch = {.lock_fd = -1}};
    struct error error;
    log_init("fetch", LOG_LEVEL_INFO);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int status = options_take(&program, argc, argv, &error);
    if (status == 0)
        status = run(&program, &error);
    if (status == 0)
        return 0;
    log_line(LOG_LEVEL_ERROR, "error: %s", error.text);
    return error_exit_status(error.code);
}
