/* SPDX-License-Identifier: Apache-2.0 */
/* Every parameter of the engine: option --name of `sluice run` and `generate`, key in a --config
 * file, field of struct params, line of the help and the documentation.
 *
 *   PARAM_U64(name, default, min, max, unit, help)   whole number
 *   PARAM_BYTES(name, default, min, max, help)       size with suffix
 *   PARAM_F64(name, default, min, max, unit, help)   number
 *   PARAM_BOOL(name, default, help)                  on | off
 *   PARAM_CHOICE(name, default, "a|b|c", help)       one of the listed words
 *   PARAM_TEXT(name, default, help)                  at most PARAM_TEXT_BYTES - 1 bytes
 *
 * No include guard; undefined macros expand to nothing. Underscores become dashes on the command
 * line. */
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
            "memory limit of all engine processes together, such as 8GiB; 0: half of the "
            "available memory, or the minimum for the model if that is more")
PARAM_F64(resident_experts, 100.0, 0.01, 100.0, "%",
          "maximum share of the experts' bytes that may be resident")
PARAM_TEXT(preset, "default",
           "named set of policies; presets that may change the output are never chosen implicitly "
           "(`sluice sim --help` lists presets; `sluice ctl preset` changes it at run time)")
PARAM_TEXT(policy, "",
           "policy parameters K=V,... that override preset and plan, e.g. "
           "eviction=arc,prefetch=none (`sluice sim --help` lists them)")
PARAM_F64(max_loss, 0.0, 0.0, 100.0, "%",
          "maximum increase of perplexity, of the plan's bound on held-out text: limits the "
          "candidates of preset auto (0: lossless only) and, if above 0, presets selected by name")
PARAM_TEXT(plan, "", "plan file written by `sluice plan` or `sluice profile` for this model")
PARAM_BOOL(
    no_tune, false,
    "with --max-loss, without --preset, --policy and --plan: do not offer to tune this model; "
    "a tuning that is recorded is not used either (docs/tune.md)")
PARAM_U64(threads, 0, 0, 256, "threads", "compute threads; 0: one per core")
PARAM_U64(
    ctx_size, 0, 0, 1048576, "tokens",
    "maximum tokens of a sequence (prompt and response), 16 or more; its KV cache counts against "
    "the budget; 0: those of the model, or fewer where their KV cache is too large "
    "(docs/memory.md)")
PARAM_CHOICE(
    kv_type, "f16", "f16|q8_0|q4_0",
    "type of keys and values; q8_0 and q4_0 need 0.53 and 0.28 times the memory of f16 and "
    "change the output")
PARAM_U64(parallel, 0, 0, 64, "sequences",
          "sequences computed together, which share the experts of a pass and the KV cache of "
          "--ctx-size; others wait; 0: up to 4, without memory for recurrent states of their own "
          "(docs/memory.md); 1 with --deterministic")
PARAM_BYTES(
    keep_kv, 1099511627776, 0, UINT64_MAX / 4,
    "maximum keys and values kept after sequences for a prompt that begins with the same "
    "tokens: in the KV cache of --ctx-size, and in memory that experts do not need or lend; "
    "0: none (docs/reuse.md)")
PARAM_TEXT(
    prefix_dir, "",
    "directory in which kept prefixes survive a restart; it is made if it does not exist, and must "
    "be writable by this user only; empty: none (docs/reuse.md)")
PARAM_BYTES(
    prefix_dir_bytes, 4294967296, 1048576, UINT64_MAX / 4,
    "maximum bytes of the files in --prefix-dir, which never take more than half of the space that "
    "would be free without them")
PARAM_U64(state_checkpoints, 4, 1, 32, "states",
          "checkpoints of a recurrent state and of windows (models that have them); a prompt that "
          "begins as an earlier one continues from one of them. They count against the budget, and "
          "two more of a recurrent state")
PARAM_U64(checkpoint_tokens, 512, 16, 1048576, "tokens",
          "tokens between two checkpoints of a recurrent state or of windows; others are near the "
          "end of the prompt and at the end of the response")
PARAM_U64(
    prefill_chunk, 0, 0, 4096, "tokens",
    "prompt tokens computed in one pass; 0: 512, or 256 where 512 would need more than 1/64 of "
    "the budget in addition")
PARAM_U64(
    max_token_gap, 0, 0, 3600000, "ms",
    "how long a pass may take when it has rows of prompts and of running responses, which wait for "
    "their next token meanwhile; 0: four times as long as a pass of responses alone, from 200 ms "
    "to 4 s")
PARAM_U64(max_queue, 16, 1, 32, "requests",
          "maximum waiting sequences; further requests are rejected as busy")
PARAM_TEXT(eviction, "", "eviction policy; empty: from the preset")
PARAM_TEXT(prediction, "", "source of expert predictions, or none; empty: from the preset")
PARAM_U64(loaders, 1, 1, 16, "processes", "loader processes; experts are striped over them")
PARAM_TEXT(
    devices, "",
    "comma-separated storage devices, one loader each: PATH[:KEY=VALUE]...; PATH: a copy of the "
    "model file or a stripe of the store; KEY: backend, queue_depth, io_size, direct_io, throttle, "
    "cache or mirror (docs/devices.md)")
PARAM_TEXT(
    device_cache, "",
    "DIR:SIZE, such as /ssd/cache:200GiB: each loader of a server keeps what it reads in a file of "
    "at most SIZE there, across starts (docs/network_stores.md)")
PARAM_TEXT(
    origin, "",
    "the server that has the model: -m URL sets it, and nothing else (docs/network_stores.md)")
PARAM_TEXT(cache_dir, "",
           "where `-m URL` keeps all of a model but its experts; \"\": $XDG_CACHE_HOME/sluice "
           "(~/.cache/sluice)")
PARAM_U64(
    device_errors, 3, 1, 1000, "experts",
    "consecutive failed experts after which a storage device is quarantined until `ctl replace`")
PARAM_U64(
    device_timeout, 10000, 100, 3600000, "ms",
    "a storage device that completes no read within this time is quarantined until `ctl replace`")
PARAM_CHOICE(backend, "auto", "auto|io_uring|pread", "read interface of the loaders")
PARAM_U64(queue_depth, PARAMS_QUEUE_DEPTH, 1, 128, "reads", "maximum reads in flight per loader")
PARAM_BYTES(
    io_size, 2097152, 4096, 16777216,
    "maximum size of one read; prefetch reads are smaller on slow storage devices, and a demand "
    "waits for at most two of them")
PARAM_BYTES(
    throttle, 0, 0, UINT64_MAX / 4,
    "bandwidth limit per loader in bytes per second; 0: none (`sluice ctl throttle` changes it)")
PARAM_BOOL(direct_io, true,
           "read with O_DIRECT; off: read through the page cache and drop the pages")
PARAM_BOOL(warm_start, true,
           "while storage is idle, load the experts that earlier runs of this model used most; "
           "the list, a few kilobytes, is in $XDG_CACHE_HOME/sluice (~/.cache/sluice)")
PARAM_BOOL(prefault, true,
           "allocate arena pages ahead of loads while no demand is pending: all free capacity "
           "while no sequence runs, otherwise 64 MiB")
PARAM_BOOL(huge_pages, true,
           "put experts of at least 1 MiB in huge pages if the kernel provides them")
PARAM_TEXT(gpu, "off",
           "NVIDIA GPUs to compute with: a number, several numbers (0,1), auto (the first GPU if "
           "it can be used, else the CPU), or off (docs/gpu.md)")
PARAM_BYTES(gpu_budget, 0, 0, UINT64_MAX / 4,
            "maximum memory of each GPU; 0: nine tenths of its memory")
PARAM_U64(
    gpu_layers, 0, 0, 512, "layers",
    "the GPUs compute so many layers, from the first one on, and the CPU the others; 0: chosen by "
    "measured times, or else all that fit")
PARAM_CHOICE(
    gpu_policy, "auto", "auto|gpu-centric|cooperative|prefetch",
    "experts of a token that are not on the GPU: gpu-centric copies them to it, cooperative "
    "computes them on the CPU, prefetch also copies those predicted for the next layer, "
    "auto uses the fastest (docs/gpu.md)")
PARAM_TEXT(gpu_eviction, "lru",
           "which expert on the GPU gives its slot to another one: by an eviction of docs/sim.md, "
           "but for learned")
PARAM_CHOICE(isa, "auto", "auto|generic|avx2|avxvnni|avx512|avx512vbmi|amx|neon|dotprod",
             "instruction set of the kernels")
PARAM_U64(nice, 5, 0, 19, "", "niceness of the compute threads; keeps control traffic responsive")
PARAM_U64(heartbeat_timeout, 3000, 100, 600000, "ms",
          "a process without a heartbeat for this long is killed and restarted")
PARAM_BOOL(watchdog, true, "kill processes whose heartbeat is late; off only for measurements")
PARAM_U64(load_timeout, 30000, 100, 3600000, "ms",
          "a request fails when it waits for an expert and no loader makes progress for this long")
PARAM_U64(idle_timeout, 30000, 100, 3600000, "ms",
          "cancel a sequence not polled by its client for this long")
PARAM_CHOICE(cgroup, "auto", "auto|off|require",
             "also enforce the budget with a memory cgroup (hard limit)")
PARAM_CHOICE(
    sandbox, "auto", "auto|require|off",
    "processes give up files, network and system calls that they do not need "
    "(docs/sandbox.md); auto: what the kernel provides; require: the start fails if something is "
    "missing; off: no restriction, and children keep the environment, for debuggers")
PARAM_CHOICE(log_level, "info", "debug|info|warn|error|none", "minimum level that is logged")
PARAM_CHOICE(
    log_format, "text", "text|json|journal",
    "lines of the log: text with a time stamp, JSON objects, or with the priorities of systemd's "
    "journal")
PARAM_BOOL(deterministic, false,
           "decide by simulated residency and time instead of the actual state: reproducible "
           "output of lossy presets, and statistics equal to those of `sluice sim`")
PARAM_TEXT(trace, "", "record the access log in this trace file, which must not exist")
PARAM_BOOL(trace_logits, false,
           "--trace also records the router logits of decoded tokens (docs/trace.md)")
PARAM_BOOL(trace_inputs, false, "--trace also records the gate inputs of decoded tokens")
PARAM_BOOL(trace_rows, false,
           "--trace also records the rows read of a table on storage: they give the text away")
PARAM_BOOL(force, false, "overwrite the file of --trace")
PARAM_TEXT(http, "",
           "listen address of the HTTP gateway: ADDRESS:PORT, or PORT for 127.0.0.1; empty: no "
           "gateway (docs/gateway.md)")
PARAM_TEXT(http_key, "",
           "API key required from gateway clients; visible to other users in the process list, so "
           "prefer http-key-file")
PARAM_TEXT(http_key_file, "", "file whose first line is the API key")
PARAM_TEXT(http_log, "",
           "file to which the gateway appends a line per request: time, client, method, path, "
           "status, bytes, seconds, tokens; a renamed file is made again")
PARAM_TEXT(http_origins, "",
           "origins of web pages that may use the gateway, separated by commas, such as "
           "http://localhost:3000; *: all")
PARAM_TEXT(
    alias, "",
    "name of the model for clients of the gateway, at most 127 bytes; empty: that of its file")
PARAM_U64(http_connections, 640, 4, 4096, "connections",
          "maximum gateway connections; their maximum memory is reserved in the budget")
PARAM_U64(http_streams, 32, 1, 64, "requests", "maximum concurrent completions of the gateway")
PARAM_BYTES(http_body, 1048576, 1024, 33554432, "maximum size of a request body")
PARAM_BYTES(http_prompt, 524288, 1, 524288, "maximum size of a prompt, chat template included")
PARAM_BYTES(http_buffer, 2097152, 65536, 268435456,
            "maximum request and response bytes buffered for all clients together")
PARAM_BYTES(http_stored, 524288, 0, 268435456,
            "maximum size of all stored responses together; 0: none is stored")
PARAM_U64(http_stored_count, 64, 1, 4096, "responses", "maximum number of stored responses")
PARAM_U64(http_timeout, 30, 1, 3600, "s",
          "a client that neither sends nor reads for this long is disconnected")
#undef PARAM_U64
#undef PARAM_BYTES
#undef PARAM_F64
#undef PARAM_BOOL
#undef PARAM_CHOICE
#undef PARAM_TEXT
