/* SPDX-License-Identifier: Apache-2.0 */
/* Models on a server (-m URL), with real processes and nbdkit: the same text as of the file, what a
 * second start fetches, what happens when the server is slow, killed, not there or has another
 * model, and that nothing else opens the skeleton. */
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/model/index/model_index.h"
#include "procs/tools/synth/split.h"
#include "tests/harness/nbdkit.h"
#include "tests/scenario/baseline.h"
#include "tests/unit/lib/model/store_make.h"

#define FINISH_MS 120000
#define SOON_MS   60000
#define LOG_BYTES (4 * MIB)
#define PARTS     9 /* so many that no parameter has room for all their URLs */

static struct nbdkit server;

static void serve(const char *const args[])
{
    if (nbdkit_missing())
        test_skip("%s", nbdkit_missing());
    if (access(SLUICE_FETCH_NBD, X_OK) != 0)
        test_skip("this build reads no servers");
    CHECK(nbdkit_start(&server, "/tmp", args), "nbdkit does not start");
}

/* One file, and the requests in a log. */
static const char *requests(void)
{
    static char path[PATH_MAX];
    return path_in_dir(path, "requests");
}

static void serve_file(const char *file)
{
    char setting[PATH_MAX + 8], log[PATH_MAX + 16];
    snprintf(setting, sizeof setting, "file=%s", file);
    snprintf(log, sizeof log, "logfile=%s", requests());
    unlink(requests());
    serve((const char *const[]){"--filter=log", "file", setting, log, NULL});
}

static const char *url(const char *name)
{
    static char text[256];
    snprintf(text, sizeof text, "nbd+unix:///%s?socket=%s", name, server.socket);
    return text;
}

static const char *cache_option(void)
{
    static char option[PATH_MAX + 16];
    char path[PATH_MAX];
    snprintf(option, sizeof option, "--cache-dir=%s", path_in_dir(path, "skeletons"));
    return option;
}

/* Bytes that the server was asked for since serve_file. */
static uint64_t asked(void)
{
    uint64_t sum = 0;
    char line[512];
    FILE *file = fopen(requests(), "re");
    CHECK(file, "no %s", requests());
    while (fgets(line, sizeof line, file)) {
        const char *count = strstr(line, " Read ") ? strstr(line, "count=") : NULL;
        sum += count ? strtoull(count + strlen("count="), NULL, 0) : 0;
    }
    (void)fclose(file);
    return sum;
}

static struct engine *start(const char *model, const char *option)
{
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"-m", model, cache_option(), "--resident-experts=25",
                                          "--device-timeout=2000", option, NULL});
    return e;
}

static void check_texts(struct engine *e, unsigned loaders, const char *what)
{
    for (unsigned i = 0; i < 2; i++)
        baseline_compare(e, i, what);
    CHECK(engine_counter(e, "loader", "backend") == 3 * loaders, "%s: the server is not read",
          what);
    CHECK(engine_counter(e, "loader", "bytes_read") > 0, "%s: nothing was read", what);
    CHECK(engine_counter(e, "loader", "parts_failed_over") == 0, "%s: another copy", what);
}

/* The only skeleton below the directory of the test; the path of its file or directory. */
static void skeleton_path(char path[PATH_MAX], const char *name)
{
    struct command c;
    char directory[PATH_MAX];
    command_run(&c, NULL, SOON_MS,
                (const char *const[]){"/usr/bin/find", path_in_dir(directory, "skeletons"), "-name",
                                      name, NULL});
    snprintf(path, PATH_MAX, "%.*s", (int)strcspn(c.out, "\n"), c.out);
    CHECK(path[0] == '/' && strlen(path) + 1 == strlen(c.out), "found: '%s'", c.out);
    command_free(&c);
}

/* ---- what it opens --------------------------------------------------------------------------- */

static void opens_a_file(void)
{
    char path[PATH_MAX];
    struct command c;
    baseline(0);
    serve_file(test_model());
    struct engine *e = start(url("model.gguf"), "--sandbox=auto");
    uint64_t first = asked();
    check_texts(e, 1, "a file on a server");
    engine_stop(e);
    nbdkit_kill(&server);
    serve_file(test_model());
    e = start(url("model.gguf"), "--loaders=2");
    uint64_t second = asked();
    check_texts(e, 2, "the second start");
    engine_stop(e);
    test_note("the first start read %" PRIu64 " bytes, the second %" PRIu64, first, second);
    CHECK(second < first, "the second start fetched the model again");
    skeleton_path(path, "model.gguf");
    command_run(&c, NULL, SOON_MS, (const char *const[]){"inspect", path, NULL});
    CHECK(c.status == 2 && strstr(c.err, "a skeleton of a model on a server"), "%d: %s", c.status,
          c.err);
    command_free(&c);
    command_run(&c, NULL, SOON_MS,
                (const char *const[]){"run", "-m", path, "--name", "remote-refused", NULL});
    CHECK(c.status == 2 && strstr(c.err, "give its URL"), "%d: %s", c.status, c.err);
    command_free(&c);
    nbdkit_kill(&server);
}

static void opens_a_split_model(void)
{
    char path[PATH_MAX], setting[PATH_MAX + 8];
    struct error error;
    baseline(0);
    CHECK(split_write(test_model(), path_in_dir(path, "demo.gguf"), PARTS, &error) == 0, "%s",
          error.text);
    snprintf(setting, sizeof setting, "dir=%s", test_dir());
    serve((const char *const[]){"file", setting, NULL});
    struct engine *e = start(url("demo-00002-of-00009.gguf"), NULL);
    check_texts(e, PARTS, "parts on a server");
    pid_t pid = engine_pid(e, "loader", 1, 0);
    CHECK(kill(pid, SIGKILL) == 0, "kill failed");
    engine_pid(e, "loader", 1, pid);
    baseline_compare(e, 0, "a loader of parts was killed");
    engine_stop(e);
    nbdkit_kill(&server);
}

/* Loaders have no other copy. False: the server cannot be read. */
static bool generates(struct engine *e, unsigned prompt)
{
    struct text got;
    generation_finish(generation_start(e, test_prompt(prompt), baseline_tokens()), FINISH_MS, &got);
    bool right = got.error.code == ERR_NONE;
    if (right)
        text_check_same(baseline(prompt), &got, "the server is back");
    else
        CHECK(strstr(got.error.text, "cannot be read"), "%s", got.error.text);
    text_free(&got);
    return right;
}

static void the_server_goes_away(void)
{
    baseline(0);
    serve_file(test_model());
    struct engine *e = start(url("model.gguf"), "--keep-kv=0");
    check_texts(e, 1, "before");
    nbdkit_kill(&server);
    uint64_t deadline = deadline_in(FINISH_MS);
    while (generates(e, 2))
        CHECK(deadline_tick(deadline), "experts were read without the server");
    serve_file(test_model());
    while (!generates(e, 1))
        CHECK(deadline_tick(deadline), "the server is not read again");
    engine_stop(e);
    nbdkit_kill(&server);
}

static void opens_a_store(void)
{
    char store[PATH_MAX], setting[PATH_MAX + 8];
    struct error error;
    baseline(0);
    path_in_dir(store, "store");
    const struct store_make how = {.stripes = 2, .precision_mask = 1};
    CHECK(store_make(test_model(), store, &how, &error) == 0, "%s", error.text);
    snprintf(setting, sizeof setting, "dir=%s", store);
    serve((const char *const[]){"file", setting, NULL});
    struct engine *e = start(url("manifest.json"), NULL);
    check_texts(e, 2, "a store on a server");
    CHECK(engine_counter(e, "loader", "checksums_verified") > 0, "nothing was verified");
    engine_stop(e);
    nbdkit_kill(&server);
}

/* ---- what can happen to it ------------------------------------------------------------------- */

struct map {
    unsigned char *bytes;
    uint64_t size;
};

static struct map map_file(const char *path, int prot)
{
    struct stat st;
    int fd = open(path, prot & PROT_WRITE ? O_RDWR | O_CLOEXEC : O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0 && fstat(fd, &st) == 0, "no %s", path);
    void *at = mmap(NULL, (size_t)st.st_size, prot, MAP_SHARED, fd, 0);
    CHECK(at != MAP_FAILED, "no memory");
    close(fd);
    return (struct map){at, (uint64_t)st.st_size};
}

/* Which bytes of the file a skeleton has: those of dense entries. The caller frees it. */
static unsigned char *dense_bytes(uint64_t size)
{
    struct model_index *index;
    struct error error;
    unsigned char *dense = calloc(size, 1);
    int fd = model_open(test_model(), O_CLOEXEC, &error);
    CHECK(dense && fd >= 0 && model_index_build(fd, test_model(), &index, &error) == 0, "%s",
          error.text);
    close(fd);
    for (uint32_t i = 0; i < index->dense_count; i++) {
        const struct model_entry *entry = &model_index_entries(index)[i];
        for (uint32_t x = 0; x < entry->extents; x++) {
            const struct model_extent *e = &entry->extent[x];
            uint64_t left = size - e->file_offset; /* less than read_bytes at the end */
            memset(dense + e->file_offset, 1, e->read_bytes < left ? e->read_bytes : left);
        }
    }
    free(index);
    return dense;
}

/* What lies behind the first `done` bytes is something else; the number of them. */
static uint64_t spoil_behind(const char *skeleton, uint64_t done)
{
    struct map file = map_file(skeleton, PROT_READ | PROT_WRITE);
    unsigned char *dense = dense_bytes(file.size);
    uint64_t at_dense = 0;
    for (uint64_t i = 0; i < file.size; i++)
        if (dense[i] && at_dense++ >= done)
            file.bytes[i] ^= 0xff;
    free(dense);
    CHECK(munmap(file.bytes, file.size) == 0, "munmap failed");
    return at_dense;
}

static void check_dense(const char *skeleton)
{
    struct map file = map_file(skeleton, PROT_READ), model = map_file(test_model(), PROT_READ);
    CHECK(file.size == model.size, "%s: %" PRIu64 " bytes", skeleton, file.size);
    unsigned char *dense = dense_bytes(file.size);
    for (uint64_t i = 8; i < file.size; i++) /* behind the magic */
        CHECK(!dense[i] || file.bytes[i] == model.bytes[i], "byte %" PRIu64, i);
    free(dense);
    CHECK(munmap(file.bytes, file.size) == 0 && munmap(model.bytes, model.size) == 0,
          "munmap failed");
}

/* As a kill leaves it: some bytes are noted, and what follows may be anything. */
static void continues_a_fetch(void)
{
    char path[PATH_MAX], skeleton[PATH_MAX];
    unsigned long long done, total;
    baseline(0);
    serve_file(test_model());
    struct engine *e = start(url("model.gguf"), NULL);
    uint64_t first = asked();
    engine_stop(e);
    nbdkit_kill(&server);
    skeleton_path(path, "progress");
    FILE *file = fopen(path, "r+e");
    CHECK(file && fscanf(file, "sluice skeleton 1: %llu of %llu bytes", &done, &total) == 2 &&
              done == total,
          "%s", path);
    rewind(file);
    CHECK(fprintf(file, "sluice skeleton 1: %llu of %llu bytes\n", total / 4 * 3, total) > 0 &&
              fclose(file) == 0,
          "%s", path);
    skeleton_path(skeleton, "model.gguf");
    uint64_t dense = spoil_behind(skeleton, total / 4 * 3);
    CHECK(dense == total, "%" PRIu64 " bytes are dense, %llu were fetched", dense, total);
    serve_file(test_model());
    e = start(url("model.gguf"), NULL);
    uint64_t again = asked();
    test_note("at first %" PRIu64 " bytes, then %" PRIu64, first, again);
    CHECK(again < first - total / 2, "it began again");
    check_dense(skeleton);
    check_texts(e, 1, "a continued fetch");
    engine_stop(e);
    nbdkit_kill(&server);
}

static void is_killed_while_it_fetches(void)
{
    struct command c;
    char setting[PATH_MAX + 8];
    baseline(0);
    snprintf(setting, sizeof setting, "file=%s", test_model());
    serve((const char *const[]){"--filter=delay", "file", setting, "delay-read=400ms", NULL});
    command_run(&c, NULL, SOON_MS,
                (const char *const[]){"/usr/bin/timeout", "-s", "KILL", "1.5", SLUICE_RUN, "-m",
                                      url("model.gguf"), cache_option(), "--name", "remote-killed",
                                      NULL});
    CHECK(c.status != 0, "it was not killed");
    command_free(&c);
    nbdkit_kill(&server);
    serve_file(test_model());
    struct engine *e = start(url("model.gguf"), NULL);
    check_texts(e, 1, "after a kill");
    engine_stop(e);
    nbdkit_kill(&server);
}

static void refused(const char *text)
{
    struct command c;
    command_run(&c, NULL, SOON_MS,
                (const char *const[]){"run", "-m", url("model.gguf"), cache_option(), "--name",
                                      "remote-refused", NULL});
    CHECK(c.status == 2 && strstr(c.err, text), "status %d: %.300s", c.status, c.err);
    command_free(&c);
}

static void bad_servers_are_rejected(void)
{
    char other[PATH_MAX];
    path_in_dir(other, "other");
    FILE *file = fopen(other, "we");
    CHECK(file && fputs("something else, and no model", file) >= 0 && fclose(file) == 0, "no %s",
          other);
    serve_file(other);
    refused("not a GGUF file");
    nbdkit_kill(&server);
    refused("nbd+unix:///model.gguf?socket=");
    struct command c;
    command_run(&c, NULL, SOON_MS,
                (const char *const[]){"run", "-m", test_model(), "--origin=nbd://host/", "--name",
                                      "remote-refused", NULL});
    CHECK(c.status == 2 && strstr(c.err, "give the URL with -m"), "%s", c.err);
    command_free(&c);
    command_run(&c, NULL, SOON_MS,
                (const char *const[]){"tokenize", "-m", "nbd://host/", "-p", "text", NULL});
    CHECK(c.status == 2 && strstr(c.err, "this command reads files only"), "%s", c.err);
    command_free(&c);
}

/* A program that fetches and says something else, as one that its server has taken over. */
static void lies(const char *run, const char *program, const char *said, const char *text)
{
    struct command c;
    FILE *file = fopen(program, "we");
    CHECK(file && fprintf(file, "#!/bin/sh\nprintf '%%s\\n' %s\n", said) > 0 &&
              fchmod(fileno(file), 0700) == 0 && fclose(file) == 0,
          "no %s", program);
    command_run(&c, NULL, SOON_MS,
                (const char *const[]){run, "-m", "nbd+unix:///model.gguf?socket=/none",
                                      cache_option(), "--name", "remote-lies", NULL});
    CHECK(c.status != 0 && strstr(c.err, text), "status %d: %.300s", c.status, c.err);
    command_free(&c);
}

static void the_program_that_fetches_is_not_trusted(void)
{
    char directory[PATH_MAX], run[PATH_MAX], fetch[PATH_MAX], loader[PATH_MAX];
    struct command c;
    path_in_dir(directory, "programs");
    path_in_dir(run, "programs/sluice-run");
    path_in_dir(fetch, "programs/sluice-fetch-nbd");
    path_in_dir(loader, "programs/sluice-loader-nbd");
    CHECK(mkdir(directory, 0700) == 0 && symlink("/bin/true", loader) == 0, "no %s", directory);
    command_run(&c, NULL, SOON_MS, (const char *const[]){"/bin/cp", SLUICE_RUN, run, NULL});
    CHECK(c.status == 0, "%s", c.err);
    command_free(&c);
    lies(run, fetch, "/etc/passwd", "not below");
    lies(run, fetch, "\"$5/../model.gguf\"", "not below");
    lies(run, fetch, "''", "not below");
}

/* Another model at the same URL gets a skeleton of its own. */
static void another_model_is_fetched(void)
{
    char copy[PATH_MAX];
    struct command c;
    baseline(0);
    path_in_dir(copy, "served.gguf");
    command_run(&c, NULL, SOON_MS, (const char *const[]){"/bin/cp", test_model(), copy, NULL});
    CHECK(c.status == 0, "%s", c.err);
    command_free(&c);
    FILE *file = fopen(copy, "r+e"); /* the same model with padding at its end */
    CHECK(file && fseek(file, 0, SEEK_END) == 0 && fwrite("padding", 1, 7, file) == 7 &&
              fclose(file) == 0,
          "no %s", copy);
    serve_file(copy);
    struct engine *e = start(url("model.gguf"), NULL);
    check_texts(e, 1, "another size");
    engine_stop(e);
    nbdkit_kill(&server);
    serve_file(test_model());
    e = start(url("model.gguf"), NULL);
    check_texts(e, 1, "another model");
    engine_stop(e);
    nbdkit_kill(&server);
}

/* A client that starts an engine of its own. */
static void a_client_opens_it(void)
{
    struct command c;
    serve_file(test_model());
    command_run(&c, NULL, FINISH_MS,
                (const char *const[]){"generate", "-m", url("model.gguf"), cache_option(), "-n",
                                      "4", "--temp", "0", "-p", "Once", "--output", "ids", NULL});
    CHECK(c.status == 0 && strlen(c.out) > 0, "%d: %s", c.status, c.err);
    command_free(&c);
    nbdkit_kill(&server);
}

/* One that serves this URL is used, unlike one of another URL. */
static void a_client_finds_its_engine(void)
{
    static const int statuses[] = {0, 2};
    static const char *const names[] = {"model.gguf", "other.gguf"};
    baseline(0);
    serve_file(test_model());
    struct engine *e = start(url(names[0]), NULL);
    for (int i = 0; i < 2; i++) {
        struct command c;
        command_run(&c, NULL, FINISH_MS,
                    (const char *const[]){"generate", "-m", url(names[i]), "--name", e->run, "-n",
                                          "4", "-p", "Once", "--output", "ids", NULL});
        CHECK(c.status == statuses[i], "%s: %d: %s", names[i], c.status, c.err);
        CHECK(i == 0 || strstr(c.err, "serves another model (nbd+unix:///model.gguf"), "%s", c.err);
        command_free(&c);
    }
    engine_stop(e);
    nbdkit_kill(&server);
}

/* What reads only what an engine has; the tokenizer and the page cache are of a file. */
static void programs_that_measure(void)
{
    static const struct {
        const char *command, *option, *value, *more;
        int status;
        const char *out; /* or the error */
    } table[] = {
        {"bench", "-p", "0", "-n4", 0, "tg4"},
        {"bench", "-p", "0", "--cold", 2, "--cold is of a file"},
        {"bench", "--text", "TEXT", "-n4", 2, "--text reads the tokenizer of a file"},
        {"eval", "--ids", "IDS", "--ctx-size=16", 0, "perplexity"},
        {"eval", "--text", "TEXT", "--ctx-size=16", 2, "--text reads the tokenizer of a file"},
        {"eval", "--text", "TEXT", "--offline", 2, "in process, eval reads a file"},
    };
    char ids[PATH_MAX];
    FILE *file = fopen(path_in_dir(ids, "ids"), "we");
    CHECK(file && fputs("{\"ids\": [1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8]}", file) >= 0 &&
              fclose(file) == 0,
          "no %s", ids);
    serve_file(test_model());
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct command c;
        const char *value = strcmp(table[i].value, "0") == 0 ? "0" : ids;
        command_run(&c, NULL, FINISH_MS,
                    (const char *const[]){table[i].command, "-m", url("model.gguf"), cache_option(),
                                          table[i].option, value, table[i].more, NULL});
        CHECK(c.status == table[i].status, "%zu: %d: %s", i, c.status, c.err);
        CHECK(strstr(c.status ? c.err : c.out, table[i].out), "%zu: %s%s", i, c.out, c.err);
        command_free(&c);
    }
    nbdkit_kill(&server);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        ROW(opens_a_file),
        ROW(opens_a_split_model),
        ROW(opens_a_store),
        ROW(continues_a_fetch),
        ROW(is_killed_while_it_fetches),
        ROW(the_server_goes_away),
        ROW(another_model_is_fetched),
        ROW(bad_servers_are_rejected),
        ROW(the_program_that_fetches_is_not_trusted),
        ROW(a_client_opens_it),
        ROW(a_client_finds_its_engine),
        ROW(programs_that_measure),
    };
    return test_main(argc, argv, cases, sizeof cases / sizeof cases[0]);
}
