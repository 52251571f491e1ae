/* SPDX-License-Identifier: Apache-2.0 */
/* Errors of a read that are not the device's. READ_ERROR(errno, fault, reported): `reported` is
 * what a read that is given up fails with, because some numbers have another meaning above (ENOSPC:
 * no space in /dev/shm; ECANCELED, EBADMSG: loader). Those without a row are errors of the device.
 * No include guard. */

/* The page that the read was to fill could not be made: a full tmpfs, which raises SIGBUS in a
 * program, gives EFAULT here. */
READ_ERROR(EFAULT, MEMORY, ENOSPC)
READ_ERROR(ENOMEM, MEMORY, ENOMEM)
READ_ERROR(ENOBUFS, MEMORY, ENOMEM)
/* Nothing is wrong: the kernel did not serve it now. */
READ_ERROR(EAGAIN, AGAIN, EAGAIN)
READ_ERROR(EINTR, AGAIN, EINTR)
READ_ERROR(EBUSY, AGAIN, EBUSY)
READ_ERROR(ECANCELED, AGAIN, EINTR)
/* The device or its file system, under a number that means something else above. */
READ_ERROR(ENOSPC, STORAGE, EIO)
READ_ERROR(EBADMSG, STORAGE, EIO)
#undef READ_ERROR
