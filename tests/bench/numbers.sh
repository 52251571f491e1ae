#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures the table of the demo model in docs/benchmarks.md:
#   tests/bench/numbers.sh [MODEL] [-- engine options]
# One engine per share of experts: a warm-up round, then 256 greedy tokens for each of three prompts, and three
# prompts of about 500 tokens for the prefill rate. Rates are tokens divided by the time that compute spent on
# them; memory is the maximum of the ledger. Markdown on stdout.
set -u -o pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
libexec=${SLUICE_LIBEXEC:-$root/build/libexec}
model=$root/launch/demo/tiny-books-moe-q8_0.gguf
shares=${SLUICE_SHARES:-100 50 25 18.75 12.5}
tokens=${SLUICE_TOKENS:-256}

if [ $# -gt 0 ] && [ "$1" != -- ]; then
    model=$1
    shift
fi
[ "${1:-}" = -- ] && shift
[ -x "$libexec/sluice-run" ] || {
    echo "numbers.sh: $libexec/sluice-run is not built" >&2
    exit 2
}

run_dir=$(mktemp -d /tmp/sluice-bench.XXXXXX)
export SLUICE_RUN_DIR=$run_dir
engine=
stop_engine() {
    [ -n "$engine" ] && kill "$engine" 2>/dev/null && wait "$engine" 2>/dev/null
    engine=
}
trap 'stop_engine; rm -rf "$run_dir"' EXIT

prompts=('It was a dark and stormy night, and'
    'The origin of species by means of natural selection'
    'Once upon a time there lived a king who had three sons')
long=
for _ in 1 2 3 4 5 6 7 8 9 10 11 12; do
    long+='The people of the village came together in the evening, when the work of the day was done, and spoke of the war, of the price of corn, and of the strange lights upon the hill. '
done

# Counters as one line of sums: decode tokens, ns; prefill tokens, ns; stall ns; hits; accesses; bytes; peak
snapshot() {
    "$libexec/sluice-stats" --name b --counters | awk '
        { split($1, at, "."); key = at[1] "." at[3]; sum[key] += $2 }
        END {
            printf "%.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f\n", sum["compute.tokens_decode"],
                sum["compute.decode_ns"], sum["compute.tokens_prefill"], sum["compute.prefill_ns"],
                sum["compute.stall_ns"], sum["compute.hits"], sum["compute.accesses"],
                sum["loader.bytes_read"], sum["supervisor.used_bytes_max"]
        }'
}

generate() {
    "$libexec/sluice-generate" --name b -p "$1" -n "$2" --temp 0 --ignore-eos -q >/dev/null || exit 1
}

measure() {
    local share=$1 before decode after prompt
    shift
    "$libexec/sluice-run" -m "$model" --name b --resident-experts "$share" --log-level error "$@" &
    engine=$!
    until "$libexec/sluice-ctl" --name b status 2>/dev/null | grep -q '^state *ready'; do
        kill -0 "$engine" 2>/dev/null || {
            echo "numbers.sh: the engine did not start with --resident-experts $share" >&2
            return 1
        }
    done
    for prompt in "${prompts[@]}"; do generate "$prompt" 64; done
    before=$(snapshot)
    for prompt in "${prompts[@]}"; do generate "$prompt" "$tokens"; done
    decode=$(snapshot)
    for prompt in "${prompts[@]}"; do generate "$prompt. $long" 1; done
    after=$(snapshot)
    stop_engine
    awk -v share="$share" -v b="$before" -v d="$decode" -v a="$after" 'BEGIN {
        split(b, B, " "); split(d, D, " "); split(a, A, " ")
        steps = D[1] - B[1] + D[3] - B[3]
        time = D[2] - B[2] + D[4] - B[4]
        uses = D[7] - B[7]
        printf "| %s %% | %.1f | %.1f | %.1f %% | %.2f MiB | %.1f %% | %.1f MiB |\n", share,
            (D[1] - B[1]) * 1e9 / (D[2] - B[2]), (A[3] - D[3]) * 1e9 / (A[4] - D[4]),
            uses ? 100 * (D[6] - B[6]) / uses : 0, (D[8] - B[8]) / steps / 1048576,
            100 * (D[5] - B[5]) / time, A[9] / 1048576
    }'
}

echo "| experts resident | decode tokens/s | prefill tokens/s | hit rate | read per token | waiting for experts | peak memory |"
echo "|---:|---:|---:|---:|---:|---:|---:|"
for share in $shares; do
    measure "$share" "$@" || exit 1
done
echo
printf '%s; %s cores (%s); %s greedy tokens of each of 3 prompts after a warm-up, options: %s\n' \
    "$(basename "$model")" "$(nproc)" \
    "$(awk -F': ' '/model name/ { print $2; exit }' /proc/cpuinfo)" "$tokens" "${*:-none}"
