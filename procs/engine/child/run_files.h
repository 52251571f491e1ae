/* SPDX-License-Identifier: Apache-2.0 */
/* The files of the model while an engine runs. The supervisor opens each of them once and passes
 * the descriptors, so that another file at the same path is never read by accident. What it found
 * (struct directory_file) shows later whether the file changed in place.
 *
 *   same      nothing that matters
 *   moved     the path names another file, or none: the open file is still read
 *   changed   size or mtime differ, or ctime does for no harmless reason. Harmless are a change of
 *             links, mode or owner, and a path that does not name the file any more */
#ifndef SLUICE_ENGINE_CHILD_RUN_FILES_H
#define SLUICE_ENGINE_CHILD_RUN_FILES_H

#include "lib/base/error.h"
#include "lib/model/limits.h"
#include "shm/directory/directory.h"

enum run_file_state { RUN_FILE_SAME, RUN_FILE_MOVED, RUN_FILE_CHANGED };

/* Accepts the file open at fd as the inspected one, or as a copy of it: a regular file of the same
 * size. Fills *file. -1 with ERR_GONE, ERR_IO or ERR_BAD_INPUT. */
int run_file_accept(int fd, const char *path, const struct model_file_id *inspected,
                    struct directory_file *file, struct error *error);

/* Compares the file open at fd with *file, and takes over what changed harmlessly. One system call
 * when nothing did. */
enum run_file_state run_file_check(int fd, const char *path, struct directory_file *file);

#endif
