/* SPDX-License-Identifier: Apache-2.0 */
/* family_models DIR: writes the model of every family of calls (tests/scenario/families.h), and
 * prints what openai_calls.py is to see of it: {"ask", "tools", "arguments", "families": [{"name",
 * "path", "reasoning", "content", "id"}]}. */
#include <jansson.h>
#include <stdio.h>

#include "tests/scenario/families.h"

int main(int argc, char **argv)
{
    json_t *all = json_array();
    if (argc != 2) {
        fprintf(stderr, "usage: family_models DIR\n");
        return 2;
    }
    for (const struct family *f = families; f->name; f++) {
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%s/%s.gguf", argv[1], f->name);
        scripted_model_write(path, &f->script);
        json_array_append_new(all, json_pack("{ss, ss, ss, ss, ss?}", "name", f->name, "path", path,
                                             "reasoning", f->reasoning, "content", f->content, "id",
                                             f->id));
    }
    json_t *doc =
        json_pack("{ss, so, so, so}", "ask", FAMILY_ASK, "tools", json_loads(FAMILY_TOOLS, 0, NULL),
                  "arguments", json_loads(FAMILY_ARGUMENTS, 0, NULL), "families", all);
    int rc = json_dumpf(doc, stdout, JSON_INDENT(1));
    json_decref(doc);
    return rc == 0 ? 0 : 1;
}
