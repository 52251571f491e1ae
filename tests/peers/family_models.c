/* SPDX-License-Identifier: Apache-2.0 */
/* family_models DIR: writes the model of every family of calls (tests/scenario/families.h), and
 * prints what its clients are to see of it: {"ask", "done", "middle", "tools", "arguments",
 * "families":
 * [{"name", "path", "reasoning", "content", "id",
 * "pieces"}]}.
 * family_models PATH FORM: writes one to PATH; FORM is a file: {"family": its name, "template": a
 * chat template, "starts": the last token of its prompts can be one of these, "context": tokens,
 * "pieces": the answer}. */
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "tests/scenario/families.h"

#define STARTS_MAX 8

/* Of the family's first answer, the call. */
static json_t *pieces_of(const struct family *f)
{
    json_t *pieces = json_array();
    for (const char *const *p = f->script.answers->pieces; *p; p++)
        json_array_append_new(pieces, json_string(*p));
    return pieces;
}

static int write_all(const char *dir)
{
    json_t *all = json_array();
    for (const struct family *f = families; f->name; f++) {
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%s/%s.gguf", dir, f->name);
        scripted_model_write(path, &f->script);
        json_array_append_new(all, json_pack("{ss, ss, ss, ss, ss?, so}", "name", f->name, "path",
                                             path, "reasoning", f->reasoning, "content", f->content,
                                             "id", f->id, "pieces", pieces_of(f)));
    }
    json_t *doc = json_pack("{ss, ss, ss, so, so, so}", "ask", FAMILY_ASK, "done", FAMILY_DONE,
                            "middle", FAMILY_MIDDLE, "tools", json_loads(FAMILY_TOOLS, 0, NULL),
                            "arguments", json_loads(FAMILY_ARGUMENTS, 0, NULL), "families", all);
    int rc = json_dumpf(doc, stdout, JSON_INDENT(1));
    json_decref(doc);
    return rc == 0 ? 0 : 1;
}

static const struct family *find_family(const char *name)
{
    const struct family *f = families;
    while (f->name && strcmp(f->name, name) != 0)
        f++;
    return f->name ? f : NULL;
}

static int write_one(const char *path, const char *file)
{
    json_error_t error;
    json_t *form = json_load_file(file, 0, &error), *pieces, *starts;
    struct script_edge edges[STARTS_MAX] = {{0}};
    struct script_answer answers[] = {{NULL, {NULL}}, {NULL, {NULL}}};
    const char *name, *text;
    int context;
    if (!form ||
        json_unpack_ex(form, &error, 0, "{s:s, s:s, s:o, s:i, s:o}", "family", &name, "template",
                       &text, "starts", &starts, "context", &context, "pieces", &pieces) != 0) {
        fprintf(stderr, "%s: %s\n", file, error.text);
        return 1;
    }
    const struct family *f = find_family(name);
    if (!f) {
        fprintf(stderr, "%s: no family '%s'\n", file, name);
        return 1;
    }
    for (size_t i = 0; i < json_array_size(pieces) && i + 1 < SCRIPT_PIECES_MAX; i++)
        answers[0].pieces[i] = json_string_value(json_array_get(pieces, i));
    answers[0].start = json_string_value(json_array_get(starts, 0));
    for (size_t i = 1; i < json_array_size(starts) && i < STARTS_MAX; i++)
        edges[i - 1] = (struct script_edge){json_string_value(json_array_get(starts, i)),
                                            answers[0].pieces[0], SCRIPT_ALWAYS};
    struct script script = f->script;
    script.answers = answers;
    script.edges = edges;
    script.chat_template = text;
    script.context = (unsigned)context;
    scripted_model_write(path, &script);
    json_decref(form);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 2)
        return write_all(argv[1]);
    if (argc == 3)
        return write_one(argv[1], argv[2]);
    fprintf(stderr, "usage: family_models DIR, or family_models PATH FORM\n");
    return 2;
}
