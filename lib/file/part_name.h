/* SPDX-License-Identifier: Apache-2.0 */
/* Paths of models split into several GGUF files, NAME-00001-of-0000N.gguf: the name of one part
 * leads to the others. */
#ifndef SLUICE_FILE_PART_NAME_H
#define SLUICE_FILE_PART_NAME_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

/* True for the name of a part: sets its number (from 1) and the number of parts. */
bool gguf_part_name(const char *path, uint32_t *number, uint32_t *count);

/* Changes the number in the name of a part. */
void gguf_set_part(char *path, uint32_t number);

/* Changes the name of any part to that of the first; other names stay. */
void gguf_first_part(char *path);

/* The absolute path, without links; of a split model that of its first part, whose last component
 * stays even if it is a link to a file of another name: it leads to the other parts, which may be
 * links, too. False with errno. */
bool gguf_real_path(const char *path, char real[PATH_MAX]);

#endif
