/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that the shim can fail. SITE(name, error): the error is that of SLUICE_FAULT without one.
 * No include guard. */
SITE(malloc, ENOMEM) /* malloc, calloc, realloc, aligned allocations; also those within libraries */
SITE(mmap, ENOMEM)   /* not those of malloc and of thread stacks */
SITE(fallocate, ENOSPC) /* fallocate, posix_fallocate, ftruncate */
SITE(pread, EIO)        /* pread, preadv of files */
SITE(read, EIO)         /* read of files */
SITE(write, ENOSPC)     /* write, pwrite, writev to files */
SITE(open, EIO)         /* open, openat, shm_open, memfd_create */
SITE(descriptor,
     EMFILE) /* everything that makes a descriptor: sockets, accept, pipes, eventfd, open, ... */
SITE(uring, EBADF)   /* completions of io_uring: the read is submitted with an invalid descriptor */
SITE(thread, EAGAIN) /* pthread_create */
SITE(spawn, EAGAIN)  /* posix_spawn */
#undef SITE
