/* SPDX-License-Identifier: Apache-2.0 */
/* Characters that PCRE2's Unicode does not know. For the tokenizer only. */
#ifndef SLUICE_MODEL_TOKENIZER_NEWER_H
#define SLUICE_MODEL_TOKENIZER_NEWER_H

#include <stdbool.h>
#include <stddef.h>

/* Valid UTF-8 for the expressions of tokenizers.tbl.h: *known is a copy of as many bytes (the
 * caller frees it) with characters that PCRE2 has for those of unicode.tbl.h; NULL: the text has
 * none. False: out of memory. */
bool newer_known(const char *text, size_t bytes, char **known);

#endif
