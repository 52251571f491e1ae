/* SPDX-License-Identifier: Apache-2.0 */
/* Lists what each process may do after its start.
 *
 *   SANDBOX_GROUP(ID, name, text)               a group of system calls (calls.tbl.h)
 *   SANDBOX_PROFILE(ID, name, groups, files, network)
 *       groups: SANDBOX_CALLS_* joined by |. files, network: what the groups and Landlock leave,
 *       for docs/sandbox.md, which a test compares with this table.
 *   SANDBOX_VARIABLE(name)                      a variable that the environment of a child keeps
 *   SANDBOX_SECRET(name)                        one that only a loader that signs requests keeps
 *
 * No include guard; undefined macros expand to nothing. */
#ifndef SANDBOX_GROUP
#define SANDBOX_GROUP(id, name, text)
#endif
#ifndef SANDBOX_PROFILE
#define SANDBOX_PROFILE(id, name, groups, files, network)
#endif
#ifndef SANDBOX_VARIABLE
#define SANDBOX_VARIABLE(name)
#endif
#ifndef SANDBOX_SECRET
#define SANDBOX_SECRET(name)
#endif
SANDBOX_GROUP(BASE, "base", "memory, threads, time, own signals, open descriptors")
SANDBOX_GROUP(DIAL, "dial", "Unix sockets that connect")
SANDBOX_GROUP(ACCEPT, "accept", "connections of a listening socket")
SANDBOX_GROUP(BIND, "bind", "socket files that are made again")
SANDBOX_GROUP(STAT, "stat", "attributes of files by name")
SANDBOX_GROUP(FSTAT, "fstat", "attributes of open files")
SANDBOX_GROUP(OPEN, "open", "opening files")
SANDBOX_GROUP(ADVISE, "advise", "dropping pages of open files from the page cache")
SANDBOX_GROUP(PAGES, "pages", "allocating and punching pages of segments")
SANDBOX_GROUP(RING, "ring", "reads through io_uring")
SANDBOX_GROUP(WRITE, "write", "writing open files at an offset")
SANDBOX_GROUP(NAMES, "names", "making, renaming and removing files")
SANDBOX_GROUP(PREFIXES, "prefixes", "writing and renaming files of prefixes")
SANDBOX_GROUP(DEVICE, "device", "drivers of devices")
SANDBOX_GROUP(TCP, "tcp", "TCP sockets that connect")
SANDBOX_GROUP(START, "start", "starting and ending processes, which enter their own sandbox")

/* Its children inherit its filter and add their own, so it has what any of them needs to start. */
SANDBOX_PROFILE(SUPERVISOR, "supervisor",
                BASE | DIAL | ACCEPT | BIND | STAT | OPEN | ADVISE | PAGES | RING | WRITE | NAMES |
                    PREFIXES | START,
                "all", "Unix sockets, its TCP listener, which is open")
/* With --gpu: compute inherits it. */
SANDBOX_PROFILE(SUPERVISOR_GPU, "supervisor, with a GPU",
                BASE | DIAL | ACCEPT | BIND | STAT | OPEN | ADVISE | PAGES | RING | WRITE | NAMES |
                    PREFIXES | START | DEVICE,
                "all", "Unix sockets, its TCP listener, which is open")
/* With a loader that reads a server: its TCP sockets are permitted here, too. */
SANDBOX_PROFILE(SUPERVISOR_NET, "supervisor, with a server of a loader",
                BASE | DIAL | ACCEPT | BIND | STAT | OPEN | ADVISE | PAGES | RING | WRITE | NAMES |
                    PREFIXES | START | TCP,
                "all", "Unix sockets, TCP, its TCP listener, which is open")
SANDBOX_PROFILE(SUPERVISOR_GPU_NET, "supervisor, with a GPU and a server of a loader",
                BASE | DIAL | ACCEPT | BIND | STAT | OPEN | ADVISE | PAGES | RING | WRITE | NAMES |
                    PREFIXES | START | DEVICE | TCP,
                "all", "Unix sockets, TCP, its TCP listener, which is open")
SANDBOX_PROFILE(INSPECT, "inspect", BASE | FSTAT | ADVISE | WRITE, "none but open ones", "none")
SANDBOX_PROFILE(INSPECT_STORE, "inspect, of a store", BASE | STAT | OPEN | ADVISE | WRITE,
                "read only", "none")
SANDBOX_PROFILE(FETCH, "fetch of a model on a server",
                BASE | DIAL | STAT | OPEN | ADVISE | WRITE | NAMES | TCP,
                "written: the directory of skeletons; read only: the server's keys",
                "Unix sockets, TCP to the port of the server")
SANDBOX_PROFILE(
    PUSH, "push of a store to a server", BASE | DIAL | STAT | OPEN | ADVISE | WRITE | NAMES | TCP,
    "written: the directory of the store; read only: the directories of the server's keys",
    "Unix sockets, TCP to the port of the server")
SANDBOX_PROFILE(LOADER, "loader", BASE | DIAL | STAT | ADVISE | RING,
                "read only: its copies, which are open", "Unix sockets")
SANDBOX_PROFILE(LOADER_NET, "loader of a server", BASE | DIAL | STAT | ADVISE | RING | TCP,
                "read only: its copies, which are open",
                "Unix sockets, TCP to the ports of its servers")
SANDBOX_PROFILE(LOADER_TLS, "loader of a server with TLS",
                BASE | DIAL | STAT | ADVISE | RING | TCP | OPEN,
                "read only: its copies, which are open, and its keys",
                "Unix sockets, TCP to the ports of its servers")
/* With a file in front of its servers. */
SANDBOX_PROFILE(LOADER_CACHE, "loader of a server on a Unix socket with a cache",
                BASE | DIAL | STAT | ADVISE | RING | WRITE,
                "written: the file of its cache; read only: its copies, which are open",
                "Unix sockets")
SANDBOX_PROFILE(LOADER_NET_CACHE, "loader of a server with a cache",
                BASE | DIAL | STAT | ADVISE | RING | TCP | WRITE,
                "written: the file of its cache; read only: its copies, which are open",
                "Unix sockets, TCP to the ports of its servers")
SANDBOX_PROFILE(LOADER_TLS_CACHE, "loader of a server with TLS and a cache",
                BASE | DIAL | STAT | ADVISE | RING | TCP | OPEN | WRITE,
                "written: the file of its cache; read only: its copies, which are open, and its "
                "keys",
                "Unix sockets, TCP to the ports of its servers")
/* Its library reads its file and keys for each connection, and has threads. */
SANDBOX_PROFILE(LOADER_CEPH, "loader of a Ceph cluster",
                BASE | DIAL | STAT | ADVISE | RING | TCP | OPEN,
                "read only: its copies, which are open, and the directories of ceph.conf and of "
                "its keyring",
                "Unix sockets, TCP to the ports of Ceph (3300, 6789, 6800 to 7568)")
SANDBOX_PROFILE(LOADER_CEPH_CACHE, "loader of a Ceph cluster with a cache",
                BASE | DIAL | STAT | ADVISE | RING | TCP | OPEN | WRITE,
                "written: the file of its cache; read only: its copies, which are open, and the "
                "directories of ceph.conf and of its keyring",
                "Unix sockets, TCP to the ports of Ceph (3300, 6789, 6800 to 7568)")
SANDBOX_PROFILE(CACHE, "cache", BASE | DIAL | ACCEPT | FSTAT | PAGES, "none", "Unix sockets")
SANDBOX_PROFILE(PREDICTOR, "predictor", BASE | DIAL | FSTAT, "none", "Unix sockets")
SANDBOX_PROFILE(COMPUTE, "compute", BASE | DIAL | ACCEPT | BIND | STAT | PAGES,
                "socket files of the run directory", "Unix sockets")
SANDBOX_PROFILE(GATEWAY, "gateway", BASE | DIAL | ACCEPT | STAT, "none",
                "Unix sockets, connections of its TCP listener")
/* With --http-log, which it opens again when the file was renamed. */
SANDBOX_PROFILE(GATEWAY_LOG, "gateway with an access log", BASE | DIAL | ACCEPT | STAT | OPEN,
                "written: the directory of its log",
                "Unix sockets, connections of its TCP listener")
SANDBOX_PROFILE(RECORDER, "recorder", BASE | DIAL | FSTAT | WRITE, "its trace, which is open",
                "Unix sockets")
SANDBOX_PROFILE(PACK, "pack", BASE | STAT | OPEN | ADVISE | PAGES | WRITE | NAMES,
                "read only: the model's; written: the store's", "none")
/* With --gpu. Programs that a driver compiles need executable memory. */
SANDBOX_PROFILE(COMPUTE_GPU, "compute with a GPU",
                BASE | DIAL | ACCEPT | BIND | STAT | PAGES | OPEN | DEVICE,
                "devices in /dev/nvidia*, /dev/dxg, files of own threads in /proc; read only: "
                "libraries, /proc, /sys",
                "Unix sockets")

/* With --prefix-dir. */
SANDBOX_PROFILE(COMPUTE_FILES, "compute with --prefix-dir",
                BASE | DIAL | ACCEPT | BIND | STAT | PAGES | OPEN | PREFIXES,
                "socket files of the run directory; written: files in the directory of prefixes",
                "Unix sockets")
SANDBOX_PROFILE(COMPUTE_GPU_FILES, "compute with a GPU and --prefix-dir",
                BASE | DIAL | ACCEPT | BIND | STAT | PAGES | OPEN | PREFIXES | DEVICE,
                "those of compute with a GPU; written: files in the directory of prefixes",
                "Unix sockets")

SANDBOX_VARIABLE("LANG")
SANDBOX_VARIABLE("LC_ALL")
SANDBOX_VARIABLE("TZ")
SANDBOX_VARIABLE("LD_LIBRARY_PATH")
SANDBOX_VARIABLE("CUDA_VISIBLE_DEVICES") /* numbers of GPUs are those of the supervisor */
SANDBOX_VARIABLE("CUDA_DEVICE_ORDER")
SANDBOX_SECRET("AWS_ACCESS_KEY_ID")
SANDBOX_SECRET("AWS_SECRET_ACCESS_KEY")
SANDBOX_SECRET("AWS_SESSION_TOKEN")
#undef SANDBOX_GROUP
#undef SANDBOX_PROFILE
#undef SANDBOX_VARIABLE
#undef SANDBOX_SECRET
