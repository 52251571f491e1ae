#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures the cost of the separate processes when they are idle:
#   tests/bench/process_cost.sh [PAIRS [MODEL]]
# One engine with every expert resident and the watchdog off. Two variants alternate: the whole engine, and compute
# alone with predictor, cache and loaders stopped (SIGSTOP). The ratio of each pair's decode rates is one
# sample; printed are the medians and the 95 % bootstrap interval of the median ratio (fixed seed).
set -u -o pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
libexec=${SLUICE_LIBEXEC:-$root/build/libexec}
pairs=${1:-60}
model=${2:-$root/launch/demo/tiny-books-moe-q8_0.gguf}
tokens=${SLUICE_TOKENS:-1500}

SLUICE_RUN_DIR=$(mktemp -d /tmp/sluice-bench.XXXXXX)
export SLUICE_RUN_DIR
engine=
idle=()
finish() {
    [ ${#idle[@]} -gt 0 ] && kill -CONT "${idle[@]}" 2>/dev/null
    [ -n "$engine" ] && kill "$engine" 2>/dev/null && wait "$engine" 2>/dev/null
    rm -rf "$SLUICE_RUN_DIR"
}
trap finish EXIT

"$libexec/sluice-run" -m "$model" --name cost --watchdog off --log-level error 2>/dev/null &
engine=$!
until "$libexec/sluice-ctl" --name cost status 2>/dev/null | grep -q '^state *ready'; do
    kill -0 "$engine" 2>/dev/null || {
        echo "process_cost.sh: the engine did not start" >&2
        exit 1
    }
done

# Everything the supervisor started except compute.
read -ra children < <(cat "/proc/$engine/task/"*/children)
for child in "${children[@]}"; do
    case $(readlink "/proc/$child/exe") in
    */sluice-compute) ;;
    *) idle+=("$child") ;;
    esac
done

counter() {
    "$libexec/sluice-stats" --name cost --counters | awk -v key="$1" '$1 == key { print $2 }'
}

decode_rate() {
    "$libexec/sluice-generate" --name cost -p "$1" -n "$tokens" --temp 0 --ignore-eos --output json -q |
        awk -F': ' '/"decode_tps"/ { sub(",", "", $2); print $2 }'
}

prompt='Once upon a time there lived a king who had three sons'
misses=-1
until [ "$(counter compute.0.misses)" = "$misses" ]; do # until a round misses nothing
    misses=$(counter compute.0.misses)
    decode_rate "$prompt" >/dev/null || exit 1
done

samples=$SLUICE_RUN_DIR/samples
for ((i = 0; i < pairs; i++)); do
    # The order alternates too.
    for variant in $((i % 2)) $((1 - i % 2)); do
        if [ "$variant" -eq 0 ]; then
            whole=$(decode_rate "$prompt")
        else
            kill -STOP "${idle[@]}"
            alone=$(decode_rate "$prompt")
            kill -CONT "${idle[@]}"
        fi
    done
    echo "$whole $alone" >>"$samples"
    echo "pair $((i + 1)) of $pairs: engine $whole, compute alone $alone tokens/s" >&2
done
[ "$(counter compute.0.misses)" = "$misses" ] || echo "note: experts were missed while measuring" >&2

awk '
    function median(a, n,    i, j, t, b) {
        for (i = 1; i <= n; i++) b[i] = a[i]
        for (i = 2; i <= n; i++) { t = b[i]; for (j = i - 1; j > 0 && b[j] > t; j--) b[j + 1] = b[j]; b[j + 1] = t }
        return n % 2 ? b[(n + 1) / 2] : (b[n / 2] + b[n / 2 + 1]) / 2
    }
    { n++; whole[n] = $1; alone[n] = $2; ratio[n] = $1 / $2 }
    END {
        srand(1); rounds = 2000
        for (r = 1; r <= rounds; r++) {
            for (i = 1; i <= n; i++) draw[i] = ratio[1 + int(rand() * n)]
            m[r] = median(draw, n)
        }
        for (i = 2; i <= rounds; i++) { t = m[i]; for (j = i - 1; j > 0 && m[j] > t; j--) m[j + 1] = m[j]; m[j + 1] = t }
        printf "engine %.0f tokens/s, compute alone %.0f tokens/s (medians of %d pairs)\n", median(whole, n), median(alone, n), n
        printf "ratio %.4f, 95 %% interval %.4f to %.4f\n", median(ratio, n), m[int(rounds * 0.025) + 1], m[int(rounds * 0.975)]
    }' "$samples"
