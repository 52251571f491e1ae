/* SPDX-License-Identifier: Apache-2.0 */
/* Decides what the supervisor takes from this program, which has parsed the bytes of a server. */
#ifndef SLUICE_ENGINE_FETCH_RESULT_H
#define SLUICE_ENGINE_FETCH_RESULT_H

#include <stdbool.h>

/* Whether `path` is below `directory`, as text: symbolic links are not looked at. Pure. */
bool fetch_path_allowed(const char *directory, const char *path);

#endif
