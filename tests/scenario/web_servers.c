/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of a model on web servers and in S3, with real processes: nginx with TLS, a server that
 * fails in every way, and one that checks signatures (s3_server.py). The same text, whatever they
 * do. What the backend itself does is tested in tests/unit/lib/io/server/http. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/base/random.h"
#include "tests/harness/nbdkit.h"
#include "tests/harness/web.h"
#include "tests/scenario/baseline.h"
#include "tests/scenario/server_programs.h"
#include "tests/scenario/walled.h"
#include "tests/unit/lib/model/store_make.h"

#define FINISH_MS 120000
#define SOON_MS   30000
/* Without the last one, of hundreds of tokens, which reads every expert many times. */
#define SHORT_PROMPTS (TEST_PROMPTS - 1)

static struct web server;

static void need_loader(void)
{
    if (access(SLUICE_LOADER_HTTP, X_OK) != 0)
        test_skip("this build has no loader for web servers");
}

static uint64_t counter(struct engine *e, const char *name)
{
    return engine_counter(e, "loader", name);
}

static struct engine *start(const char *url, const char *model)
{
    char devices[2 * PATH_MAX];
    snprintf(devices, sizeof devices, "--devices=%s", url);
    baseline(0);
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){devices, "-m", model, "--resident-experts=25",
                                          "--device-timeout=2000", "--sandbox=auto", NULL});
    return e;
}

static struct generation *start_generation(struct engine *e, unsigned prompt, size_t tokens)
{
    struct generation *g = generation_start(e, test_prompt(prompt), baseline_tokens());
    uint64_t deadline = deadline_in(FINISH_MS);
    while (generation_tokens(g) < tokens && !generation_done(g))
        CHECK(deadline_tick(deadline), "no tokens");
    return g;
}

static void end_same(struct generation *g, unsigned prompt, const char *what)
{
    struct text got;
    generation_finish(g, FINISH_MS, &got);
    text_check_same(baseline(prompt), &got, what);
    text_free(&got);
}

/* ---- nginx ----------------------------------------------------------------------------------- */

/* A certificate for the name localhost, which is its own authority. */
static void make_certificate(const char *directory)
{
    char key[PATH_MAX + 16], certificate[PATH_MAX + 16];
    struct command c;
    snprintf(key, sizeof key, "%s/key.pem", directory);
    snprintf(certificate, sizeof certificate, "%s/ca-cert.pem", directory);
    command_run(&c, NULL, FINISH_MS,
                (const char *const[]){"/usr/bin/openssl", "req", "-x509", "-newkey", "ec",
                                      "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                                      "-keyout", key, "-out", certificate, "-days", "2", "-subj",
                                      "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
                                      NULL});
    CHECK(c.status == 0, "%.300s", c.err);
    command_free(&c);
}

struct tls_server {
    struct nginx nginx;
    char url[2 * PATH_MAX];
};

/* Serves the model at `address` ("localhost", "[::1]"); the certificate has the name localhost. */
static void serve_files(struct tls_server *s, const char *address, bool tls)
{
    char lines[4 * PATH_MAX], root[PATH_MAX], keys[2 * PATH_MAX + 128] = "";
    const char *name = strrchr(test_model(), '/') + 1;
    need_loader();
    if (tls && access("/usr/bin/openssl", X_OK) != 0)
        test_skip("there is no openssl");
    nginx_make(&s->nginx, "nginx");
    const char *d = s->nginx.directory;
    if (tls) {
        make_certificate(d);
        snprintf(keys, sizeof keys,
                 "ssl_certificate %s/ca-cert.pem; ssl_certificate_key %s/key.pem;", d, d);
    }
    snprintf(root, sizeof root, "%s", test_model());
    *strrchr(root, '/') = 0;
    snprintf(lines, sizeof lines, "%s; %s root %s;", tls ? " ssl" : "", keys, root);
    nginx_start(&s->nginx, address, lines);
    snprintf(s->url, sizeof s->url, "http%s://%s:%u/%s%s%s", tls ? "s" : "", address,
             (unsigned)s->nginx.port, name, tls ? "#tls-certificates=" : "", tls ? d : "");
}

static void serve_tls(struct tls_server *s)
{
    serve_files(s, "localhost", true);
}

/* TLS with a name; the loader and then the server are killed and come back. */
static void reads_https(void)
{
    struct tls_server s;
    serve_tls(&s);
    struct engine *e = start(s.url, test_model());
    baseline_compare(e, 0, "https");
    CHECK(counter(e, "backend") == 4 && counter(e, "bytes_read") > 0, "the server was not read");
    CHECK(counter(e, "parts_failed_over") == 0, "a failure");

    struct generation *g = start_generation(e, 1, 10);
    pid_t loader = engine_pid(e, "loader", 0, 0);
    CHECK(kill(loader, SIGKILL) == 0, "kill failed");
    engine_pid(e, "loader", 0, loader);
    end_same(g, 1, "the loader was killed");
    CHECK(counter(e, "backend") == 4, "another loader");

    g = start_generation(e, 0, 5);
    program_kill(s.nginx.pid);
    end_same(g, 0, "the server was killed");
    baseline_compare(e, 1, "without the server");
    engine_wait_log(e, "is not connected", SOON_MS);
    nginx_again(&s.nginx);
    engine_wait_log(e, "is connected", SOON_MS);
    baseline_compare(e, 0, "the server is back");
    CHECK(counter(e, "quarantined") == 0, "it is in quarantine");
    engine_stop(e);
    program_kill(s.nginx.pid);
}

/* Processes and the server are killed at random tokens; the text stays the same. */
static void random_kills(void)
{
    static const char *const victims[] = {"loader", "server", "loader", "cache", "compute"};
    struct random random;
    struct tls_server s;
    random_seed(&random, 3, 0);
    serve_tls(&s);
    struct engine *e = start(s.url, test_model());
    unsigned count = test_amount(AMOUNT_https_kills);
    for (unsigned i = 0; i < count; i++) {
        const char *victim = victims[i % ARRAY_LEN(victims)];
        unsigned prompt = i % SHORT_PROMPTS;
        struct generation *g = start_generation(e, prompt, 1 + random_below(&random, 30));
        if (strcmp(victim, "server") == 0) {
            program_kill(s.nginx.pid);
            nginx_again(&s.nginx);
        } else {
            pid_t pid = engine_pid(e, victim, 0, 0);
            CHECK(kill(pid, SIGKILL) == 0, "kill failed");
            engine_pid(e, victim, 0, pid);
        }
        end_same(g, prompt, victim);
    }
    CHECK(counter(e, "backend") == 4, "another loader");
    engine_stop(e);
    program_kill(s.nginx.pid);
}

/* The model itself is on a server, and its skeleton here. */
static void check_model(const char *url)
{
    char option[PATH_MAX + 16], path[PATH_MAX];
    snprintf(option, sizeof option, "--cache-dir=%s", path_in_dir(path, "skeletons"));
    baseline(0);
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"-m", url, option, "--resident-experts=25",
                                          "--device-timeout=2000", "--sandbox=auto", NULL});
    baseline_compare(e, 0, url);
    CHECK(counter(e, "backend") == 4 && counter(e, "bytes_read") > 0, "the server was not read");
    CHECK(counter(e, "parts_failed_over") == 0, "another copy");
    engine_stop(e);
}

/* Without a name, and with an address of IPv6. */
static void reads_over_ipv6(void)
{
    struct tls_server s;
    serve_files(&s, "[::1]", false);
    struct engine *e = start(s.url, test_model());
    baseline_compare(e, 0, "http over IPv6");
    CHECK(counter(e, "backend") == 4 && counter(e, "bytes_read") > 0, "the server was not read");
    CHECK(counter(e, "parts_failed_over") == 0, "a failure");
    engine_stop(e);
    check_model(s.url);
    program_kill(s.nginx.pid);
}

static void opens_a_model(void)
{
    struct tls_server s;
    serve_tls(&s);
    check_model(s.url);
    program_kill(s.nginx.pid);
}

/* Seen from outside, and with the libraries of the loader. */
static void keeps_the_budget(void)
{
    struct tls_server s;
    struct walled w;
    char devices[3 * PATH_MAX];
    serve_tls(&s);
    snprintf(devices, sizeof devices, "--devices=%s", s.url);
    walled_start(&w, walled_budget(start(s.url, test_model())),
                 (const char *const[]){devices, NULL});
    for (unsigned i = 0; i < 2; i++)
        baseline_compare(w.engine, i, "within the budget");
    pid_t pid = engine_pid(w.engine, "loader", 0, 0);
    CHECK(kill(pid, SIGKILL) == 0, "kill failed");
    engine_pid(w.engine, "loader", 0, pid);
    baseline_compare(w.engine, 0, "the loader was killed");
    walled_end(&w);
    program_kill(s.nginx.pid);
}

/* ---- a server that fails --------------------------------------------------------------------- */

static void serve_with_faults(const char *file, char url[64])
{
    need_loader();
    CHECK(web_start(&server, file), "no server");
    web_fault(&server, WEB_RIGHT, 0);
    snprintf(url, 64, "http://127.0.0.1:%u/x", (unsigned)server.port);
}

/* Each in one engine, one after the other; there is the copy on the drive, too. */
static void faults_of_a_server(void)
{
    static const struct {
        enum web_fault fault;
        unsigned times;
    } rows[] = {{WEB_SLOW, 0},        {WEB_CUT, 5},  {WEB_SILENT, 5}, {WEB_SHORT, 5},
                {WEB_OTHER_RANGE, 5}, {WEB_LONG, 3}, {WEB_ERROR, 5},  {WEB_BUSY, 1},
                {WEB_DENIED, 2},      {WEB_WHOLE, 1}};
    char url[64];
    serve_with_faults(test_model(), url);
    unsigned fault_tokens = test_amount(AMOUNT_fault_tokens);
    struct engine *e = start(url, test_model());
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        web_fault(&server, rows[i].fault, rows[i].times);
        uint64_t deadline = deadline_in(FINISH_MS);
        for (unsigned turn = (unsigned)i; atomic_load(&server.control->failed) == 0; turn++) {
            baseline_compare_first(e, turn % SHORT_PROMPTS, fault_tokens, "a server that fails");
            CHECK(deadline_tick(deadline), "fault %d was not met", (int)rows[i].fault);
        }
        test_note("fault %d: %u answers", (int)rows[i].fault, atomic_load(&server.control->failed));
    }
    web_fault(&server, WEB_RIGHT, 0);
    baseline_compare(e, 0, "a server that is right again");
    CHECK(counter(e, "quarantined") == 0, "it is in quarantine");
    json_t *doc = engine_stats(e);
    CHECK(lookup_restarts(doc) == 0, "a process exited");
    json_decref(doc);
    web_fault(&server, WEB_REPLACED, 0); /* the last: it is not read any more */
    for (unsigned turn = 0; atomic_load(&server.control->failed) == 0; turn++)
        baseline_compare(e, turn % TEST_PROMPTS, "another file");
    engine_wait_log(e, "is not a copy of the model: the file was replaced on the server", SOON_MS);
    baseline_compare(e, 1, "without the server");
    engine_stop(e);
    web_kill(&server);
}

/* A successor knows what the loader before it has read; `ctl replace` says that it is right. */
static void replaced_while_the_loader_was_down(void)
{
    char url[64];
    serve_with_faults(test_model(), url);
    struct engine *e = start(url, test_model());
    baseline_compare(e, 0, "before");
    CHECK(counter(e, "bytes_read") > 0 && counter(e, "parts_failed_over") == 0, "it is not read");
    pid_t pid = engine_pid(e, "loader", 0, 0);
    CHECK(kill(pid, SIGSTOP) == 0, "it has exited");
    web_fault(&server, WEB_IGNORANT, 0);
    CHECK(kill(pid, SIGKILL) == 0, "it has exited");
    engine_pid(e, "loader", 0, pid);
    engine_wait_log(e, "is not a copy of the model: the file was replaced on the server", SOON_MS);
    uint64_t before = atomic_load(&server.control->bytes);
    for (unsigned i = 0; i < TEST_PROMPTS; i++)
        baseline_compare(e, i, "another file");
    CHECK(atomic_load(&server.control->bytes) == before, "it is read");
    json_decref(engine_control(e, "replace", json_pack("{s:i}", "loader", 0)));
    uint64_t deadline = deadline_in(FINISH_MS);
    for (unsigned i = 0; atomic_load(&server.control->bytes) < before + MIB; i++) {
        baseline_compare(e, i % TEST_PROMPTS, "it is right");
        CHECK(deadline_tick(deadline), "it is not read again");
    }
    engine_stop(e);
    web_kill(&server);
}

/* Each loader has the library of its first server, and leaves out those of other kinds. */
static void two_kinds_of_servers(void)
{
    static struct nbdkit block;
    char url[64], file[PATH_MAX + 8], devices[512];
    if (nbdkit_missing() || access(SLUICE_LOADER_NBD, X_OK) != 0)
        test_skip("there is no nbdkit, or no loader for it");
    snprintf(file, sizeof file, "file=%s", test_model());
    serve_with_faults(test_model(), url);
    CHECK(nbdkit_start(&block, "/tmp", (const char *const[]){"file", file, NULL}), "no nbdkit");
    snprintf(devices, sizeof devices, "nbd+unix:///?socket=%s,%s", block.socket, url);
    struct engine *e = start(devices, test_model());
    for (unsigned i = 0; i < TEST_PROMPTS; i++)
        baseline_compare(e, i, "two kinds of servers");
    CHECK(counter(e, "backend") == 3 + 4 && counter(e, "parts_failed_over") == 0, "another copy");
    CHECK(atomic_load(&server.control->bytes) > MIB, "the web server was not read");
    engine_wait_log(e, "a loader has the library of its first server only", SOON_MS);
    nbdkit_kill(&block);
    baseline_compare(e, 1, "one of them is gone");
    engine_stop(e);
    web_kill(&server);
}

/* A store has checksums. */
static void wrong_bytes_are_read_elsewhere(void)
{
    char store[PATH_MAX], stripe[PATH_MAX], url[64];
    struct error error;
    const struct store_make how = {.stripes = 1, .precision_mask = 1};
    path_in_dir(store, "store");
    path_in_dir(stripe, "store/experts.0.bin");
    CHECK(store_make(test_model(), store, &how, &error) == 0, "%s", error.text);
    serve_with_faults(stripe, url);
    web_fault(&server, WEB_WRONG_BYTES, 9);
    struct engine *e = start(url, store);
    for (unsigned i = 0; i < TEST_PROMPTS; i++)
        baseline_compare(e, i, "wrong bytes");
    CHECK(counter(e, "checksums_failed") > 0, "no wrong byte was noticed");
    engine_stop(e);
    web_kill(&server);
}

/* ---- S3 -------------------------------------------------------------------------------------- */

static void start_object_store(struct object_store *s)
{
    need_loader();
    object_store_start(s, test_model());
}

/* Whether a file of a process has the text. */
static bool process_has(pid_t pid, const char *name, const char *text)
{
    char path[64], all[65536];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    FILE *file = fopen(path, "re");
    size_t n = file ? fread(all, 1, sizeof all, file) : 0;
    if (file)
        (void)fclose(file);
    return n > 0 && memmem(all, n, text, strlen(text)) != NULL;
}

static void check_secret(struct engine *e, const char *secret, bool in_loader)
{
    static const char *const others[] = {"cache", "predictor", "compute"};
    pid_t loader = engine_pid(e, "loader", 0, 0);
    CHECK(process_has(loader, "environ", secret) == in_loader, "the loader's environment");
    CHECK(!process_has(loader, "cmdline", secret), "the loader's command line");
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        pid_t pid = engine_pid(e, others[i], 0, 0);
        CHECK(!process_has(pid, "environ", secret) && !process_has(pid, "cmdline", secret),
              "%s has the secret", others[i]);
    }
    char *log = engine_log(e);
    json_t *doc = engine_stats(e);
    char *stats = json_dumps(doc, 0);
    CHECK(!strstr(log, secret) && stats && !strstr(stats, secret), "log or stats have the secret");
    free(log);
    free(stats);
    json_decref(doc);
}

/* Temporary credentials expire; the file has new ones then. */
static void credentials_of_a_file(void)
{
    struct object_store s;
    char own[PATH_MAX], next[PATH_MAX], url[2 * PATH_MAX];
    start_object_store(&s);
    path_in_dir(own, "credentials");
    path_in_dir(next, "credentials.new");
    file_write(s.keys, "KEY1 secret-of-one token/1== valid\nKEY2 secret+of/two token/2== valid\n");
    file_write(own, "[model]\naws_access_key_id = KEY1\naws_secret_access_key = secret-of-one\n"
                    "aws_session_token = token/1==\n");
    snprintf(url, sizeof url,
             "s3://bucket/a b+c.gguf?endpoint=http://127.0.0.1:%u&region=eu-1&credentials=%s&"
             "profile=model",
             s.port, own);
    struct engine *e = start(url, test_model());
    baseline_compare(e, 0, "S3");
    CHECK(counter(e, "backend") == 4 && counter(e, "parts_failed_over") == 0, "a failure");
    check_secret(e, "secret-of-one", false);

    file_write(s.keys,
               "KEY1 secret-of-one token/1== expired\nKEY2 secret+of/two token/2== valid\n");
    baseline_compare(e, 1, "credentials that have expired");
    engine_wait_log(e, "it answers 403 (ExpiredToken)", SOON_MS);
    file_write(next, "[model]\naws_access_key_id = KEY2\naws_secret_access_key = secret+of/two\n"
                     "aws_session_token = token/2==\n");
    CHECK(rename(next, own) == 0, "no %s", own);
    engine_wait_log(e, "is connected", SOON_MS);
    uint64_t local = counter(e, "parts_failed_over");
    baseline_compare(e, 0, "new credentials");
    CHECK(counter(e, "parts_failed_over") == local, "the server is not read");
    check_secret(e, "secret+of/two", false);
    CHECK(counter(e, "quarantined") == 0, "it is in quarantine");
    engine_stop(e);
    program_kill(s.pid);
}

/* Only the loader gets them, with a sandbox or without. */
static void credentials_of_the_environment(void)
{
    struct object_store s;
    char url[256];
    start_object_store(&s);
    file_write(s.keys, "KEY3 secret-of-three - valid\n");
    setenv("AWS_ACCESS_KEY_ID", "KEY3", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "secret-of-three", 1);
    snprintf(url, sizeof url, "s3://bucket/key?endpoint=http://127.0.0.1:%u", s.port);
    struct engine *e = start(url, test_model());
    baseline_compare(e, 0, "S3");
    CHECK(counter(e, "bytes_read") > 0 && counter(e, "parts_failed_over") == 0, "a failure");
    check_secret(e, "secret-of-three", true);
    engine_stop(e);
    check_model(url);
    unsetenv("AWS_ACCESS_KEY_ID");
    unsetenv("AWS_SECRET_ACCESS_KEY");
    program_kill(s.pid);
}

/* Where other programs look, too; an empty variable is none. */
static void credentials_of_the_home(void)
{
    struct object_store s;
    char url[256], home[PATH_MAX], path[PATH_MAX];
    const char *before = getenv("HOME");
    char *kept = before ? strdup(before) : NULL;
    start_object_store(&s);
    path_in_dir(home, "a b,c:d%41&#");
    path_in_dir(path, "a b,c:d%41&#/.aws");
    CHECK(mkdir(home, 0700) == 0 && mkdir(path, 0700) == 0, "no %s", path);
    path_in_dir(path, "a b,c:d%41&#/.aws/credentials");
    file_write(s.keys, "KEY4 secret-of-four - valid\n");
    file_write(path,
               "[default]\naws_access_key_id = KEY4\naws_secret_access_key = secret-of-four\n");
    setenv("HOME", home, 1);
    setenv("AWS_ACCESS_KEY_ID", "", 1);
    snprintf(url, sizeof url, "s3://bucket/key?endpoint=http://127.0.0.1:%u", s.port);
    check_model(url);
    unsetenv("AWS_ACCESS_KEY_ID");
    if (kept)
        setenv("HOME", kept, 1);
    free(kept);
    program_kill(s.pid);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        ROW(reads_https),
        ROW(random_kills),
        ROW(keeps_the_budget),
        ROW(faults_of_a_server),
        ROW(wrong_bytes_are_read_elsewhere),
        ROW(credentials_of_a_file),
        ROW(credentials_of_the_environment),
        ROW(reads_over_ipv6),
        ROW(opens_a_model),
        ROW(credentials_of_the_home),
        ROW(replaced_while_the_loader_was_down),
        ROW(two_kinds_of_servers),
    };
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
