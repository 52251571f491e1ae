/* SPDX-License-Identifier: Apache-2.0 */
/* Characters that PCRE2's Unicode does not know. For the tokenizer only. */
#ifndef SLUICE_MODEL_TOKENIZER_NEWER_H
#define SLUICE_MODEL_TOKENIZER_NEWER_H

#include <stdbool.h>
#include <stddef.h>

/* Prepares valid UTF-8 for the expressions of tokenizers.tbl.h: *known becomes a copy of as many
 * bytes, which the caller frees, in which characters that PCRE2 has replace those of unicode.tbl.h.
 * It is NULL if the text has none of these. False: memory is short. */
bool newer_known(const char *text, size_t bytes, char **known);

#endif
