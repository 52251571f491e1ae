/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files that make small models of single architectures. */
#ifndef SLUICE_TESTS_UNIT_LIB_MODEL_GGUF_MAKE_PARTS_H
#define SLUICE_TESTS_UNIT_LIB_MODEL_GGUF_MAKE_PARTS_H

#include "tests/unit/lib/model/gguf_make.h"

struct make_row {
    const char *name;
    uint32_t type;
    unsigned ne0, ne1; /* ne0 0: taken out */
};

/* Tensors of a layer, replaced or taken out; the last row has no name. */
void make_edit(struct make *m, unsigned layer, const struct make_row *rows);

/* The key of an architecture. */
void make_number(struct make *m, const char *arch, const char *key, uint32_t value);

/* Takes the attention out of a layer. */
void make_no_attention(struct make *m, unsigned layer);

/* KDA with two heads of h in place of MLA in every second layer, from the first one on. low_rank:
 * decays and gates are matrices in two factors. */
void make_kda(struct make *m, const char *arch, unsigned layers, unsigned h, uint32_t type,
              bool low_rank);

#endif
