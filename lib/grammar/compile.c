/* SPDX-License-Identifier: Apache-2.0 */
/* The automaton of a source: its language, then where it begins. */
#include "lib/grammar/place.h"

int grammar_compile(const struct grammar_source *source, const struct grammar_limits *limits,
                    struct grammar **g, struct error *error)
{
    struct grammar *made = NULL;
    if (place_check(source, error) != 0)
        return -1;
    int rc = source->kind == GRAMMAR_JSON_SCHEMA
                 ? grammar_from_schema(source->text, source->bytes, limits, &made, error)
                 : grammar_from_gbnf(source->text, source->bytes, limits, &made, error);
    if (rc != 0)
        return -1;
    if (place_before(made, source, error) != 0) {
        grammar_free(made);
        return -1;
    }
    *g = made;
    return 0;
}
