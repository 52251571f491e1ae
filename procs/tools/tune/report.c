/* SPDX-License-Identifier: Apache-2.0 */
/* The result on stdout: the record, and a line per system. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/json/json_file.h"
#include "procs/clients/common/options.h"
#include "procs/tools/tune/tune.h"

/* Why tune does not plan swapmoe, which sluice plan does. */
static const char *swapmoe(const struct tune *t, char why[TUNE_WHY_BYTES])
{
    snprintf(
        why, TUNE_WHY_BYTES,
        "not planned by tune: its loss depends on the budget, and a plan for one takes at least "
        "%.1f minutes",
        job_swapmoe_s(t) / 60);
    return why;
}

static bool is_chosen(const struct tune *t, const struct system *s)
{
    return s->tokens_per_s > 0 && strcmp(s->preset, t->result.preset) == 0;
}

static json_t *number_or_null(bool known, double number)
{
    return known ? json_real(number) : json_null();
}

static json_t *system_json(const struct tune *t, enum tune_system system)
{
    const struct system *s = &t->system[system];
    return json_pack("{s:s, s:b, s:o, s:o, s:o, s:o, s:o, s:b}", "system", system_name(system),
                     "planned", s->planned, "why", s->why[0] ? json_string(s->why) : json_null(),
                     "preset", s->preset[0] ? json_string(s->preset) : json_null(), "loss_high",
                     number_or_null(s->planned, s->loss_high), "predicted_per_s",
                     number_or_null(s->predicted_per_s > 0, s->predicted_per_s), "tokens_per_s",
                     number_or_null(s->tokens_per_s > 0, s->tokens_per_s), "chosen",
                     is_chosen(t, s));
}

static int print_json(const struct tune *t, struct error *error)
{
    char *text = tuning_format(&t->result, error);
    json_t *record = text ? json_text(text, strlen(text), error) : NULL;
    free(text);
    if (!record)
        return -1;
    char why[TUNE_WHY_BYTES];
    json_t *systems = json_array();
    for (int i = 0; i < TUNE_SYSTEMS; i++)
        json_array_append_new(systems, system_json(t, (enum tune_system)i));
    json_array_append_new(systems, json_pack("{s:s, s:b, s:s, s:b}", "system", "swapmoe", "planned",
                                             false, "why", swapmoe(t, why), "chosen", false));
    json_object_set_new(record, "systems", systems);
    json_dumpf(record, stdout, JSON_INDENT(1) | JSON_PRESERVE_ORDER);
    putchar('\n');
    json_decref(record);
    return 0;
}

static void print_system(const struct tune *t, enum tune_system system)
{
    const struct system *s = &t->system[system];
    const char *mark = is_chosen(t, s) ? "; chosen" : "";
    if (!s->planned)
        printf("%-24s not planned: %s\n", system_name(system), s->why);
    else if (s->tokens_per_s > 0)
        printf("%-24s %s: %.1f tokens/s, loss at most %.2f %%%s\n", system_name(system), s->preset,
               s->tokens_per_s, s->loss_high, mark);
    else
        printf("%-24s %s; loss at most %.2f %%, %.1f tokens/s predicted\n", system_name(system),
               s->why, s->loss_high, s->predicted_per_s);
}

static void print_text(const struct tune *t)
{
    char bytes[16], why[TUNE_WHY_BYTES];
    const struct tuning *r = &t->result;
    printf("%-24s %.1f tokens/s%s\n", "lossless", r->lossless_per_s, r->store[0] ? "" : "; chosen");
    for (int i = 0; i < TUNE_SYSTEMS; i++)
        print_system(t, (enum tune_system)i);
    printf("%-24s %s\n", "swapmoe", swapmoe(t, why));
    if (r->store[0])
        printf("%s: preset %s, %.1f tokens/s (lossless %.1f), loss at most %.2f %%\nplan %s\n"
               "store %s, %s\n",
               r->model, r->preset, r->tokens_per_s, r->lossless_per_s, r->loss_high, r->plan,
               r->store, bytes_format(r->store_bytes, bytes));
    else
        printf("%s: lossless is fastest within this loss and budget: %.1f tokens/s\n", r->model,
               r->lossless_per_s);
}

int report_result(const struct tune *t, struct error *error)
{
    if (!t->json)
        print_text(t);
    else if (print_json(t, error) != 0)
        return -1;
    return output_end(error);
}
