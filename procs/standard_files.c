/* SPDX-License-Identifier: Apache-2.0 */
/* Part of every program: a descriptor 0, 1 or 2 that is closed at the start (`sluice generate >&-`)
 * would be given to the next file that is opened, and output would be written into that file.
 * /dev/null takes its place, opened the wrong way round, so that reading from it or writing to it
 * fails as on a closed one. */
#include <fcntl.h>
#include <unistd.h>

__attribute__((constructor)) static void open_standard_files(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0) /* the lowest that is closed: open() returns it */
            (void)!open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}
