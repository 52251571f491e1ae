/* SPDX-License-Identifier: Apache-2.0 */
/* The length of sequences up to which the engine computes what the model does. */
#include <inttypes.h>
#include <stdio.h>

#include "lib/model/index/model_index.h"

const char *model_limit_text(const struct model_index *m, char text[MODEL_LIMIT_BYTES])
{
    uint32_t exact = model_exact_tokens(&m->hparams);
    text[0] = 0;
    if (exact < m->hparams.context && m->hparams.index_block == 1) /* arch_read_choice */
        snprintf(text, MODEL_LIMIT_BYTES,
                 "sluice computes up to %" PRIu32 " tokens of this model: in longer sequences "
                 "%.32s chooses blocks, whose size the file does not state: convert it again",
                 exact, m->arch);
    else if (exact < m->hparams.context)
        snprintf(text, MODEL_LIMIT_BYTES,
                 "sluice computes up to %" PRIu32 " tokens of this model: in longer sequences "
                 "%.32s attends only to positions that it chooses, which is not supported for this "
                 "file",
                 exact, m->arch);
    return text;
}

int model_check_tokens(const struct model_index *m, uint64_t tokens, const char *what,
                       struct error *error)
{
    char text[MODEL_LIMIT_BYTES];
    if (model_limit_text(m, text)[0] == 0 || tokens <= model_exact_tokens(&m->hparams))
        return 0;
    return error_set(error, ERR_BAD_INPUT, "%s %" PRIu64 ": %s", what, tokens, text);
}
