/* SPDX-License-Identifier: Apache-2.0 */
/* Engines with --prefix-dir, their texts, and the files of the directory. */
#include "tests/scenario/prefix_files.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/prefix/prefix.h"
#include "tests/scenario/continued.h"

const char *const stored_demo[] = {NULL};
const char *const stored_qwen35moe[] = {
    "arch=qwen35moe",  "shared_inner=64", "rope_dims=8",    "conv_taps=4",      "delta_size=16",
    "delta_k_heads=2", "delta_v_heads=4", "delta_inner=64", "attention_step=2", NULL};
const char *const stored_gpt_oss[] = {
    "arch=gpt-oss",  "layers=4",        "window=64",    "rope_scaling=2",
    "rope_factor=8", "rope_context=64", "context=8192", NULL};

char stored_dir[PATH_MAX];
struct text stored_want, stored_want_more;
static char model[PATH_MAX];

void stored_options(const char *const shape[], const char *const more[], const char *args[16])
{
    static char option[PATH_MAX + 16];
    size_t n = 0;
    snprintf(option, sizeof option, "--prefix-dir=%s", stored_dir);
    args[n++] = "--ctx-size=4096";
    args[n++] = "--checkpoint-tokens=128";
    args[n++] = "--resident-experts=50";
    args[n++] = option;
    if (shape[0]) {
        args[n++] = "-m";
        args[n++] = model;
    }
    for (size_t i = 0; more && more[i]; i++)
        args[n++] = more[i];
    args[n] = NULL;
}

struct engine *stored_start(const char *const shape[], const char *const more[])
{
    const char *args[16];
    struct engine *e = engine_new();
    stored_options(shape, more, args);
    engine_start(e, args);
    return e;
}

struct engine *stored_start_reader(const char *const shape[])
{
    return stored_start(shape, (const char *const[]){"--keep-kv=1", NULL});
}

const char *stored_prompt(bool more)
{
    static char text[8192];
    snprintf(text, sizeof text, "%s%s", test_prompt(2),
             more ? " Then the wind turned, and the ship was lost in the morning." : "");
    return text;
}

uint64_t stored_check(struct engine *e, bool more, const char *what)
{
    struct text got;
    engine_generate(e, stored_prompt(more), STORED_TOKENS, &got);
    text_check_same(more ? &stored_want_more : &stored_want, &got, what);
    uint64_t cached = lookup_u64(got.stats, "cached_tokens");
    text_free(&got);
    return cached;
}

uint64_t stored_count(struct engine *e, const char *counter)
{
    return engine_counter(e, "compute", counter);
}

void stored_wait(struct engine *e, const char *counter, uint64_t n)
{
    engine_wait_counter(e, "compute", counter, n, STORED_WAIT_MS);
}

void stored_prepare(const char *const shape[])
{
    path_in_dir(stored_dir, "prefixes");
    if (shape[0])
        continued_make(model, shape);
    struct engine *e = stored_start(shape, (const char *const[]){"--keep-kv=0", NULL});
    engine_generate(e, stored_prompt(false), STORED_TOKENS, &stored_want);
    engine_generate(e, stored_prompt(true), STORED_TOKENS, &stored_want_more);
    CHECK(stored_count(e, "prefix_files") == 0, "written without --keep-kv");
    engine_stop(e);
}

void stored_finish(void)
{
    text_free(&stored_want);
    text_free(&stored_want_more);
}

void stored_store(const char *const shape[])
{
    struct engine *e = stored_start(shape, NULL);
    stored_check(e, false, "before the restart");
    stored_wait(e, "prefixes_stored", 1);
    CHECK(stored_count(e, "prefix_bytes_written") > PREFIX_ALIGN, "an empty file");
    engine_stop(e);
}

size_t stored_lines(const struct engine *e, const char *text)
{
    char *log = engine_log(e);
    size_t n = 0;
    for (const char *at = log; (at = strstr(at, text)); at++)
        n++;
    free(log);
    return n;
}

size_t stored_files(const char *end)
{
    size_t n = 0;
    DIR *d = opendir(stored_dir);
    CHECK(d, "opendir: %s", strerror(errno));
    for (struct dirent *f; (f = readdir(d));) {
        size_t length = strlen(f->d_name), m = strlen(end);
        n += length >= m && strcmp(f->d_name + length - m, end) == 0;
    }
    closedir(d);
    return n;
}

void stored_remove_files(void)
{
    char path[2 * PATH_MAX];
    DIR *d = opendir(stored_dir);
    CHECK(d, "opendir: %s", strerror(errno));
    for (struct dirent *f; (f = readdir(d));)
        if (prefix_is_name(f->d_name)) {
            snprintf(path, sizeof path, "%s/%s", stored_dir, f->d_name);
            CHECK(unlink(path) == 0, "unlink: %s", strerror(errno));
        }
    closedir(d);
}
