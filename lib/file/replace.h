/* SPDX-License-Identifier: Apache-2.0 */
/* The last step of writing a file under a temporary name. */
#ifndef SLUICE_FILE_REPLACE_H
#define SLUICE_FILE_REPLACE_H

#include <stdbool.h>

/* Syncs `temporary`, renames it to `path` in the same directory, and syncs the directory: after a
 * power failure either the old file or the whole new one is there. Without `overwrite` an existing
 * file is kept and the error is EEXIST. 0, or an error number; `temporary` is then still there. */
int file_replace(const char *temporary, const char *path, bool overwrite);

#endif
