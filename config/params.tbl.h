/* Every parameter of the engine: option --name on `sluice run` and `generate`, key in a --config
 * file, field of struct params, line in the help and the documentation. PARAM_U64(name, default,
 * min, max, unit, help)      whole number PARAM_BYTES(name, default, min, max, help)          size
 * with suffix PARAM_F64(name, default, min, max, unit, help) PARAM_BOOL(name, default, help) on |
 * off PARAM_CHOICE(name, default, "a|b|c", help)          one of the words PARAM_TEXT(name,
 * default, help)                     at most PARAM_TEXT_BYTES - 1 bytes No include guard; undefined
 * macros expand to nothing. Underscores are dashes on the command line. */
#ifndef PARAM_U64
#define PARAM_U64(name, def, min, max, unit, help)
#endif
#ifndef PARAM_BYTES
#define PARAM_BYTES(name, def, min, max, help)
#endif
#ifndef PARAM_F64
#define PARAM_F64(name, def, min, max, unit, help)
#endif
#ifndef PARAM_BOOL
#define PARAM_BOOL(name, def, help)
#endif
#ifndef PARAM_CHOICE
#define PARAM_CHOICE(name, def, choices, help)
#endif
#ifndef PARAM_TEXT
#define PARAM_TEXT(name, def, help)
#endif
PARAM_BYTES(budget, 0, 0, UINT64_MAX / 4,
            "memory of all engine processes together; 0 takes half of what is available")
PARAM_F64(resident_experts, 100.0, 0.01, 100.0, "%",
          "cap the experts' part of the arena at this share of their payload bytes")
PARAM_TEXT(
    preset, "default",
    "named set of policies; what may change the text is asked for by name (`sluice ctl preset` "
    "changes it; `sluice sim --help` lists them)")
PARAM_TEXT(policy, "",
           "single knobs over what the system and the plan say, e.g. eviction=arc,prefetch=none "
           "(`sluice sim --help` lists them)")
PARAM_F64(
    max_loss, 0.0, 0.0, 100.0, "%",
    "rise of perplexity a system may cost, by what the plan measured: what auto chooses among "
    "(0: lossless), and a limit for systems asked for by name")
PARAM_TEXT(plan, "", "file of `sluice plan` or `sluice profile`, made for this model")
PARAM_U64(threads, 0, 0, 256, "threads", "threads that compute; 0 takes one per core")
PARAM_U64(ctx_size, 2048, 16, 1048576, "tokens",
          "longest sequence (prompt and answer); its KV cache is part of the budget")
PARAM_U64(prefill_chunk, 256, 1, 4096, "tokens", "prompt tokens computed together")
PARAM_U64(max_queue, 16, 1, 32, "requests",
          "sequences that may wait; beyond it submit is refused as busy")
PARAM_TEXT(eviction, "", "which resident expert leaves first; empty: what the system says")
PARAM_TEXT(prediction, "",
           "where guesses about coming experts come from, or none; empty: what the system says")
PARAM_U64(loaders, 1, 1, 16, "processes", "loaders; experts are striped over them")
PARAM_TEXT(
    devices, "",
    "comma-separated storage devices, a loader for each: PATH[:KEY=VALUE]..., the path of a copy "
    "of "
    "the model file (of a stripe; empty: the model itself), and what is different there: backend, "
    "queue_depth, io_size, direct_io, throttle; mirror=PATH is read when the device fails "
    "(docs/devices.md)")
PARAM_U64(device_errors, 3, 1, 1000, "experts",
          "a device that fails to deliver so many in a row is quarantined until `ctl replace`")
PARAM_U64(device_timeout, 10000, 100, 3600000, "ms",
          "a device that completes no read for this long is quarantined until `ctl replace`")
PARAM_CHOICE(backend, "auto", "auto|io_uring|pread", "how loaders read")
PARAM_U64(queue_depth, 16, 1, 128, "reads", "chunk reads of one loader at the device at once")
PARAM_BYTES(io_size, 2097152, 4096, 16777216,
            "largest single read; a demand waits for at most two of prefetches, which are smaller "
            "on slow drives")
PARAM_BYTES(throttle, 0, 0, UINT64_MAX / 4,
            "bytes per second of every loader; 0 is none (ctl throttle changes it)")
PARAM_BOOL(direct_io, true, "read with O_DIRECT; off falls back to the page cache and drops it")
PARAM_BOOL(prefault, true,
           "allocate arena pages ahead of loads while no demand is open: all of the room while "
           "nothing is computed, 64 MiB else")
PARAM_BOOL(huge_pages, true,
           "lay experts of at least 1 MiB in huge pages where the kernel has them")
PARAM_CHOICE(isa, "auto", "auto|generic|avx2|avx512", "instruction set of the kernels")
PARAM_U64(nice, 5, 0, 19, "",
          "niceness of compute's worker threads, so that control traffic is not starved")
PARAM_U64(heartbeat_timeout, 3000, 100, 600000, "ms",
          "a process whose heartbeat is older is killed and replaced")
PARAM_BOOL(watchdog, true, "act on late heartbeats; off only for measurements")
PARAM_U64(load_timeout, 30000, 100, 3600000, "ms",
          "no progress of any loader for this long ends a request with an error")
PARAM_U64(idle_timeout, 30000, 100, 3600000, "ms",
          "a sequence nobody asks for is cancelled after this")
PARAM_CHOICE(cgroup, "auto", "auto|off|require",
             "put a memory cgroup around the engine as a second wall")
PARAM_CHOICE(log_level, "info", "debug|info|warn|error|none", "least level that is logged")
PARAM_BOOL(deterministic, false,
           "decide by modelled residency and time instead of what is there: reproducible text of "
           "lossy systems, and figures that `sluice sim` repeats")
PARAM_TEXT(trace, "", "record the use log to this file")
PARAM_TEXT(http, "",
           "address the gateway listens on for HTTP: ADDRESS:PORT, or PORT of 127.0.0.1; empty: no "
           "gateway (docs/gateway.md)")
PARAM_TEXT(http_key, "",
           "key that clients of the gateway must show; others can read it in the command line: see "
           "http-key-file")
PARAM_TEXT(http_key_file, "", "file whose first line is that key")
PARAM_U64(http_connections, 640, 4, 4096, "connections",
          "connections of the gateway; what they can come to is held in the budget")
PARAM_U64(http_streams, 32, 1, 64, "requests", "completions the gateway has under way")
PARAM_BYTES(http_body, 1048576, 1024, 2097152, "largest body of a request to the gateway")
PARAM_BYTES(http_prompt, 524288, 1, 524288, "longest prompt the gateway takes, template included")
PARAM_BYTES(http_buffer, 2097152, 65536, 268435456,
            "bodies and answers the gateway holds at once, all clients together")
PARAM_U64(http_timeout, 30, 1, 3600, "s",
          "a client of the gateway that neither sends nor reads for this long is cut off")
#undef PARAM_U64
#undef PARAM_BYTES
#undef PARAM_F64
#undef PARAM_BOOL
#undef PARAM_CHOICE
#undef PARAM_TEXT
