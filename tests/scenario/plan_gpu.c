/* SPDX-License-Identifier: Apache-2.0 */
/* sluice plan --preset auto for an engine with a GPU: times depend on its slots and on copies to
 * it, the plan records them, and an engine that computes on the CPU reports that. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "tests/harness/internal.h"

#define END_MS 240000

static char model[PATH_MAX], profile[PATH_MAX], plan[PATH_MAX];

/* ms of a token without losses, with all experts in the arena and the slowest storage; *slots: 0:
 * no GPU. */
static double token_ms(const char *const gpu[], json_int_t *slots)
{
    const char *argv[24] = {"plan", "-m", model, "--profile", profile, "--preset",
                            "auto", "-o", plan,  "--output",  "json"};
    for (size_t i = 0; gpu[i]; i++)
        argv[11 + i] = gpu[i];
    json_t *doc = command_json(END_MS, argv), *cells = json_object_get(doc, "auto");
    double ns = 0, share = 0;
    for (size_t i = 0; i < json_array_size(cells); i++) {
        const json_t *cell = json_array_get(cells, i);
        double here = json_number_value(json_object_get(cell, "share"));
        if (here > share)
            ns = json_number_value(json_object_get(cell, "lossless_ns"));
        share = here > share ? here : share;
    }
    CHECK(share == 1 && ns > 0, "no time with all experts");
    *slots = json_integer_value(json_object_get(json_object_get(doc, "auto_gpu"), "slots"));
    json_decref(doc);
    return ns / 1e6;
}

static bool plan_has_gpu(void)
{
    json_t *doc = json_load_file(plan, 0, NULL), *scalars = json_object_get(doc, "scalars");
    CHECK(scalars, "no scalars in %s", plan);
    bool has = json_is_number(json_object_get(scalars, "auto_gpu_slots"));
    json_decref(doc);
    return has;
}

static void make_profile(void)
{
    path_in_dir(model, "model.gguf");
    path_in_dir(profile, "profile");
    path_in_dir(plan, "plan");
    json_decref(command_json(END_MS, (const char *const[]){"synth", "-q", "-o", model, "tiny",
                                                           "layers=2", "--type", "Q8_0", NULL}));
    json_decref(command_json(END_MS, (const char *const[]){"profile", "-m", model, "--synthetic",
                                                           "--tokens", "512", "-o", profile,
                                                           "--threads", "1", NULL}));
}

/* An engine that computes on the CPU. */
static void engine_reports(void)
{
    char option[PATH_MAX + 8];
    snprintf(option, sizeof option, "--plan=%s", plan);
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"-m", model, option, "--preset=auto", NULL});
    char *log = engine_log(e);
    CHECK(strstr(log, "auto: the times of the plan are for a GPU"), "no line in the log");
    free(log);
    engine_stop(e);
}

/* Copies of 1 MB/s take longer than any computing here. */
static void times(void)
{
    json_int_t slots;
    make_profile();
    double cpu = token_ms((const char *const[]){NULL}, &slots);
    CHECK(slots == 0 && !plan_has_gpu(), "a GPU without options");
    double all = token_ms((const char *const[]){"--gpu-budget", "100%", "--gpu-expert-us", "0.001",
                                                "--gpu-bandwidth", "1MB/s", NULL},
                          &slots);
    CHECK(slots == 32 && plan_has_gpu(), "%d slots", (int)slots);
    double few = token_ms((const char *const[]){"--gpu-slots", "8", "--gpu-expert-us", "0.001",
                                                "--gpu-bandwidth", "1MB/s", NULL},
                          &slots);
    CHECK(slots == 8, "%d slots", (int)slots);
    double fast = token_ms((const char *const[]){"--gpu-slots", "8", "--gpu-expert-us", "0.001",
                                                 "--gpu-bandwidth", "100GB/s", NULL},
                           &slots);
    double both = token_ms((const char *const[]){"--gpu-slots", "8", "--gpu-expert-us", "0.001",
                                                 "--gpu-bandwidth", "1MB/s", "--gpu-policy",
                                                 "cooperative", NULL},
                           &slots);
    test_note("CPU %.3f ms; all slots %.3f; 8 slots %.3f, faster copies %.3f, with the CPU %.3f",
              cpu, all, few, fast, both);
    CHECK(all < few && fast < few && both < few && fast < cpu, "other times");
    engine_reports();
}

static void rejected(const char *option, const char *value, const char *preset, const char *text)
{
    struct command c;
    command_run(&c, NULL, END_MS,
                (const char *const[]){"plan", "-m", "none", "-o", "none", "--profile", "none",
                                      "--text", "none", "--max-loss", "1%", "--preset", preset,
                                      option, value, NULL});
    CHECK(c.status == 2 && strstr(c.err, text) && command_lines(c.err) == 1,
          "%s %s: status %d, '%.300s' without '%s'", option, value, c.status, c.err, text);
    command_free(&c);
}

static void bad_options(void)
{
    rejected("--gpu-slots", "8", "hobbit", "only the preset auto depends on the GPU");
    rejected("--gpu-bandwidth", "1GB/s", "auto", "--gpu-bandwidth needs --gpu-slots");
    rejected("--gpu-bandwidth", "fast", "auto", "is not a bandwidth such as 500MB/s");
    rejected("--gpu-policy", "none", "auto", "is not one of gpu-centric|cooperative|prefetch");
    rejected("--gpu-slots", "0", "auto", "is not a number from 1");
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {ROW(times), ROW(bad_options)};
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
