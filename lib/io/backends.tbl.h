/* SPDX-License-Identifier: Apache-2.0 */
/* Backends of reads (io.h).
 *
 *   IO_BACKEND(ID, name, number, module, threads, private_bytes, socket_bytes, libraries_bytes,
 *              stack_bytes)
 *       name      of the parameter `backend`, and in messages
 *       number    value of the counter `backend`
 *       module    of a server: the end of the name of its program (sluice-loader-MODULE) and of
 *                 its package. A library has one, whatever schemes of URLs it reads (server/url.c).
 *                 "": files
 *       threads, private_bytes   of the loader, beside those that every loader has
 *       socket_bytes             in the kernel, of TCP connections: what was received
 *       libraries_bytes          page cache of its libraries. It is reserved all the time and not
 *                                measured: where the device reads ahead much, the start of a
 *                                successor brings in far more than the loader uses
 *       stack_bytes              of the program's first thread, where its libraries need more than
 *                                a thread of an engine has; 0: they do not
 *
 * Measured: docs/network_stores.md. No include guard. */
IO_BACKEND(URING, "io_uring", 1, "", 0, 0, 0, 0, 0)
IO_BACKEND(PREAD, "pread", 2, "", 8, 0, 0, 0, 0)
IO_BACKEND(NBD, "nbd", 3, "nbd", 0, 1u << 20, 6u << 20, 32u << 20, 0)
IO_BACKEND(HTTP, "http", 4, "http", 0, 6u << 20, 8u << 20, 32u << 20, 0)
IO_BACKEND(RADOS, "rados", 5, "rados", 14, 40u << 20, 24u << 20, 32u << 20, 2u << 20)
#undef IO_BACKEND
