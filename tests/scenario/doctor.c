/* SPDX-License-Identifier: Apache-2.0 */
/* Tests doctor where it may run: beside the engine that it is about, and within a memory cgroup. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/json/lookup.h"
#include "tests/harness/internal.h"
#include "tests/scenario/http.h"

#define END_MS 120000

static json_t *document(struct command *c)
{
    CHECK(c->status == 0, "status %d: %.400s", c->status, c->err);
    json_t *doc = json_loads(c->out, JSON_ALLOW_NUL, NULL);
    CHECK(doc, "not JSON: %.200s", c->out);
    command_free(c);
    return doc;
}

/* The file of a running engine: its port is taken, its trace is there, and its key is none of
 * doctor's business. */
static void beside_its_engine(void)
{
    char config[PATH_MAX], trace[PATH_MAX];
    struct command c;
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"--http=0", NULL});
    path_in_dir(config, "engine.conf");
    path_in_dir(trace, "trace");
    for (const char **path = (const char *[]){config, trace, NULL}; *path; path++) {
        FILE *f = fopen(*path, "we");
        CHECK(f, "%s", *path);
        fprintf(f, "http = 0.0.0.0:%u\nhttp_key = secret\ntrace = %s\ncgroup = require\n",
                http_port(e), trace);
        CHECK(fclose(f) == 0, "%s", *path);
    }
    command_run(&c, NULL, END_MS,
                (const char *const[]){"doctor", "-m", test_model(), "--config", config,
                                      "--no-device", "--json", NULL});
    json_t *doc = document(&c);
    CHECK(lookup_u64(doc, "model.min_budget") > 0, "no minimum budget");
    json_decref(doc);
    command_run(&c, NULL, END_MS,
                (const char *const[]){"run", "-m", test_model(), "--config", config, "--cgroup=off",
                                      "--print-memory", NULL});
    json_decref(document(&c));
    engine_stop(e);
}

/* What is available is what an engine could have there, and no measurement takes more. */
static void within_a_cgroup(void)
{
    char group[PATH_MAX], script[PATH_MAX + 64], program[PATH_MAX];
    struct command c;
    cgroup_make(group);
    cgroup_limit(group, 200 * MIB);
    snprintf(program, sizeof program, "%s/sluice-doctor", test_libexec());
    snprintf(script, sizeof script, "echo $$ > '%s/cgroup.procs' && exec \"$0\" \"$@\"", group);
    command_run(
        &c, NULL, END_MS,
        (const char *const[]){"/bin/sh", "-c", script, program, "--no-device", "--json", NULL});
    json_t *doc = document(&c);
    uint64_t available = lookup_u64(doc, "memory.available");
    CHECK(available > 0 && available <= 200 * MIB, "%llu bytes are available",
          (unsigned long long)available);
    CHECK(cgroup_failures(group) == 0, "doctor was killed for lack of memory");
    json_decref(doc);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {ROW(beside_its_engine), ROW(within_a_cgroup)};
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
