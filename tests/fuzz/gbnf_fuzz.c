/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: the parser of GBNF and its automaton. A text is refused with one line, or its
 * automaton continues within its limits until the text may end. */
#include <stdint.h>

#include "grammar_walk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct grammar_limits limits = WALK_LIMITS;
    struct error error = {0};
    struct grammar *g = NULL;
    if (grammar_from_gbnf((const char *)data, size, &limits, &g, &error) != 0) {
        grammar_refused(&error);
        return 0;
    }
    grammar_walk(g, data, size);
    grammar_free(g);
    return 0;
}
