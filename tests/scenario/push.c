/* SPDX-License-Identifier: Apache-2.0 */
/* Stores that `sluice pack -o URL` sends to servers, with real processes: nginx (PUT) and a server
 * with S3's signatures and parts (s3_server.py). The same text from there; what an interrupted push
 * leaves, and how the next one continues; what servers refuse. Ceph: clusters.c. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/model/store/store.h"
#include "tests/scenario/baseline.h"
#include "tests/scenario/server_programs.h"

#define FINISH_MS 120000
#define SOON_MS   60000
#define KEYS      "KEY1 secret-of-one - valid\n"

static const char *const files[] = {STORE_MANIFEST_FILE, STORE_ENTRIES_FILE, STORE_MODEL_FILE,
                                    "experts.0.bin"};

static void need_push(void)
{
    if (access(SLUICE_PUSH_HTTP, X_OK) != 0)
        test_skip("this build sends no stores to web servers");
}

/* pack with these options; the exit status, and that its errors have this text. */
static void pack(int status, const char *text, const char *const argv[])
{
    struct command c;
    command_run(&c, NULL, FINISH_MS, argv);
    CHECK(c.status == status && strstr(c.err, text), "status %d instead of %d, or no '%s': %s",
          c.status, status, text, c.err);
    CHECK(!strstr(c.err, "secret-of-one") && !strstr(c.out, "secret-of-one"), "a secret");
    command_free(&c);
}

static const char *stage(void)
{
    static char path[PATH_MAX];
    return path_in_dir(path, "stage");
}

static bool has_file(const char *directory, const char *name)
{
    char path[2 * PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return access(path, F_OK) == 0;
}

static void check_store(const char *directory)
{
    struct command c;
    for (size_t i = 0; i < ARRAY_LEN(files); i++)
        CHECK(has_file(directory, files[i]), "%s is not there", files[i]);
    command_run(&c, NULL, FINISH_MS, (const char *const[]){"pack", "--check", directory, NULL});
    CHECK(c.status == 0, "%s%s", c.out, c.err);
    command_free(&c);
}

/* The text is that of the model file. */
static void check_text(const char *url)
{
    char option[PATH_MAX + 16], path[PATH_MAX];
    snprintf(option, sizeof option, "--cache-dir=%s", path_in_dir(path, "skeletons"));
    baseline(0);
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"-m", url, option, "--resident-experts=25",
                                          "--sandbox=auto", NULL});
    baseline_compare(e, 0, url);
    CHECK(engine_counter(e, "loader", "bytes_read") > 0, "the server was not read");
    engine_stop(e);
}

/* ---- web servers ----------------------------------------------------------------------------- */

struct web_store {
    struct nginx nginx;
    char url[128], root[PATH_MAX];
};

/* nginx that takes files; `more`: lines of its configuration. */
static void serve(struct web_store *w, const char *more)
{
    char lines[2 * PATH_MAX];
    need_push();
    nginx_make(&w->nginx, "nginx");
    path_in_dir(w->root, "nginx/root");
    CHECK(mkdir(w->root, 0700) == 0, "no %s", w->root);
    snprintf(lines, sizeof lines, "; root %s; %s", w->root, more);
    nginx_start(&w->nginx, "127.0.0.1", lines);
    snprintf(w->url, sizeof w->url, "http://127.0.0.1:%u/models/demo", (unsigned)w->nginx.port);
}

static void to_a_web_server(void)
{
    struct web_store w;
    char url[256], there[2 * PATH_MAX];
    serve(&w, "dav_methods PUT; create_full_put_path on; client_max_body_size 0;");
    pack(0, "of which this run sent",
         (const char *const[]){"pack", "-m", test_model(), "-o", w.url, "--stage", stage(), NULL});
    snprintf(there, sizeof there, "%s/models/demo", w.root);
    check_store(there);
    check_store(stage()); /* it stays, and is whole */
    CHECK(!has_file(stage(), STORE_JOURNAL_FILE) && !has_file(stage(), "push.journal"),
          "a journal is left");
    snprintf(url, sizeof url, "%s/manifest.json", w.url);
    check_text(url);
    /* The store of the stage, which is there already. */
    pack(0, "this run sent 0 B",
         (const char *const[]){"pack", "-o", w.url, "--stage", stage(), NULL});
    pack(2, "there is another store; give another URL",
         (const char *const[]){"pack", "-m", test_model(), "-o", w.url, "--precisions=int8", NULL});
    /* With a slash at its end, and a stage of its own, which goes away. */
    snprintf(url, sizeof url, "http://127.0.0.1:%u/other/", (unsigned)w.nginx.port);
    char before[PATH_MAX], here[PATH_MAX];
    CHECK(getcwd(before, sizeof before) && mkdir(path_in_dir(here, "here"), 0700) == 0 &&
              chdir(here) == 0,
          "no %s", here);
    pack(0, "reads it", (const char *const[]){"pack", "-m", test_model(), "-o", url, NULL});
    CHECK(chdir(before) == 0 && rmdir(here) == 0, "something is left in %s", here);
    snprintf(there, sizeof there, "%s/other", w.root);
    check_store(there);
    program_kill(w.nginx.pid);
}

/* What nginx is, when nobody has prepared it. */
static void a_server_refuses(void)
{
    struct web_store w;
    char there[2 * PATH_MAX];
    serve(&w, "");
    snprintf(there, sizeof there, "%s/models/demo", w.root);
    const char *const argv[] = {"pack", "-m", test_model(), "-o", w.url, "--stage", stage(), NULL};
    pack(1, "entries.bin: it answers 405: it permits no PUT (nginx: dav_methods PUT)", argv);
    program_kill(w.nginx.pid);
    char lines[2 * PATH_MAX];
    snprintf(lines, sizeof lines, "; root %s; dav_methods PUT; create_full_put_path on;", w.root);
    nginx_start(&w.nginx, "127.0.0.1", lines);
    pack(1, "it answers 413: the file is too large for it (nginx: client_max_body_size 0)", argv);
    CHECK(has_file(there, STORE_ENTRIES_FILE) && !has_file(there, STORE_MANIFEST_FILE),
          "it has a manifest");
    program_kill(w.nginx.pid);
    pack(1, "it is tried again", argv); /* nobody is there */
}

static void urls_that_are_wrong(void)
{
    const char *model = test_model();
    pack(2, "a network block device has a size and no files",
         (const char *const[]){"pack", "-m", model, "-o", "nbd://127.0.0.1/", NULL});
    pack(2, "all files are next to its manifest",
         (const char *const[]){"pack", "-m", model, "-o", "http://127.0.0.1/a", "--stripes=/tmp",
                               NULL});
    pack(2, "--stage is for -o URL",
         (const char *const[]){"pack", "-m", model, "-o", "store", "--stage=x", NULL});
    pack(2, "expected s3://BUCKET/KEY",
         (const char *const[]){"pack", "-m", model, "-o", "s3:///x", NULL});
}

/* ---- S3 -------------------------------------------------------------------------------------- */

struct s3_store {
    struct object_store server;
    char root[PATH_MAX], url[256], there[2 * PATH_MAX];
};

static void serve_objects(struct s3_store *s)
{
    need_push();
    path_in_dir(s->root, "objects");
    CHECK(mkdir(s->root, 0700) == 0, "no %s", s->root);
    object_store_start(&s->server, s->root);
    file_write(s->server.keys, KEYS);
    setenv("AWS_ACCESS_KEY_ID", "KEY1", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "secret-of-one", 1);
    snprintf(s->url, sizeof s->url, "s3://bucket/a b+c?endpoint=http://127.0.0.1:%u",
             s->server.port);
    snprintf(s->there, sizeof s->there, "%s/bucket/a b+c", s->root);
}

static void end_objects(struct s3_store *s)
{
    unsetenv("AWS_ACCESS_KEY_ID");
    unsetenv("AWS_SECRET_ACCESS_KEY");
    program_kill(s->server.pid);
}

/* Writes that the server has taken whose lines have this text. */
static unsigned written(const struct s3_store *s, const char *text)
{
    char path[PATH_MAX + 8], line[512];
    unsigned n = 0;
    snprintf(path, sizeof path, "%s/.log", s->root);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file))
        n += strstr(line, text) != NULL;
    if (file)
        (void)fclose(file);
    return n;
}

static void to_an_object_store(void)
{
    struct s3_store s;
    char url[512];
    serve_objects(&s);
    pack(0, "reads it",
         (const char *const[]){"pack", "-m", test_model(), "-o", s.url, "--stage", stage(), NULL});
    check_store(s.there);
    snprintf(url, sizeof url, "s3://bucket/a b+c/manifest.json?endpoint=http://127.0.0.1:%u",
             s.server.port);
    check_text(url);
    end_objects(&s);
}

/* A store in parts of 1 MiB, which this server takes: the program itself has that option. */
static void push_parts(const struct s3_store *s, int status, const char *text)
{
    pack(status, text,
         (const char *const[]){SLUICE_PUSH_HTTP, "--part=1MiB", s->url, stage(), NULL});
}

static void make_stage(void)
{
    pack(0, "", (const char *const[]){"pack", "-m", test_model(), "-o", stage(), NULL});
}

/* Killed between two parts: there is no manifest, and no part is sent twice. */
static void interrupted_and_continued(void)
{
    struct s3_store s;
    serve_objects(&s);
    make_stage();
    pid_t pid = program_start((const char *const[]){SLUICE_PUSH_HTTP, "--part=1MiB", "--rate=8MiB",
                                                    s.url, stage(), NULL});
    uint64_t deadline = deadline_in(SOON_MS);
    while (written(&s, "experts.0.bin?partNumber=") < 3)
        CHECK(deadline_tick(deadline), "no part arrives");
    program_kill(pid);
    unsigned before = written(&s, "experts.0.bin?partNumber=");
    CHECK(!has_file(s.there, STORE_MANIFEST_FILE) && !has_file(s.there, files[3]),
          "it is there too early");
    push_parts(&s, 0, "of which this run sent");
    check_store(s.there);
    unsigned all = written(&s, "experts.0.bin?partNumber=");
    struct stat st;
    char path[PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/experts.0.bin", stage());
    CHECK(stat(path, &st) == 0, "no %s", path);
    unsigned parts = (unsigned)(((uint64_t)st.st_size + MIB - 1) / MIB);
    test_note("%u of %u parts before the kill, %u in all", before, parts, all);
    /* The part that was in flight may have arrived without a record. */
    CHECK(all >= parts && all <= parts + 1, "%u parts were sent of %u", all, parts);
    CHECK(written(&s, "PUT /bucket/a%20b%2Bc/entries.bin") == 1, "entries.bin was sent twice");
    CHECK(written(&s, "manifest.json") == 1, "the manifest was sent twice");
    end_objects(&s);
}

/* The server has forgotten the upload that is continued: the file is sent from its beginning. */
static void an_upload_that_is_gone(void)
{
    struct s3_store s;
    char forget[PATH_MAX + 16];
    serve_objects(&s);
    make_stage();
    pid_t pid = program_start((const char *const[]){SLUICE_PUSH_HTTP, "--part=1MiB", "--rate=8MiB",
                                                    s.url, stage(), NULL});
    uint64_t deadline = deadline_in(SOON_MS);
    while (written(&s, "experts.0.bin?partNumber=") < 2)
        CHECK(deadline_tick(deadline), "no part arrives");
    program_kill(pid);
    CHECK(has_file(stage(), "push.journal"), "no journal");
    snprintf(forget, sizeof forget, "%s/.forget", s.root);
    file_write(forget, "");
    push_parts(&s, 0, "of which this run sent");
    check_store(s.there);
    end_objects(&s);
}

static void s3_refuses(void)
{
    struct s3_store s;
    char full[PATH_MAX + 8];
    serve_objects(&s);
    make_stage();
    file_write(s.server.keys, "KEY1 another - valid\n");
    push_parts(&s, 1, "it answers 403");
    file_write(s.server.keys, KEYS);
    snprintf(full, sizeof full, "%s/.full", s.root);
    file_write(full, "");
    push_parts(&s, 1, "entries.bin?endpoint=");
    push_parts(&s, 1, "it answers 507 (InsufficientStorage): its disk is full");
    CHECK(!has_file(s.there, STORE_MANIFEST_FILE), "it has a manifest");
    CHECK(unlink(full) == 0, "no %s", full);
    push_parts(&s, 0, "of which this run sent");
    check_store(s.there);
    end_objects(&s);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        ROW(to_a_web_server),    ROW(a_server_refuses),          ROW(urls_that_are_wrong),
        ROW(to_an_object_store), ROW(interrupted_and_continued), ROW(an_upload_that_is_gone),
        ROW(s3_refuses),
    };
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
