/* SPDX-License-Identifier: Apache-2.0 */
/* System calls by group. A profile (profiles.tbl.h) permits groups; a call that none of its groups
 * has ends the process with SIGSYS, or fails with the error of its ERRNO row, or, in the profiles
 * that filter.c names, with EPERM or a socket with EACCES.
 *
 *   CALL(group, call)                         permitted
 *   CALL_X86(group, call)                     the same; this call exists on x86-64 only
 *   CALL_IF(group, call, argument, mask, value, text)
 *                                             permitted if (argument & mask) == value
 *   CALL_PRCTL(group, option)                 prctl is permitted with this option
 *   CALL_SELF(group, call)                    permitted if its first argument is the own process
 *   CALL_STREAM(group, family)                socket is permitted for streams of this family, of
 *                                             its usual protocol or TCP
 *   ERRNO(call, errno)                        fails with errno where it is not permitted: calls
 *                                             that libraries try and can do without
 *   ERRNO_X86(call, errno)
 *
 * Numbers come from the compiler's headers, so that the table holds for every architecture. No
 * include guard; undefined macros expand to nothing. */
#ifndef CALL
#define CALL(group, call)
#endif
#ifndef CALL_X86
#define CALL_X86(group, call)
#endif
#ifndef CALL_IF
#define CALL_IF(group, call, argument, mask, value, text)
#endif
#ifndef CALL_PRCTL
#define CALL_PRCTL(group, option)
#endif
#ifndef CALL_SELF
#define CALL_SELF(group, call)
#endif
#ifndef CALL_STREAM
#define CALL_STREAM(group, family)
#endif
#ifndef ERRNO
#define ERRNO(call, error)
#endif
#ifndef ERRNO_X86
#define ERRNO_X86(call, error)
#endif
/* ---- BASE: memory, threads, time, own signals, open descriptors ---- */
CALL(BASE, read)
CALL(BASE, readv)
CALL(BASE, pread64)
CALL(BASE, write)
CALL(BASE, writev)
CALL(BASE, close)
CALL(BASE, lseek)
CALL(BASE, fstat)
CALL(BASE, fcntl)
CALL(BASE, dup)
CALL(BASE, dup3)
CALL(BASE, pipe2)
CALL(BASE, ppoll)
CALL(BASE, pselect6)
CALL(BASE, epoll_create1)
CALL(BASE, epoll_ctl)
CALL(BASE, epoll_pwait)
CALL(BASE, eventfd2)
CALL(BASE, timerfd_create)
CALL(BASE, timerfd_settime)
CALL(BASE, timerfd_gettime)
CALL_X86(BASE, dup2)
CALL_X86(BASE, pipe)
CALL_X86(BASE, poll)
CALL_X86(BASE, select)
CALL_X86(BASE, epoll_create)
CALL_X86(BASE, epoll_wait)
CALL_X86(BASE, eventfd)
CALL(BASE, munmap)
CALL(BASE, mremap)
CALL(BASE, madvise)
CALL(BASE, mincore)
CALL(BASE, brk)
CALL_IF(BASE, ioctl, 1, UINT32_MAX, TCGETS, "TCGETS")
CALL_IF(BASE, mmap, 2, PROT_EXEC, 0, "not executable")
CALL_IF(BASE, mprotect, 2, PROT_EXEC, 0, "not executable")
CALL_IF(BASE, clone, 0, CLONE_THREAD, CLONE_THREAD, "threads only")
CALL(BASE, exit)
CALL(BASE, exit_group)
CALL(BASE, futex)
CALL(BASE, futex_waitv)
CALL(BASE, set_robust_list)
CALL(BASE, get_robust_list)
CALL(BASE, set_tid_address)
CALL(BASE, rseq)
CALL(BASE, membarrier)
CALL(BASE, sched_yield)
CALL(BASE, sched_getaffinity)
CALL(BASE, sched_getattr)
CALL(BASE, sched_setattr)
CALL(BASE, sched_getscheduler)
CALL(BASE, getpriority)
CALL(BASE, setpriority)
CALL(BASE, getcpu)
CALL(BASE, rt_sigaction)
CALL(BASE, rt_sigprocmask)
CALL(BASE, rt_sigreturn)
CALL(BASE, rt_sigtimedwait)
CALL(BASE, sigaltstack)
CALL(BASE, restart_syscall)
CALL_SELF(BASE, kill)
CALL_SELF(BASE, tgkill)
CALL(BASE, getpid)
CALL(BASE, gettid)
CALL(BASE, getppid)
CALL(BASE, getuid)
CALL(BASE, geteuid)
CALL(BASE, getgid)
CALL(BASE, getegid)
CALL(BASE, clock_gettime)
CALL(BASE, clock_getres)
CALL(BASE, clock_nanosleep)
CALL(BASE, nanosleep)
CALL(BASE, gettimeofday)
CALL_X86(BASE, time)
CALL(BASE, getrandom)
CALL(BASE, uname)
CALL(BASE, sysinfo)
CALL(BASE, getrusage)
CALL(BASE, times)
CALL_IF(BASE, prlimit64, 2, UINT64_MAX, 0, "read only")
CALL_PRCTL(BASE, PR_SET_NAME)
CALL_PRCTL(BASE, PR_GET_NAME)
CALL_PRCTL(BASE, PR_SET_THP_DISABLE)
CALL_PRCTL(BASE, PR_GET_THP_DISABLE)
CALL_PRCTL(BASE, PR_SET_VMA)
/* ---- DIAL: Unix sockets that are connected; no other family can be created ---- */
CALL_IF(DIAL, socket, 0, UINT32_MAX, AF_UNIX, "AF_UNIX")
CALL_IF(DIAL, socketpair, 0, UINT32_MAX, AF_UNIX, "AF_UNIX")
CALL(DIAL, connect)
CALL(DIAL, sendto)
CALL(DIAL, sendmsg)
CALL(DIAL, sendmmsg)
CALL(DIAL, recvfrom)
CALL(DIAL, recvmsg)
CALL(DIAL, getsockopt)
CALL(DIAL, setsockopt)
CALL(DIAL, getsockname)
CALL(DIAL, getpeername)
CALL(DIAL, shutdown)
/* ---- ACCEPT: connections of a listening socket ---- */
CALL(ACCEPT, accept)
CALL(ACCEPT, accept4)
/* ---- BIND: a socket file is made again: the listener of NNG, when it no longer responds ---- */
CALL(BIND, bind)
CALL(BIND, listen)
CALL(BIND, unlinkat)
CALL(BIND, fchmodat)
CALL_X86(BIND, unlink)
CALL_X86(BIND, chmod)
/* ---- STAT: attributes of files by name ---- */
CALL(STAT, newfstatat)
CALL(STAT, statx)
CALL(STAT, faccessat)
CALL(STAT, faccessat2)
CALL_X86(STAT, stat)
CALL_X86(STAT, lstat)
CALL_X86(STAT, access)
/* ---- FSTAT: attributes of an open file: newfstatat of an empty name ---- */
CALL_IF(FSTAT, newfstatat, 3, AT_EMPTY_PATH, AT_EMPTY_PATH, "AT_EMPTY_PATH")
/* ---- OPEN: files are opened, as far as Landlock permits ---- */
CALL(OPEN, openat)
CALL(OPEN, readlinkat)
CALL(OPEN, getdents64)
CALL(OPEN, getcwd) /* realpath of a relative name */
CALL_X86(OPEN, open)
CALL_X86(OPEN, readlink)
/* ---- ADVISE: the page cache of an open file ---- */
CALL(ADVISE, fadvise64)
/* ---- PAGES: pages of a segment are allocated and punched ---- */
CALL(PAGES, fallocate)
/* ---- RING: reads through the ring of io_uring that was made before ---- */
CALL(RING, io_uring_enter)
/* ---- WRITE: an open file is written ---- */
CALL(WRITE, pwrite64)
CALL(WRITE, ftruncate)
CALL(WRITE, fsync)
CALL(WRITE, fdatasync)
/* ---- NAMES: files and directories are made, renamed, removed, as far as Landlock permits ---- */
CALL(NAMES, mkdirat)
CALL(NAMES, renameat2)
CALL(NAMES, unlinkat)
CALL(NAMES, flock)
CALL(NAMES, statfs)
CALL(NAMES, fstatfs)
CALL(NAMES, sync_file_range)
CALL(NAMES, renameat)
CALL_X86(NAMES, mkdir)
CALL_X86(NAMES, rename)
CALL_X86(NAMES, unlink)
CALL_X86(NAMES, rmdir)
/* ---- PREFIXES: files of prefixes are written at an offset, renamed, and have a time; their names
 * are removed (BIND) and their memory is reserved (PAGES) ---- */
CALL(PREFIXES, pwrite64)
CALL(PREFIXES, fsync)
CALL(PREFIXES, sync_file_range)
CALL(PREFIXES, renameat)
CALL(PREFIXES, utimensat)
CALL(PREFIXES, flock)
CALL(PREFIXES, fstatfs)
/* ---- DEVICE: a driver in /dev, for a compute process with a GPU ---- */
CALL(DEVICE, ioctl)
CALL(DEVICE, mmap)
CALL(DEVICE, mprotect)
CALL(DEVICE, mlock)
CALL(DEVICE, munlock)
CALL(DEVICE, sched_setaffinity)
CALL(DEVICE, memfd_create) /* drivers of version 570 and later, when they begin */
CALL(DEVICE, ftruncate)
/* ---- TCP: connections to servers, whose ports Landlock restricts; with the calls of DIAL ---- */
CALL_STREAM(TCP, AF_INET)
CALL_STREAM(TCP, AF_INET6)
/* ---- START: processes start and end; what a program and its sandbox need at their start ---- */
CALL(START, execve)
CALL(START, clone)
CALL(START, wait4)
CALL(START, waitid)
CALL(START, kill)
CALL(START, tgkill)
CALL(START, setpgid)
CALL(START, mmap)
CALL(START, mprotect)
CALL(START, prlimit64)
CALL(START, memfd_create)
CALL(START, signalfd4)
CALL_X86(START, arch_prctl)
CALL_PRCTL(START, PR_SET_PDEATHSIG)
CALL_PRCTL(START, PR_SET_NO_NEW_PRIVS)
CALL_PRCTL(START, PR_GET_NO_NEW_PRIVS)
CALL(START, seccomp)
CALL(START, ioprio_set) /* of the thread of a loader that writes */
CALL(START, landlock_create_ruleset)
CALL(START, landlock_add_rule)
CALL(START, landlock_restrict_self)
CALL(START, io_uring_setup)
CALL(START, io_uring_register)
/* ---- calls that fail where they are not permitted ---- */
ERRNO(openat, EACCES)
ERRNO(openat2, EACCES)
ERRNO(readlinkat, EACCES)
ERRNO(newfstatat, EACCES)
ERRNO(statx, ENOSYS)
ERRNO(faccessat, EACCES)
ERRNO(faccessat2, EACCES)
ERRNO_X86(open, EACCES)
ERRNO_X86(readlink, EACCES)
ERRNO_X86(stat, EACCES)
ERRNO_X86(lstat, EACCES)
ERRNO_X86(access, EACCES)
ERRNO(clone3, ENOSYS)
ERRNO(ioctl, ENOTTY)
#undef CALL
#undef CALL_X86
#undef CALL_IF
#undef CALL_PRCTL
#undef CALL_SELF
#undef CALL_STREAM
#undef ERRNO
#undef ERRNO_X86
