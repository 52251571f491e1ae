#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The scenarios of the gateway with a gateway built with AddressSanitizer and UndefinedBehaviorSanitizer, in BUILD-asan;
# values of the JSON library are checked, too (tests/inject/json_checked.c). All other programs are those of BUILD. Any
# report fails.
# usage: sanitized.sh [BUILD]     default: build; SLUICE_SANITIZED_ONLY=1: only builds; SANITIZED_FUZZ=1: builds nothing and
# runs the gateway of FUZZ_COVERAGE=1 ../fuzz/run_fuzz.sh
set -u -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
build=$(realpath "${1:-build}")
asan=$build-asan
libexec=$asan/mixed
failed=0

mkdir -p "$asan"
if [ "${SANITIZED_FUZZ:-}" = 1 ]; then
    gateway="build-fuzz/libexec/sluice-gateway"
    # Without optimisation the frames of nested templates exceed the stack, and their steps the time; lib/jinja is fuzzed.
    templates=(repl_executes_the_template answers_in_parts)
    # Not in another place than that where this script looks.
    grep -q "^SLUICE_REPORTS:STRING=$asan/report$" build-fuzz/CMakeCache.txt && [ -x "$gateway" ] || {
        echo "not ok sanitized_build: run FUZZ_COVERAGE=1 tests/fuzz/run_fuzz.sh first"
        exit 1
    }
else
    gateway=$asan/libexec/sluice-gateway
    templates=(a_template_is_executed repl_executes_the_template answers_in_parts)
    cmake -G Ninja -S . -B "$asan" -DSLUICE_SANITIZE=address,undefined -DSLUICE_REPORTS="$asan/report" -DSLUICE_CUDA=OFF \
        -DSLUICE_TESTS=OFF -DCMAKE_C_FLAGS_RELWITHDEBINFO="-O1 -g1 -DNDEBUG -Wno-format-truncation" >"$asan/log" 2>&1 &&
        ninja -C "$asan" sluice-gateway >>"$asan/log" 2>&1 || {
        tail -20 "$asan/log"
        echo "not ok sanitized_build"
        exit 1
    }
fi
rm -rf "$libexec" "$asan"/report.*
mkdir "$libexec"
cp -l "$build"/libexec/* "$libexec"/ # no symbolic links: the engine finds its programs next to its own file
cp --remove-destination "$gateway" "$libexec/sluice-gateway"
[ "${SLUICE_SANITIZED_ONLY:-}" != 1 ] || exit 0

# run PROGRAM CASE...: those that measure memory, or use much of it, are left out: the sanitizer's is limited, too. Most wait
# most of the time, so that all programs run at once.
run() {
    SLUICE_LIBEXEC=$libexec "$build/tests/scenario_$1" --short "${@:2}" >"$asan/$1.out" 2>&1 || {
        cat "$asan/$1.out"
        echo "not ok sanitized_$1"
        return 1
    }
}

# named REPORT: its head, and the functions of its addresses, which the sandbox does not let the gateway find.
named() {
    local symbolizer
    head -40 "$1"
    symbolizer=$(command -v llvm-symbolizer llvm-symbolizer-14 | head -1)
    [ -z "$symbolizer" ] || grep -o 'sluice-gateway+0x[0-9a-f]*' "$1" | head -40 | sed 's/.*+//' |
        "$symbolizer" --obj="$gateway" --no-inlines --output-style=GNU | paste - -
}

jobs=()
trap 'kill "${jobs[@]}" 2>/dev/null; wait; exit 1' TERM
run gateway &
jobs+=($!)
run gateway_malformed &
jobs+=($!)
run gateway_clients disconnect_cancels queued_streams_get_an_error cancelled_within_a_token connections_are_bounded \
    slow_client_is_cut_off slow_reader_is_cut_off uploads_leave_space prompts_stay_counted &
jobs+=($!)
run gateway_scored && run gateway_tools && run gateway_dialects && run gateway_rejects && run answers && run http_log a_line_per_request a_renamed_file_is_made_again &&
    run templates "${templates[@]}" &
jobs+=($!)
for job in "${jobs[@]}"; do
    wait "$job" || failed=1
done
for report in "$asan"/report.*; do
    [ -e "$report" ] || continue
    named "$report"
    echo "not ok sanitized_reports: $report"
    failed=1
done
[ "$failed" = 1 ] || echo "ok gateway_sanitized"
exit "$failed"
