/* SPDX-License-Identifier: Apache-2.0 */
/* Stores that `sluice pack -o URL` sends to servers, with real processes: nginx (PUT) and a server
 * with S3's signatures and parts (s3_server.py). The same text from there; what an interrupted push
 * leaves, and how the next one continues; what servers refuse. Ceph: clusters.c. */
#include <fcntl.h>
#include <glob.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
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
    /* The server has lost a file, and a part of another one. */
    char lost[3 * PATH_MAX];
    snprintf(lost, sizeof lost, "%s/experts.0.bin", there);
    CHECK(unlink(lost) == 0, "no %s", lost);
    snprintf(lost, sizeof lost, "%s/" STORE_ENTRIES_FILE, there);
    CHECK(truncate(lost, 100) == 0, "no %s", lost);
    pack(0, "of which this run sent",
         (const char *const[]){"pack", "-o", w.url, "--stage", stage(), NULL});
    check_store(there);
    pack(2, "has a store already, which is at the URL, too",
         (const char *const[]){"pack", "-m", test_model(), "-o", w.url, "--stage", stage(), NULL});
    pack(2, "a store is there already; give another URL",
         (const char *const[]){"pack", "-m", test_model(), "-o", w.url, "--precisions=int8", NULL});
    /* With a slash at its end, and a stage of its own, which goes away. */
    snprintf(url, sizeof url, "http://127.0.0.1:%u/other/", (unsigned)w.nginx.port);
    char before[PATH_MAX], here[PATH_MAX];
    CHECK(getcwd(before, sizeof before) && mkdir(path_in_dir(here, "here"), 0700) == 0 &&
              chdir(here) == 0,
          "no %s", here);
    struct command c;
    command_run(&c, NULL, FINISH_MS,
                (const char *const[]){"pack", "-m", test_model(), "-o", url, "--json", NULL});
    CHECK(c.status == 0 && strstr(c.out, url) && !strstr(c.out, "sluice-stage-"), "%d: %s%s",
          c.status, c.out, c.err);
    command_free(&c);
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
    char mirrors[PATH_MAX];
    need_push();
    path_in_dir(mirrors, "mirrors");
    CHECK(mkdir(mirrors, 0700) == 0, "no %s", mirrors);
    pack(0, "",
         (const char *const[]){"pack", "-m", model, "-o", stage(), "--mirrors", mirrors, NULL});
    pack(2, "has mirrors, and its manifest their paths",
         (const char *const[]){SLUICE_PUSH_HTTP, "http://127.0.0.1:1/a", stage(), NULL});
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

static bool ignores(pid_t pid, int signal)
{
    char path[32], line[128];
    unsigned long long mask = 0;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, "SigIgn:", 7) == 0)
            mask = strtoull(line + 7, NULL, 16);
    if (file)
        (void)fclose(file);
    return mask >> (signal - 1) & 1;
}

/* A push in parts, of which the server has this many of the experts. */
static pid_t push_slowly(const struct s3_store *s, unsigned parts)
{
    pid_t pid = program_start((const char *const[]){SLUICE_PUSH_HTTP, "--part=1MiB", "--rate=8MiB",
                                                    s->url, stage(), NULL});
    uint64_t deadline = deadline_in(SOON_MS);
    while (written(s, "experts.0.bin?partNumber=") < parts)
        CHECK(deadline_tick(deadline), "no part arrives");
    return pid;
}

static void wait_right(pid_t pid)
{
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0, "status %#x", (unsigned)status);
}

static unsigned parts_of_experts(void)
{
    struct stat st;
    char path[PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/experts.0.bin", stage());
    CHECK(stat(path, &st) == 0, "no %s", path);
    return (unsigned)(((uint64_t)st.st_size + MIB - 1) / MIB);
}

static void make_file(const struct s3_store *s, const char *name, const char *text)
{
    char path[PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/%s", s->root, name);
    file_write(path, text);
}

static bool is_made(const struct s3_store *s, const char *name)
{
    return has_file(s->root, name);
}

/* Killed between two parts: there is no manifest, and no part is sent twice. */
static void interrupted_and_continued(void)
{
    struct s3_store s;
    serve_objects(&s);
    make_stage();
    pid_t pid = push_slowly(&s, 3);
    CHECK(ignores(pid, SIGPIPE), "a connection that breaks ends it");
    program_kill(pid);
    unsigned before = written(&s, "experts.0.bin?partNumber=");
    CHECK(!has_file(s.there, STORE_MANIFEST_FILE) && !has_file(s.there, files[3]),
          "it is there too early");
    push_parts(&s, 0, "of which this run sent");
    check_store(s.there);
    unsigned all = written(&s, "experts.0.bin?partNumber=");
    unsigned parts = parts_of_experts();
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
    serve_objects(&s);
    make_stage();
    program_kill(push_slowly(&s, 2));
    CHECK(has_file(stage(), "push.journal"), "no journal");
    make_file(&s, ".forget", "");
    push_parts(&s, 0, "of which this run sent");
    check_store(s.there);
    CHECK(!is_made(&s, ".forget"), "the upload was not forgotten");
    unsigned all = written(&s, "experts.0.bin?partNumber="), parts = parts_of_experts();
    CHECK(all >= parts + 2, "%u parts were sent for %u", all, parts);
    CHECK(written(&s, "experts.0.bin?partNumber=1&") == 2, "the first one was not sent again");
    end_objects(&s);
}

/* The server has completed an upload, but nobody has heard of it: the next question is answered by
 * NoSuchUpload. The file is there, and is not sent again. */
static void an_answer_that_is_lost(void)
{
    struct s3_store s;
    serve_objects(&s);
    make_stage();
    pid_t pid = push_slowly(&s, 1);
    make_file(&s, ".lose", "");
    wait_right(pid);
    check_store(s.there);
    CHECK(!is_made(&s, ".lose"), "no answer was lost");
    unsigned all = written(&s, "experts.0.bin?partNumber="), parts = parts_of_experts();
    CHECK(all == parts, "%u parts were sent of %u", all, parts);
    end_objects(&s);
}

/* The same, of a run that was killed before it had the answer. */
static void an_answer_that_nobody_awaits(void)
{
    struct s3_store s;
    serve_objects(&s);
    make_stage();
    pid_t pid = push_slowly(&s, 1);
    make_file(&s, ".lose", "no answer");
    uint64_t deadline = deadline_in(SOON_MS);
    while (!has_file(s.there, files[3]))
        CHECK(deadline_tick(deadline), "it is not completed");
    program_kill(pid);
    push_parts(&s, 0, "of which this run sent");
    check_store(s.there);
    unsigned all = written(&s, "experts.0.bin?partNumber="), parts = parts_of_experts();
    CHECK(all == parts, "%u parts were sent of %u", all, parts);
    end_objects(&s);
}

/* Numbers of parts are of their size. */
static void parts_of_another_size(void)
{
    struct s3_store s;
    serve_objects(&s);
    make_stage();
    program_kill(push_slowly(&s, 2));
    pack(0, "of which this run sent",
         (const char *const[]){SLUICE_PUSH_HTTP, "--part=3MiB", s.url, stage(), NULL});
    check_store(s.there);
    end_objects(&s);
}

/* What S3 says with 400, 403 and 409 and what passes; HEAD has no body and so no code. */
static void refusals_that_pass(void)
{
    struct s3_store s;
    struct stat st;
    char path[PATH_MAX + 16];
    serve_objects(&s);
    make_stage();
    pid_t pid = push_slowly(&s, 1);
    make_file(&s, ".once",
              "PUT 400 RequestTimeout\nPOST 409 OperationAborted\n"
              "HEAD 403 ExpiredToken\nHEAD 400 ExpiredToken\n");
    wait_right(pid);
    check_store(s.there);
    snprintf(path, sizeof path, "%s/.once", s.root);
    CHECK(stat(path, &st) == 0 && st.st_size == 0, "not all was answered");
    end_objects(&s);
}

/* Another file is renamed over that with the credentials, which expire then. */
static void credentials_that_are_replaced(void)
{
    struct s3_store s;
    char own[PATH_MAX], next[PATH_MAX];
    serve_objects(&s);
    make_stage();
    unsetenv("AWS_ACCESS_KEY_ID");
    unsetenv("AWS_SECRET_ACCESS_KEY");
    CHECK(mkdir(path_in_dir(own, "own"), 0700) == 0, "no %s", own);
    path_in_dir(own, "own/credentials");
    path_in_dir(next, "own/next");
    file_write(s.server.keys, KEYS "KEY2 secret+of/two - valid\n");
    file_write(own, "[default]\naws_access_key_id = KEY1\n"
                    "aws_secret_access_key = secret-of-one\n");
    size_t n = strlen(s.url);
    snprintf(s.url + n, sizeof s.url - n, "&credentials=%s", own);
    pid_t pid = push_slowly(&s, 1);
    file_write(next, "[default]\naws_access_key_id = KEY2\n"
                     "aws_secret_access_key = secret+of/two\n");
    CHECK(rename(next, own) == 0, "no %s", own);
    file_write(s.server.keys, "KEY1 secret-of-one - expired\nKEY2 secret+of/two - valid\n");
    wait_right(pid);
    check_store(s.there);
    end_objects(&s);
}

/* ---- the command itself ---------------------------------------------------------------------- */

/* The stage that the command makes here, which has a name of its own. */
static const char *default_stage(char path[PATH_MAX])
{
    glob_t found;
    CHECK(glob("sluice-stage-*", 0, NULL, &found) == 0 && found.gl_pathc == 1, "no stage");
    snprintf(path, PATH_MAX, "%s", found.gl_pathv[0]);
    globfree(&found);
    return path;
}

static void copy(const char *from, const char *to)
{
    struct command c;
    command_run(&c, NULL, SOON_MS, (const char *const[]){"/bin/cp", from, to, NULL});
    CHECK(c.status == 0, "%s", c.err);
    command_free(&c);
}

/* `sluice pack -o URL` is killed while it sends, and as it removes its stage: the same command
 * continues, or sees that all is done. */
static void the_command_is_killed(void)
{
    struct s3_store s;
    struct stat st;
    char before[PATH_MAX], here[PATH_MAX], program[PATH_MAX], made[PATH_MAX], file[3 * PATH_MAX];
    serve_objects(&s);
    CHECK(getcwd(before, sizeof before) && mkdir(path_in_dir(here, "here"), 0700) == 0 &&
              chdir(here) == 0,
          "no %s", here);
    snprintf(program, sizeof program, "%s/sluice-pack", test_libexec());
    pid_t pid = program_start(
        (const char *const[]){program, "-m", test_model(), "-o", s.url, "--rate=12MiB", NULL});
    uint64_t deadline = deadline_in(FINISH_MS);
    while (written(&s, "PUT ") < 1)
        CHECK(deadline_tick(deadline), "nothing arrives");
    program_kill(pid);
    CHECK(!has_file(s.there, STORE_MANIFEST_FILE), "it is there too early");
    CHECK(stat(default_stage(made), &st) == 0 && (st.st_mode & 0777) == 0700, "mode of the stage");
    const char *const again[] = {"pack", "-m", test_model(), "-o", s.url, NULL};
    pack(0, "of which this run sent", again);
    check_store(s.there);
    CHECK(access(made, F_OK) != 0, "%s is left", made);

    CHECK(mkdir(made, 0700) == 0, "no %s", made);
    snprintf(file, sizeof file, "%s/" STORE_MANIFEST_FILE, s.there);
    copy(file, made);
    pack(0, "reads it", again);
    CHECK(access(made, F_OK) != 0, "%s is left", made);
    CHECK(symlink(before, made) == 0, "no %s", made); /* of somebody else */
    pack(2, "is no directory of this user", again);
    CHECK(unlink(made) == 0 && mkdir(made, 0700) == 0, "no %s", made); /* not of this run */
    pack(2, "a store is there already", again);
    CHECK(rmdir(made) == 0 && chdir(before) == 0 && rmdir(here) == 0, "%s is left", made);
    end_objects(&s);
}

static void s3_refuses(void)
{
    struct s3_store s;
    char full[PATH_MAX + 16];
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
    make_file(&s, ".endless", "");
    push_parts(&s, 1, "it answers 403");
    snprintf(full, sizeof full, "%s/.endless", s.root);
    CHECK(unlink(full) == 0, "no %s", full);
    push_parts(&s, 0, "of which this run sent");
    check_store(s.there);
    end_objects(&s);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        ROW(to_a_web_server),
        ROW(a_server_refuses),
        ROW(urls_that_are_wrong),
        ROW(to_an_object_store),
        ROW(interrupted_and_continued),
        ROW(an_upload_that_is_gone),
        ROW(s3_refuses),
        ROW(an_answer_that_is_lost),
        ROW(refusals_that_pass),
        ROW(an_answer_that_nobody_awaits),
        ROW(parts_of_another_size),
        ROW(the_command_is_killed),
        ROW(credentials_that_are_replaced),
    };
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
