/* SPDX-License-Identifier: Apache-2.0 */
/* Normalization Form C (Unicode Standard Annex 15): "e" and U+0301 become U+00E9, conjoining jamo
 * become syllables, marks of one character stand in one order. */
#ifndef SLUICE_TEXT_NFC_H
#define SLUICE_TEXT_NFC_H

#include <stdbool.h>
#include <stddef.h>

/* False: the text, which is UTF-8, is in this form already. That is so where all its characters are
 * below U+0300. */
bool nfc_may_change(const char *text, size_t bytes);

/* The text in this form, with U+FFFD for what is no UTF-8 (utf8.h); the caller frees it. *out_bytes
 * is at most 3 * bytes. Time is O(n log n) also for a character with any number of marks. The
 * characters are those of utf8proc's Unicode (2.8: Unicode 15): later ones stay as they are. The
 * package tokenizers has the tables of Unicode 9, and so does not sort the 108 marks that came
 * later. NULL: out of memory. */
char *nfc(const char *text, size_t bytes, size_t *out_bytes);

#endif
