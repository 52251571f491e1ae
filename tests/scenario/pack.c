/* SPDX-License-Identifier: Apache-2.0 */
/* Stores made by sluice pack: the text is that of the model, a killed pack resumes and writes the
 * same bytes, errors are one line. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "tests/harness/harness.h"
#include "tests/unit/lib/model/gguf_make.h"
#include "tests/unit/lib/model/hf_make.h"

#define END_MS     120000
#define TOKENS     "96"
#define F16_MODEL  SLUICE_F16_MODEL
#define EXPERTS    256
#define MEMORY_MAX (300 * MIB)

extern char **environ;

static const char *join(char path[PATH_MAX], const char *dir, const char *name)
{
    CHECK(snprintf(path, PATH_MAX, "%s/%s", dir, name) < PATH_MAX, "%s is too long", name);
    return path;
}

#define ARGS_MAX 24

/* Runs `sluice pack` with these options; its status must be `status`, and an error must be one line
 * with `reason` in it. Returns the summary, if any: a new reference. */
static json_t *pack(int status, const char *reason, const char *const options[])
{
    const char *args[ARGS_MAX] = {"pack", "--quiet", "--output=json"};
    struct command c;
    for (size_t i = 0; options[i]; i++)
        args[3 + i] = options[i];
    command_run(&c, NULL, END_MS, args);
    CHECK(c.status == status, "status %d instead of %d: %.300s", c.status, status, c.err);
    json_t *summary = NULL;
    if (status == 0) {
        summary = json_loadb(c.out, c.out_bytes, 0, NULL);
        CHECK(summary, "no summary: %.300s", c.out);
        CHECK(c.err_bytes == 0, "output despite --quiet: %.300s", c.err);
    } else {
        CHECK(command_lines(c.err) == 1 && strstr(c.err, reason), "'%.300s' without '%s'", c.err,
              reason);
        test_note("%.*s", (int)strcspn(c.err, "\n"), c.err);
    }
    command_free(&c);
    return summary;
}

#define PACK(...)                     json_decref(pack(0, NULL, (const char *const[]){__VA_ARGS__, NULL}))
#define REJECTED(status, reason, ...) pack(status, reason, (const char *const[]){__VA_ARGS__, NULL})

/* Greedy text of a model with too little memory for all experts. */
static char *text_of(const char *model)
{
    struct command c;
    command_run(&c, NULL, END_MS,
                (const char *const[]){"generate", "-m", model, "-p", test_prompt(1), "-n", TOKENS,
                                      "--temp=0", "--resident-experts=50", "--output=ids", NULL});
    CHECK(c.status == 0 && c.out_bytes > 0, "%s: status %d: %.300s", model, c.status, c.err);
    char *text = strdup(c.out);
    command_free(&c);
    return text;
}

static void same_text(const char *a, const char *b)
{
    char *x = text_of(a), *y = text_of(b);
    CHECK(strcmp(x, y) == 0, "%s: %.200s\ninstead of %s: %.200s", b, y, a, x);
    free(x);
    free(y);
}

static void same_file_from(const char *dir_a, const char *dir_b, const char *name, const char *at)
{
    char a[PATH_MAX], b[PATH_MAX];
    struct command c;
    join(a, dir_a, name);
    join(b, dir_b, name);
    command_run(&c, NULL, END_MS, (const char *const[]){"/usr/bin/cmp", "-i", at, a, b, NULL});
    CHECK(c.status == 0, "%.300s%.300s", c.out, c.err);
    command_free(&c);
}

static void same_file(const char *dir_a, const char *dir_b, const char *name)
{
    same_file_from(dir_a, dir_b, name, "0");
}

/* Flips a bit. The first entry starts at 4096; entries are written in file order. */
static void flip(const char *dir, const char *name, off_t at)
{
    char path[PATH_MAX];
    unsigned char byte;
    join(path, dir, name);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    CHECK(fd >= 0 && pread(fd, &byte, 1, at) == 1, "cannot read %s", path);
    byte ^= 4;
    CHECK(pwrite(fd, &byte, 1, at) == 1, "cannot write %s", path);
    close(fd);
}

/* ---- text ---- */

static void text_from_gguf(void)
{
    char store[PATH_MAX];
    PACK("-m", test_model(), "-o", path_in_dir(store, "store"), "--verify");
    same_text(test_model(), store);
    json_decref(pack(0, NULL, (const char *const[]){"--check", store, NULL}));
}

static void text_from_stripes(void)
{
    char store[PATH_MAX], other[PATH_MAX], list[3 * PATH_MAX];
    path_in_dir(store, "store");
    path_in_dir(other, "other");
    CHECK(mkdir(other, 0700) == 0 && mkdir(store, 0700) == 0, "mkdir: %s", strerror(errno));
    int n = snprintf(list, sizeof list, "%s,%s,%s/named.bin", store, other, other);
    CHECK(n < (int)sizeof list, "paths too long");
    PACK("-m", test_model(), "-o", store, "--stripes", list);
    same_text(test_model(), store);
}

/* Each expert in one stripe, each stripe mirrored: the text survives the loss of either copy. */
static void text_from_mirrors(void)
{
    char store[PATH_MAX], other[PATH_MAX], stripes[3 * PATH_MAX], mirrors[3 * PATH_MAX],
        gone[PATH_MAX];
    path_in_dir(store, "store");
    path_in_dir(other, "other");
    CHECK(mkdir(other, 0700) == 0 && mkdir(store, 0700) == 0, "mkdir: %s", strerror(errno));
    snprintf(stripes, sizeof stripes, "--stripes=%s,%s", store, other);
    snprintf(mirrors, sizeof mirrors, "--mirrors=%s,%s", other, store);
    json_t *summary = pack(0, NULL,
                           (const char *const[]){"-m", test_model(), "-o", store, "--layout=spread",
                                                 "--verify", stripes, mirrors, NULL});
    CHECK(strcmp(lookup_text(summary, "layout"), "spread") == 0 &&
              json_is_true(json_object_get(summary, "mirrored")),
          "the summary lacks the layout or mirrors");
    json_decref(summary);
    same_text(test_model(), store);
    json_t *checked = pack(0, NULL, (const char *const[]){"--check", store, NULL});
    CHECK(lookup_u64(checked, "parts") == 2 * EXPERTS, "not every copy was checked");
    json_decref(checked);
    flip(store, "experts.1.mirror.bin", 4096 + 1000);
    REJECTED(2, "1 of 512 shards", "--check", store);
    CHECK(unlink(join(gone, store, "experts.0.bin")) == 0, "%s", strerror(errno));
    same_text(test_model(), store);
}

/* The same model in Hugging Face format gives identical experts and the same text. */
static void text_from_hugging_face(void)
{
    char dir[PATH_MAX], from_hf[PATH_MAX], from_gguf[PATH_MAX], *hf;
    path_in_dir(dir, "model");
    path_in_dir(from_hf, "from_hf");
    path_in_dir(from_gguf, "from_gguf");
    CHECK(mkdir(dir, 0700) == 0, "mkdir: %s", strerror(errno));
    hf_make(
        &(struct hf_make){.gguf = F16_MODEL, .dir = dir, .half_norms = true, .two_files = true});
    PACK("-m", dir, "-o", from_hf);
    PACK("-m", F16_MODEL, "-o", from_gguf);
    hf = text_of(from_hf);
    char *gguf = text_of(F16_MODEL);
    CHECK(strcmp(hf, gguf) == 0, "%.200s\ninstead of %.200s", hf, gguf);
    free(hf);
    free(gguf);
    json_decref(pack(0, NULL, (const char *const[]){"--check", from_hf, NULL}));
}

/* As in a cache of Hugging Face: all files of the directory are links, also that of a template in a
 * directory of its own, and there are more of them than a model needs. */
static void packed_from_links(void)
{
    static const char script[] =
        "set -e; d=$0/additional_chat_templates; mkdir -p \"$d\"; cd \"$1\"; "
        "for f in *; do ln -s \"$1/$f\" \"$0/$f\"; done; "
        "echo x >template; ln -s \"$1/template\" \"$d/default.jinja\"; "
        "i=0; while [ $i -lt 300 ]; do echo x >o$i; ln -s \"$1/o$i\" \"$0/o$i\"; i=$((i + 1)); "
        "done";
    char cache[PATH_MAX], dir[PATH_MAX], store[PATH_MAX];
    struct command c;
    path_in_dir(cache, "cache");
    path_in_dir(dir, "model");
    CHECK(mkdir(cache, 0700) == 0, "mkdir: %s", strerror(errno));
    hf_make(&(struct hf_make){.gguf = F16_MODEL, .dir = cache, .half_norms = true});
    command_run(&c, NULL, END_MS, (const char *const[]){"/bin/sh", "-c", script, dir, cache, NULL});
    CHECK(c.status == 0, "%.300s", c.err);
    command_free(&c);
    PACK("-m", dir, "-o", path_in_dir(store, "store"));
    json_decref(pack(0, NULL, (const char *const[]){"--check", store, NULL}));
}

/* ---- killed and resumed ---- */

/* Experts of a directory that are turned, split and in turn are those of the GGUF file. */
static void experts_converted(void)
{
    static const char *const models[] = {"oss_a", "granitemoe_a"};
    for (size_t i = 0; i < ARRAY_LEN(models); i++) {
        char dir[PATH_MAX], gguf[PATH_MAX], names[PATH_MAX], a[PATH_MAX], b[PATH_MAX], name[64];
        const char *const parts[] = {"model", "hf", "gguf"};
        char *const paths[] = {dir, a, b};
        for (size_t k = 0; k < ARRAY_LEN(parts); k++) {
            snprintf(name, sizeof name, "%s.%s", models[i], parts[k]);
            path_in_dir(paths[k], name);
        }
        snprintf(gguf, sizeof gguf, SLUICE_SOURCE_DIR "/tests/golden/data/arch/%s.gguf", models[i]);
        snprintf(names, sizeof names, SLUICE_SOURCE_DIR "/tests/golden/data/hf/%s.json", models[i]);
        CHECK(mkdir(dir, 0700) == 0, "mkdir: %s", strerror(errno));
        hf_make(&(struct hf_make){.gguf = gguf, .dir = dir, .names = names});
        PACK("-m", dir, "-o", a);
        PACK("-m", gguf, "-o", b);
        same_file_from(a, b, "experts.0.bin", "4096"); /* the first page has the id of the store */
    }
}

static off_t size_of(const char *dir, const char *name)
{
    char path[PATH_MAX];
    struct stat st;
    join(path, dir, name);
    return stat(path, &st) == 0 ? st.st_size : -1;
}

/* Starts a throttled pack, so that it can be interrupted; stderr goes to `log_path`. */
static pid_t pack_slowly(const char *store, const char *log_path, const char *const more[])
{
    char program[PATH_MAX];
    const char *args[ARGS_MAX] = {program, "-m",      test_model(), "-o",
                                  store,   "--quiet", "--rate=8MB", "--threads=2"};
    snprintf(program, sizeof program, "%s/sluice-pack", test_libexec());
    for (size_t i = 0; more[i]; i++)
        args[8 + i] = more[i];
    pid_t pid;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, log_path,
                                     O_WRONLY | O_CREAT | O_TRUNC, 0600);
    int error = posix_spawn(&pid, program, &actions, NULL, (char *const *)(uintptr_t)args, environ);
    posix_spawn_file_actions_destroy(&actions);
    CHECK(error == 0, "cannot start %s: %s", program, strerror(error));
    return pid;
}

/* Waits until the journal has many records. */
static void wait_journal(const char *store, pid_t pid)
{
    uint64_t deadline = deadline_in(END_MS);
    while (size_of(store, "pack.journal") < 1000 && deadline_tick(deadline))
        CHECK(process_alive(pid), "pack ended on its own");
}

static void check_one_line(const char *path, const char *reason)
{
    char text[1024];
    FILE *f = fopen(path, "re");
    CHECK(f, "cannot open %s", path);
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = 0;
    CHECK(command_lines(text) == 1 && strstr(text, reason), "'%.300s' without '%s'", text, reason);
    test_note("%.*s", (int)strcspn(text, "\n"), text);
}

static void pack_and_kill(const char *store, const char *const more[])
{
    int status;
    pid_t pid = pack_slowly(store, "/dev/null", more);
    wait_journal(store, pid);
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    CHECK(WIFSIGNALED(status), "pack was not killed: status %d", status);
    CHECK(size_of(store, "pack.journal") >= 1000, "the journal is empty");
    CHECK(size_of(store, "manifest.json") < 0, "an incomplete store has a manifest");
}

static void resume_with(const char *const more[], int precisions, bool damage)
{
    char store[PATH_MAX], whole[PATH_MAX];
    const char *args[ARGS_MAX] = {"-m", test_model(), "-o", store};
    path_in_dir(store, "store");
    path_in_dir(whole, "whole");
    pack_and_kill(store, more);
    /* Neither a valid store, nor resumable with other options. */
    REJECTED(2, "unfinished; resume it with", "--check", store);
    REJECTED(2, "incomplete store of another model or other options", "-m", F16_MODEL, "-o", store);
    REJECTED(2, "incomplete store of another model or other options", "-m", test_model(), "-o",
             store, "--precisions=native,int4");
    /* A header of 56 bytes; a record has a unit number, a checksum per precision, and its own. */
    json_int_t known = (size_of(store, "pack.journal") - 56) / (8 * (2 + precisions));
    if (damage)
        flip(store, "experts.0.bin", 4096 + 1000);
    for (size_t i = 0; more[i]; i++)
        args[4 + i] = more[i];
    json_t *summary = pack(0, NULL, args);
    json_int_t resumed = json_integer_value(json_object_get(summary, "resumed_experts"));
    CHECK(resumed > 0 && resumed < EXPERTS && resumed == known - damage,
          "%" JSON_INTEGER_FORMAT " resumed of %" JSON_INTEGER_FORMAT " in the journal", resumed,
          known);
    test_note("%" JSON_INTEGER_FORMAT " of %d experts were complete", resumed, EXPERTS);
    json_decref(summary);
    CHECK(size_of(store, "pack.journal") < 0, "the journal was not removed");
    args[3] = whole;
    json_decref(pack(0, NULL, args));
    for (const char *const *name =
             (const char *[]){"manifest.json", "entries.bin", "model.gguf", "experts.0.bin", NULL};
         *name; name++)
        same_file(whole, store, *name);
    REJECTED(2, "already has a file manifest.json", "-m", test_model(), "-o", store);
}

static void resumed(void)
{
    resume_with((const char *const[]){NULL}, 1, false);
}

static void resumed_two_precisions(void)
{
    resume_with((const char *const[]){"--precisions=native,int8", NULL}, 2, false);
}

static void resumed_after_damage(void)
{
    resume_with((const char *const[]){NULL}, 1, true);
}

/* An entry that is damaged in the mirror only is written again. */
static void resumed_with_mirrors(void)
{
    char store[PATH_MAX], other[PATH_MAX], mirrors[PATH_MAX + 16];
    path_in_dir(store, "store");
    path_in_dir(other, "other");
    CHECK(mkdir(other, 0700) == 0, "mkdir: %s", strerror(errno));
    snprintf(mirrors, sizeof mirrors, "--mirrors=%s", other);
    pack_and_kill(store, (const char *const[]){mirrors, NULL});
    json_int_t known = (size_of(store, "pack.journal") - 56) / (8 * 3);
    REJECTED(2, "another model or other options", "-m", test_model(), "-o", store);
    flip(other, "store.experts.0.mirror.bin", 4096 + 1000);
    json_t *summary =
        pack(0, NULL, (const char *const[]){"-m", test_model(), "-o", store, mirrors, NULL});
    json_int_t resumed = json_integer_value(json_object_get(summary, "resumed_experts"));
    CHECK(resumed == known - 1, "%" JSON_INTEGER_FORMAT " resumed of %" JSON_INTEGER_FORMAT,
          resumed, known);
    json_decref(summary);
    json_decref(pack(0, NULL, (const char *const[]){"--check", store, NULL}));
}

/* ---- errors ---- */

static void damage_found(void)
{
    char store[PATH_MAX], path[PATH_MAX];
    path_in_dir(store, "store");
    PACK("-m", test_model(), "-o", store);
    flip(store, "experts.0.bin", 1000000);
    struct command c;
    command_run(&c, NULL, END_MS, (const char *const[]){"pack", "--check", store, NULL});
    CHECK(c.status == 2 && strstr(c.out, "damaged: layer 0, expert 9, precision native, stripe 0"),
          "status %d: %.300s", c.status, c.out);
    CHECK(strstr(c.err, "is damaged: 1 of 256 shards"), "%.300s", c.err);
    command_free(&c);
    flip(store, "experts.0.bin", 1000000);
    json_decref(pack(0, NULL, (const char *const[]){"--check", store, NULL}));
    join(path, store, "experts.0.bin");
    CHECK(truncate(path, 5000000) == 0, "truncate: %s", strerror(errno));
    REJECTED(2, "experts.0.bin", "--check", store);
}

static double perplexity_of(const char *model)
{
    static const char text[] = SLUICE_SOURCE_DIR "/tests/golden/data/heldout/tales.txt";
    struct command c;
    command_run(&c, NULL, END_MS,
                (const char *const[]){"eval", "-m", model, "--text", text, "--max-windows=2",
                                      "--output=json", NULL});
    json_t *doc = c.status == 0 ? json_loads(c.out, JSON_ALLOW_NUL, NULL) : NULL;
    double ppl = json_real_value(json_object_get(doc, "ppl"));
    CHECK(ppl > 1, "%s: status %d: %.300s%.300s", model, c.status, c.out, c.err);
    json_decref(doc);
    command_free(&c);
    return ppl;
}

/* Dense matrices at int4: a third of the bytes, and nearly the same perplexity. */
static void dense_narrow(void)
{
    char store[PATH_MAX], narrow[PATH_MAX];
    path_in_dir(store, "store");
    path_in_dir(narrow, "narrow");
    PACK("-m", F16_MODEL, "-o", store);
    PACK("-m", F16_MODEL, "-o", narrow, "--dense=int4");
    json_int_t whole = size_of(store, "model.gguf"), less = size_of(narrow, "model.gguf");
    CHECK(less < whole * 2 / 5, "%" JSON_INTEGER_FORMAT " of %" JSON_INTEGER_FORMAT " bytes", less,
          whole);
    double before = perplexity_of(store), after = perplexity_of(narrow);
    test_note("perplexity %.3f, with dense int4 %.3f", before, after);
    CHECK(after > before * 0.98 && after < before * 1.1, "perplexity %.3f instead of %.3f", after,
          before);
}

static void bad_usage_is_rejected(void)
{
    char store[PATH_MAX], model[PATH_MAX];
    path_in_dir(store, "store");
    path_in_dir(model, "none.gguf");
    REJECTED(2, "none.gguf", "-m", model, "-o", store);
    REJECTED(2, "config.json", "-m", test_dir(), "-o", store);
    REJECTED(2, "use -m MODEL", "-o", store);
    REJECTED(2, "unknown precision 'int3'", "-m", test_model(), "-o", store,
             "--precisions=native,int3");
    REJECTED(2, "--dense: 'int2' is not one of native|int8|int4", "-m", test_model(), "-o", store,
             "--dense=int2");
    REJECTED(2, "--method: 'best' is not one of channel|hqq", "-m", test_model(), "-o", store,
             "--method=best");
    REJECTED(2, "two stripes or mirrors are the same file", "-m", test_model(), "-o", store,
             "--stripes=/tmp/x.bin,/tmp/x.bin");
    REJECTED(2, "two stripes or mirrors are the same file", "-m", test_model(), "-o", store,
             "--stripes=/tmp/x.bin,/tmp/y.bin", "--mirrors=/tmp/y.bin,/tmp/z.bin");
    REJECTED(2, "--mirrors has 1 paths for 2 stripes", "-m", test_model(), "-o", store,
             "--stripes=/tmp/x.bin,/tmp/y.bin", "--mirrors=/tmp/z.bin");
    REJECTED(2, "--layout: must be striped or spread", "-m", test_model(), "-o", store,
             "--layout=woven");
    REJECTED(2, "not a GGUF file", "-m", "/bin/sh", "-o", store);
    REJECTED(2, "unknown option --tear", "--tear=native");
    CHECK(size_of(store, "manifest.json") < 0, "a store was made despite the errors");
}

/* A precision that is not smaller than the model's own experts is not made. */
static void precision_must_be_smaller(void)
{
    char store[PATH_MAX], model[PATH_MAX];
    struct command c;
    path_in_dir(store, "store");
    path_in_dir(model, "small.gguf");
    command_run(&c, NULL, END_MS,
                (const char *const[]){"synth", "-q", "-o", model, "tiny", "--type", "Q4_0", NULL});
    CHECK(c.status == 0, "synth: %s", c.err);
    command_free(&c);
    REJECTED(2, "experts at int8 are not smaller than those of the model", "-m", model, "-o", store,
             "--precisions=native,int8");
    CHECK(size_of(store, "manifest.json") < 0, "a store was made");
    PACK("-m", model, "-o", store, "--precisions=native,int2");
}

/* A file system of 20 MiB, a store of 28 MiB. */
static void disk_too_small(void)
{
    char small[PATH_MAX], store[PATH_MAX];
    path_in_dir(small, "small");
    CHECK(mkdir(small, 0700) == 0, "mkdir: %s", strerror(errno));
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("small", small, "tmpfs", 0, "size=20m") != 0)
        test_skip("cannot mount a file system here: %s", strerror(errno));
    join(store, small, "store");
    REJECTED(1, "the store needs", "-m", test_model(), "-o", store);
    CHECK(size_of(store, "manifest.json") < 0 && size_of(store, "experts.0.bin") < 0,
          "files were written");
    umount(small);
}

/* Fills a file system completely. */
static void fill_up(const char *dir, char path[PATH_MAX])
{
    static char block[65536];
    join(path, dir, "ballast");
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    CHECK(fd >= 0, "cannot make %s", path);
    for (size_t n = sizeof block; n > 0;)
        if (write(fd, block, n) <= 0)
            n /= 2;
    CHECK(errno == ENOSPC, "expected ENOSPC: %s", strerror(errno));
    close(fd);
}

/* The disk fills up during pack: one error line, no store, and the next run resumes. */
static void disk_filled_meanwhile(void)
{
    char small[PATH_MAX], store[PATH_MAX], whole[PATH_MAX], ballast[PATH_MAX], log_path[PATH_MAX];
    path_in_dir(small, "small");
    path_in_dir(whole, "whole");
    CHECK(mkdir(small, 0700) == 0, "mkdir: %s", strerror(errno));
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("small", small, "tmpfs", 0, "size=60m") != 0)
        test_skip("cannot mount a file system here: %s", strerror(errno));
    join(store, small, "store");
    pid_t pid = pack_slowly(store, path_in_dir(log_path, "pack.log"), (const char *const[]){NULL});
    wait_journal(store, pid);
    fill_up(small, ballast);
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 1,
          "pack on a full disk ended with %#x", (unsigned)status);
    check_one_line(log_path, strerror(ENOSPC));
    CHECK(size_of(store, "manifest.json") < 0, "an incomplete store has a manifest");
    REJECTED(2, "manifest.json", "--check", store);
    CHECK(unlink(ballast) == 0, "unlink: %s", strerror(errno));
    json_t *summary =
        pack(0, NULL, (const char *const[]){"-m", test_model(), "-o", store, "--verify", NULL});
    CHECK(json_integer_value(json_object_get(summary, "resumed_experts")) > 0, "not resumed");
    json_decref(summary);
    PACK("-m", test_model(), "-o", whole);
    same_file(whole, store, "experts.0.bin");
    same_file(whole, store, "entries.bin");
    umount(small);
}

/* The padding before the tensors exceeds what is read of the header. */
static void alignment_of_a_mebibyte(void)
{
    char model[PATH_MAX], store[PATH_MAX];
    struct make m;
    make_tiny(&m, 2, true);
    m.alignment = MIB;
    make_u32(&m, "general.alignment", MIB);
    struct bytes file = make_write(&m);
    FILE *out = fopen(path_in_dir(model, "aligned.gguf"), "w");
    CHECK(out && fwrite(file.data, 1, file.size, out) == file.size && fclose(out) == 0,
          "cannot write %s", model);
    bytes_free(&file);
    make_free(&m);
    PACK("-m", model, "-o", path_in_dir(store, "aligned"), "--verify");
}

static void memory_is_bounded(void)
{
    char store[PATH_MAX];
    PACK("-m", F16_MODEL, "-o", path_in_dir(store, "store"), "--threads=8");
    struct rusage usage;
    CHECK(getrusage(RUSAGE_CHILDREN, &usage) == 0, "getrusage: %s", strerror(errno));
    test_note("at most %ld KiB resident, 8 threads", usage.ru_maxrss);
    CHECK((uint64_t)usage.ru_maxrss * KIB < MEMORY_MAX, "%ld KiB resident", usage.ru_maxrss);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        ROW(memory_is_bounded), /* first: it measures all children up to here */
        ROW(text_from_gguf),
        ROW(text_from_stripes),
        ROW(text_from_mirrors),
        ROW(resumed_with_mirrors),
        ROW(text_from_hugging_face),
        ROW(packed_from_links),
        ROW(experts_converted),
        ROW(resumed),
        ROW(resumed_two_precisions),
        ROW(resumed_after_damage),
        ROW(dense_narrow),
        ROW(damage_found),
        ROW(bad_usage_is_rejected),
        ROW(precision_must_be_smaller),
        ROW(disk_too_small),
        ROW(disk_filled_meanwhile),
        ROW(alignment_of_a_mebibyte),
    };
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
