#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Everything that is to be run on a machine with a GPU, in parts that resume: docs/gpu.md.
#
#   gpu.sh -o DIR [-b BUILD] [-m MODEL] [-l LLAMA] [-t SECONDS] [--only PART,...] [--again PART,...]
#
#   -o DIR      results: PART.result (status, seconds, text), PART.log, and gpu.md, a table of all
#   -b BUILD    a finished build with the CUDA module; without it the part `build` makes DIR/build
#   -m MODEL    of the part `speed` (default: 8 layers of OLMoE's shape in Q4_K, random weights, 1.9 GiB, in DIR)
#   -l LLAMA    for the part `llama`: llama.cpp's source, which is built in DIR/llama, or a llama-bench with CUDA
#   -t SECONDS  start no part that could end later than this
#
# The same command again runs what has no result yet, and what was skipped. A part that exceeds its limit fails. Exit
# status: 0, 1 if a part failed, 2 for usage, 3 if -t left parts. The last line counts what passed, failed, was skipped.
# shellcheck disable=SC2015 # C of each A && B || C ends the part
set -u -o pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
self=$here/$(basename "${BASH_SOURCE[0]}")
SKIP=77 # exit status of a part that cannot be run here; its last line is the reason

# Part, limit in seconds, what it shows. Together at most 40 minutes, and each less than 8.
parts() {
    cat <<'PARTS'
build 420 the module for this GPU, and everything else
doctor 60 what sluice doctor reports of the GPU
sandbox 60 the engine uses the GPU with every part of the sandbox in effect
kernels 90 products of all types have the bits of the CPU
models 120 golden models of all architectures have the bits of the CPU
text 180 the same text with --gpu off, all experts on the GPU, 50 % and 10 %
kills 120 the same text when compute is killed
memcheck 240 compute-sanitizer: memory
racecheck 210 compute-sanitizer: races in shared memory
synccheck 120 compute-sanitizer: barriers
speed 240 decode and prefill at budgets of the GPU
profile 120 time on the GPU by kernel, of a prompt and of tokens
llama 420 llama.cpp with CUDA on the same file
PARTS
}

# Of the part `speed`: what synth makes.
shape() {
    echo olmoe-1b-7b layers=8 vocab=8192 --type Q4_K_S --pure
}

skip() {
    echo "$1" >&2
    exit $SKIP
}

fail() {
    echo "$1" >&2
    exit 1
}

# ---- what a part needs ----

need_build() {
    [ -x "$libexec/sluice-run" ] && [ -x "$bits" ] || skip "not built: $build"
    [ -f "$module" ] || skip "the build has no CUDA module: $module"
}

need_gpu() {
    need_build
    "$bits" "$module" device >/dev/null || skip "$("$bits" "$module" device | tail -1)"
}

need_python() {
    command -v python3 >/dev/null || skip "there is no python3"
}

# ---- engines ----

engine=
stop_engine() {
    [ -z "$engine" ] || { kill "$engine" 2>/dev/null && wait "$engine" 2>/dev/null; }
    engine=
}

# start_engine NAME MODEL OPTIONS...: in the background, until it is ready.
start_engine() {
    local name=$1 file=$2 i
    shift 2
    "$libexec/sluice-run" -m "$file" --name "$name" --log-level warn "$@" >>"$scratch/engine" 2>&1 &
    engine=$!
    for ((i = 0; i < 600; i++)); do
        [ "$("$libexec/sluice-stats" --name "$name" --json 2>/dev/null | value state)" = ready ] && return
        kill -0 "$engine" 2>/dev/null || break
        sleep 0.1
    done
    fail "an engine did not start: $(tail -1 "$scratch/engine")"
}

# value PATH: of the JSON on stdin.
value() {
    python3 -c '
import json, sys
try:
    v = json.load(sys.stdin)
    for key in sys.argv[1].split("."):
        v = v[key]
    print(v)
except (ValueError, KeyError):
    print("")' "$1"
}

counter() {
    "$libexec/sluice-stats" --name "$1" --counters | awk -v c="$2" '$1 == c { print $2 }'
}

gpu_options=(--gpu 0 --prefill-chunk 16 --ctx-size 512)
prompt=${GPU_SH_WORDS:-Once upon a time there lived a king who had three sons}

# budgets MODEL SHARE...: one --gpu-budget per line, with slots for that percentage of the experts, or the minimum.
budgets() {
    local file=$1 stats
    shift
    start_engine plan "$file" "${gpu_options[@]}"
    stats=$("$libexec/sluice-stats" --name plan --json)
    stop_engine
    python3 -c '
import json, sys
gpu = json.loads(sys.argv[1])["gpu"]
fixed = sum(n for part, n in gpu["plan"].items() if part != "experts")
for share in sys.argv[2:]:
    slots = max(int(gpu["slots"] * float(share) / 100), 8)
    print(fixed + min(slots, gpu["slots"]) * gpu["slot_bytes"])' "$stats" "$@"
}

# text_of MODEL TOKENS OPTIONS...
text_of() {
    local file=$1 tokens=$2 text_status
    shift 2
    "$libexec/sluice-generate" -m "$file" -p "$prompt" -n "$tokens" --temperature 0 --ignore-eos --name text \
        --prefill-chunk 16 --ctx-size 512 --log-level error "$@" 2>"$scratch/statistics"
    text_status=$?
    cat "$scratch/statistics" >&2
    [ "$text_status" -eq 0 ] && ! grep -q 'the GPU is lost' "$scratch/statistics"
}

# ---- the parts: the last line of their output is the text of their row ----

part_build() {
    if [ -n "$given" ]; then
        need_build
        echo "given: $build"
        return
    fi
    command -v cmake >/dev/null && command -v ninja >/dev/null || skip "there is no cmake or no ninja: launch/packages.txt"
    command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ] || skip "there is no nvcc"
    cmake -G Ninja -S "$root" -B "$build" && ninja -C "$build" || fail "the build failed"
    need_build
    sed -n 's/^-- CUDA module: .*, targets /for compute capabilities /p' "$log"
}

part_doctor() {
    need_gpu
    "$libexec/sluice-doctor" --no-device || fail "doctor failed"
    echo "the output is in doctor.log"
}

part_sandbox() {
    local lost
    need_gpu
    need_python
    start_engine sandbox "$root/launch/demo/tiny-books-moe-q8_0.gguf" "${gpu_options[@]}" --sandbox require
    "$libexec/sluice-generate" --name sandbox -p "$prompt" -n 8 --temperature 0 -q || fail "generate failed"
    lost=$(counter sandbox compute.0.gpu_lost)
    stop_engine
    [ "$lost" = 0 ] || fail "$(grep -h 'the GPU is lost' "$scratch/engine" | tail -1)"
    echo "with --sandbox require"
}

part_kernels() {
    need_gpu
    "$bits" "$module" kernels || fail "$(bits_summary)"
    bits_summary
}

part_models() {
    need_gpu
    "$bits" "$module" models "$every" || fail "$(bits_summary)"
    bits_summary
}

# Of the output so far.
bits_summary() {
    grep -h ' have the bits of the CPU' "$log" | tail -1
}

part_text() {
    local file n=0 budget policy policies
    need_gpu
    need_python
    "$libexec/sluice-synth" -q -o "$scratch/tiny.gguf" tiny arch=gpt-oss layers=4 window=64 rope_scaling=2 \
        rope_factor=8 rope_context=64 --type MXFP4 || fail "synth failed"
    # with slots for all or few, prefetch copies little, and texts take time
    printf 'gpu-centric cooperative%s\n' '' ' prefetch' '' >"$scratch/policies"
    for file in "$text_model" "$scratch/tiny.gguf"; do
        text_of "$file" "$tokens" --gpu off >"$scratch/want" || fail "--gpu off failed"
        budgets "$file" 100 50 10 >"$scratch/budgets" || fail "$(tail -1 "$scratch/budgets")"
        while read -r budget policies; do
            for policy in $policies; do
                text_of "$file" "$tokens" --gpu 0 --gpu-budget "$budget" --gpu-policy "$policy" >"$scratch/have" ||
                    fail "--gpu-budget $budget failed, $policy: $(tail -1 "$scratch/statistics")"
                cmp "$scratch/want" "$scratch/have" || fail "another text with --gpu-budget $budget, $policy, $file"
                n=$((n + 1))
            done
        done < <(paste -d ' ' "$scratch/budgets" "$scratch/policies")
    done
    echo "$n texts of $tokens tokens are the same as with --gpu off"
}

# One kill of compute in the middle of a text; false if the text ended before.
kill_once() {
    local want=$1 client before pid
    before=$(counter kills compute.0.tokens_decode)
    "$libexec/sluice-generate" --name kills -p "$prompt" -n "$kill_tokens" --temperature 0 --ignore-eos -q >"$scratch/have" &
    client=$!
    while kill -0 "$client" 2>/dev/null && [ "$(counter kills compute.0.tokens_decode)" -lt $((before + 2)) ]; do
        sleep 0.02
    done
    pid=$("$libexec/sluice-stats" --name kills --json | python3 -c '
import json, sys
print(next(p["pid"] for p in json.load(sys.stdin)["processes"] if p["service"] == "compute"))')
    if ! kill -0 "$client" 2>/dev/null; then
        wait "$client"
        return 1
    fi
    kill -9 "$pid"
    wait "$client" || fail "a client failed after a kill"
    cmp "$want" "$scratch/have" || fail "another text after a kill"
}

part_kills() {
    local file=$root/launch/demo/tiny-books-moe-q8_0.gguf kills=0 graphs=0 i
    need_gpu
    need_python
    text_of "$file" "$kill_tokens" --gpu off >"$scratch/want" || fail "--gpu off failed"
    start_engine kills "$file" --gpu 0 --prefill-chunk 16 --ctx-size 512
    for ((i = 0; i < kills_wanted; i++)); do
        kill_once "$scratch/want" && kills=$((kills + 1))
    done
    [ "$(counter kills compute.0.gpu_lost)" = 0 ] || fail "the GPU was lost after a kill"
    [ "$kills" -gt 0 ] || fail "every text ended before compute could be killed"
    for ((i = 0; i < 8 && graphs == 0; i++)); do # experts come to the GPU by use
        "$libexec/sluice-generate" --name kills -p "$prompt" -n "$kill_tokens" --temperature 0 --ignore-eos -q >"$scratch/have" &&
            cmp "$scratch/want" "$scratch/have" || fail "another text after the kills"
        graphs=$(counter kills compute.0.gpu_graph_launches)
    done
    stop_engine
    [ "$graphs" -gt 0 ] || fail "no token was a graph"
    echo "$kills kills, the same text, the GPU is used again, $graphs tokens by a graph"
}

sanitize() {
    local tool=$1 sanitizer
    sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
    need_gpu
    [ -x "$sanitizer" ] || skip "there is no compute-sanitizer (CUDA Toolkit)"
    shift
    "$sanitizer" --tool "$tool" --error-exitcode 9 --print-limit 20 "$bits" "$module" "$@" || fail "$tool: $*: see $tool.log"
}

part_memcheck() {
    sanitize memcheck kernels
    sanitize memcheck models $((8 * every))
    echo "no error in all products, and every $((8 * every))th golden model"
}

part_racecheck() {
    sanitize racecheck models $((16 * every))
    echo "no race in every $((16 * every))th golden model"
}

part_synccheck() {
    sanitize synccheck models $((16 * every))
    echo "no error in every $((16 * every))th golden model"
}

speed_model() {
    [ -n "$model" ] && return
    model=$out/model.gguf
    [ -f "$model" ] && return
    # shellcheck disable=SC2046 # words
    "$libexec/sluice-synth" -q -o "$model.part" $(shape) && mv "$model.part" "$model" || fail "synth failed"
}

part_speed() {
    local share budget variants=(--variant "label=CPU;gpu=off") shares=(100 50 25 10)
    need_gpu
    need_python
    speed_model
    gpu_options=(--gpu 0)
    budgets "$model" "${shares[@]}" >"$scratch/budgets" || fail "$(tail -1 "$scratch/budgets")"
    for share in "${shares[@]}"; do
        read -r budget
        variants+=(--variant "label=GPU $share %;gpu=0;gpu_budget=$budget")
    done <"$scratch/budgets"
    "$libexec/sluice-bench" -m "$model" -p "$prompt_tokens" -n "$tokens" -r "$runs" "${variants[@]}" >"$out/speed.md" ||
        fail "bench failed"
    cat "$out/speed.md"
    echo "below; $(basename "$model"), share of the experts that have slots on the GPU"
}

part_profile() {
    local ncu
    ncu=$(command -v ncu || echo /usr/local/cuda/bin/ncu)
    need_gpu
    need_python
    [ -x "$ncu" ] || skip "there is no ncu (CUDA Toolkit)"
    speed_model
    # without the sandbox children keep the variables of ncu; each kernel waits for it
    "$ncu" --target-processes all --graph-profiling node --cache-control none --clock-control none \
        --metrics gpu__time_duration.sum,dram__bytes_read.sum --launch-count 20000 --csv --log-file "$scratch/ncu" \
        "$libexec/sluice-bench" -m "$model" -p "$prompt_tokens" -n "$tokens" -r 1 --warmup 0 \
        --vary gpu=0 --vary sandbox=off --vary watchdog=off || fail "ncu failed"
    python3 "$here/gpu_profile.py" "$scratch/ncu" >"$scratch/profile.md" || fail "ncu measured nothing"
    mv "$scratch/profile.md" "$out/profile.md"
    cat "$out/profile.md"
    echo "below; $(basename "$model")"
}

build_llama() {
    cmake -G Ninja -S "$llama" -B "$out/llama" -DCMAKE_BUILD_TYPE=Release -DGGML_CUDA=ON \
        -DCMAKE_CUDA_ARCHITECTURES=native -DLLAMA_CURL=OFF && ninja -C "$out/llama" llama-bench ||
        skip "llama.cpp could not be built with CUDA: see llama.log"
}

part_llama() {
    local bench=$out/llama/bin/llama-bench
    need_gpu
    [ -n "$llama" ] || skip "neither llama.cpp's source nor a llama-bench was given (-l)"
    speed_model
    if [ -f "$llama" ]; then
        bench=$llama
    else
        build_llama
    fi
    { echo "llama.cpp, all layers on the GPU, then without the experts:"; echo
        "$bench" -m "$model" -p "$prompt_tokens" -n "$tokens" -r "$runs" -ngl 99 -o md &&
        "$bench" -m "$model" -p "$prompt_tokens" -n "$tokens" -r "$runs" -ngl 99 -ot exps=CPU -o md; } >"$out/llama.md" ||
        fail "llama-bench failed"
    echo "below"
}

# ---- running them ----

usage() {
    sed -n '/^#   gpu.sh/,/^# status:/p' "$self" | sed 's/^# \{0,1\}//' >&2
    exit 2
}

# What results are of: another commit or another GPU needs another directory.
key() {
    local commit gpu
    commit=$(git -C "$root" rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
    gpu=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | head -1)
    echo "$commit; ${gpu:-no nvidia-smi}; $(awk -F': ' '/^model name/ { print $2; exit }' /proc/cpuinfo), $(nproc) cores"
}

# run_part NAME LIMIT: its result in PART.result.
run_part() {
    local name=$1 limit=$2 started=$SECONDS status word text
    [ "$limit" -lt "$longest" ] || limit=$longest
    timeout -k 10 "$limit" "$self" -o "$out" --part "$name" >"$out/$name.log" 2>&1 </dev/null
    status=$?
    text=$(tail -1 "$out/$name.log" | tr '|' '/' | cut -c 1-200)
    case $status in
    0) word=ok ;;
    "$SKIP") word=SKIP ;;
    124 | 137) word=FAILED text="not finished within $limit s" ;;
    *) word=FAILED ;;
    esac
    printf '%s\n%s\n%s\n' "$word" $((SECONDS - started)) "$text" >"$out/$name.new"
    mv "$out/$name.new" "$out/$name.result"
    echo "$word $name ($((SECONDS - started)) s): $text"
}

# has_result NAME: one that stands; what was skipped is tried again.
has_result() {
    [ -f "$out/$1.result" ] && [ "$(head -1 "$out/$1.result")" != SKIP ]
}

listed() {
    case ,$1, in *,"$2",*) return 0 ;; *) return 1 ;; esac
}

table() {
    local name limit what word seconds text
    echo "# On a GPU, $(date -u +%Y-%m-%d)"
    echo
    echo "Commit, GPU and driver, processor: $(cat "$out/key")"
    echo
    echo '| part | result | s | what |'
    echo '|---|---|---:|---|'
    while read -r name limit what; do
        word='not run' seconds='' text="limit $limit s"
        [ -f "$out/$name.result" ] && { read -r word; read -r seconds; read -r text; } <"$out/$name.result"
        echo "| $name: $what | $word | $seconds | $text |"
    done < <(parts)
    for name in speed profile llama; do
        [ -f "$out/$name.md" ] && { echo; cat "$out/$name.md"; }
    done
}

results() {
    local name rest
    while read -r name rest; do
        [ -f "$out/$name.result" ] && head -1 "$out/$name.result"
    done < <(parts) | grep -cx "$1"
}

run_all() {
    local name limit what left=0
    while read -r name limit what; do
        [ -z "$only" ] || listed "$only" "$name" || continue
        has_result "$name" && continue
        if [ "$time" -gt 0 ] && [ $((SECONDS + limit)) -gt "$time" ]; then
            echo "left $name: up to $limit s"
            left=$((left + 1))
            continue
        fi
        run_part "$name" "$limit"
    done < <(parts)
    table >"$out/gpu.md"
    echo "the table: $out/gpu.md"
    echo "$(results ok) passed, $(results FAILED) failed, $(results SKIP) skipped"
    [ "$left" -eq 0 ] || exit 3
    [ "$(results FAILED)" -eq 0 ]
}

begin() {
    local name limit what
    mkdir -p "$out" || exit 2
    if [ -f "$out/key" ] && [ "$(key)" != "$(cat "$out/key")" ]; then
        echo "gpu.sh: $out has results of '$(cat "$out/key")', this is '$(key)'" >&2
        exit 2
    fi
    key >"$out/key"
    while read -r name limit what; do
        ! listed "$again" "$name" || rm -f "$out/$name.result" "$out/$name.md"
    done < <(parts)
    export GPU_SH_BUILD=$given GPU_SH_MODEL=$model GPU_SH_LLAMA=$llama
}

out='' given=${GPU_SH_BUILD:-} model=${GPU_SH_MODEL:-} llama=${GPU_SH_LLAMA:-} time=0 only='' again='' part=''
case ${1:-} in --parts | --shape) "${1#--}" && exit ;; esac
while [ $# -gt 0 ]; do
    [ $# -gt 1 ] || usage
    case $1 in
    -o) out=$2 ;;
    -b) given=$2 ;;
    -m) model=$2 ;;
    -l) llama=$2 ;;
    -t) time=$2 ;;
    --only) only=$2 ;;
    --again) again=$2 ;;
    --part) part=$2 ;;
    *) usage ;;
    esac
    shift 2
done
[ -n "$out" ] || usage
case $time in *[!0-9]*) usage ;; esac

build=${given:-$out/build}
libexec=$build/libexec
bits=$build/bench/gpu_bits
module=${SLUICE_TEST_GPU:-$libexec/libsluice_cuda.so}
log=$out/$part.log
# For tests, on a GPU that is slow: fewer golden models and tokens, a smaller model.
text_model=${GPU_SH_TEXT_MODEL:-$root/launch/demo/tiny-books-moe-q8_0.gguf}
every=${GPU_SH_EVERY:-1} tokens=${GPU_SH_TOKENS:-64} prompt_tokens=${GPU_SH_PROMPT:-256} runs=${GPU_SH_RUNS:-3}
kill_tokens=${GPU_SH_KILL_TOKENS:-400} kills_wanted=${GPU_SH_KILLS:-5} longest=${GPU_SH_LIMIT:-480}
if [ -n "$part" ]; then
    scratch=$(mktemp -d "${TMPDIR:-/tmp}/sluice-gpu.XXXXXX")
    export SLUICE_RUN_DIR=$scratch XDG_CACHE_HOME=$scratch/cache # no rates: all layers that fit
    trap 'stop_engine; rm -rf "$scratch"' EXIT
    trap 'exit 1' TERM INT
    "part_$part"
    exit
fi
begin
run_all
