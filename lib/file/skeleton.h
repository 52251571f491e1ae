/* SPDX-License-Identifier: Apache-2.0 */
/* Skeletons: what a start of `-m URL` keeps of a GGUF file on a server (procs/engine/fetch). A
 * skeleton has the size and the bytes of that file, but holes where its experts are: whoever took
 * it for the model would compute with zeros and not notice. Its first four bytes are therefore
 * others than those of a GGUF file, and only programs that ask for skeletons open one. */
#ifndef SLUICE_FILE_SKELETON_H
#define SLUICE_FILE_SKELETON_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define SKELETON_MAGIC       "SLSK"
#define SKELETON_MAGIC_BYTES 4u
#define SKELETON_OF_MAGIC    "GGUF"

/* Whether these are the first bytes of a skeleton. */
static inline bool skeleton_begins(const void *bytes, size_t count)
{
    return count >= SKELETON_MAGIC_BYTES &&
           memcmp(bytes, SKELETON_MAGIC, SKELETON_MAGIC_BYTES) == 0;
}

/* Makes the first bytes of a skeleton those of the file; others stay. */
static inline void skeleton_restore(void *bytes, size_t count)
{
    if (skeleton_begins(bytes, count))
        memcpy(bytes, SKELETON_OF_MAGIC, SKELETON_MAGIC_BYTES);
}

/* Whether the open file is a skeleton. */
bool skeleton_is(int fd);

/* The directory of a skeleton is DIRECTORY/IDENTITY/skeleton-KEY; IDENTITY, of so many digits, says
 * what the server has (procs/engine/fetch/place.c). */
#define SKELETON_DIRECTORY      "/skeleton-"
#define SKELETON_IDENTITY_CHARS 32u

/* The identity in the path of a skeleton: a directory above may have a name as that of a skeleton,
 * so the last one counts. NULL: the path has none. It is not terminated. */
const char *skeleton_identity(const char *path);

#endif
