#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run_fuzz.sh SECONDS [TARGET...]: builds every fuzz target with clang, libFuzzer, ASan and UBSan, and runs each
# for SECONDS, two at a time, starting from a copy of its committed corpus. FUZZ_OPTIMISE: the compiler's option, -O2
# (default) for long runs; with -O0 the build takes a quarter of the time. FUZZ_COVERAGE=1: -O0, and coverage.sh measures
# these programs, which need no other build; nor does the gateway of ../scenario/sanitized.sh; the random numbers start
# from one seed, so that CI judges a change and not chance. Exit status: 0 no finding (or SKIP: libFuzzer is not available), 1 a finding (its input is stored in build-fuzz/findings), 2 wrong usage or a failed build.
set -u
seconds=${1:-}
case $seconds in
'' | *[!0-9]*)
    echo "usage: run_fuzz.sh SECONDS [TARGET...]" >&2
    exit 2
    ;;
esac
shift
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
build=${SLUICE_FUZZ_BUILD:-$root/build-fuzz}

probe=$(mktemp -d) || exit 2
trap 'rm -rf "$probe"' EXIT
echo '#include <stddef.h>
int LLVMFuzzerTestOneInput(const char *d, size_t n) { return d && n ? 0 : 0; }' >"$probe/p.c"
if ! clang -fsanitize=fuzzer,address,undefined "$probe/p.c" -o "$probe/p" 2>"$probe/why"; then
    [ "${FUZZ_COVERAGE:-}" = 1 ] && { # CI: it must not pass without fuzzing
        echo "clang with libFuzzer and sanitizers is not usable here: $(head -n 1 "$probe/why")" >&2
        exit 2
    }
    echo "SKIP fuzzing: clang with libFuzzer and sanitizers is not usable here ($(head -n 1 "$probe/why"))"
    exit 0
fi

targets=$*
if [ -z "$targets" ]; then
    for file in "$here"/*_fuzz.c; do
        name=$(basename "$file" _fuzz.c)
        targets="$targets $name"
    done
fi
programs=
for name in $targets; do
    programs="$programs ${name}_fuzz"
done

coverage=OFF
reports=
seed=0 # libFuzzer: another one in each run
[ "${FUZZ_COVERAGE:-}" = 1 ] && coverage=ON && reports=$root/build-asan/report && seed=1 && programs="$programs sluice-gateway"
export LLVM_PROFILE_FILE=/dev/null # of a run; coverage.sh makes its own
cmake -G Ninja -S "$root" -B "$build" -DCMAKE_C_COMPILER=clang -DSLUICE_FUZZ=ON -DSLUICE_COVERAGE=$coverage -DSLUICE_REPORTS="$reports" \
    -DSLUICE_SANITIZE=address,undefined -DCMAKE_C_FLAGS_RELWITHDEBINFO="${FUZZ_OPTIMISE:--O2} -g -DNDEBUG" >"$probe/log" 2>&1 &&
    ninja -C "$build" $programs >>"$probe/log" 2>&1 || {
    tail -n 40 "$probe/log" >&2
    echo "the fuzz targets do not build" >&2
    exit 2
}

export TMPDIR="$probe" # for the files that targets make
findings=$build/findings
mkdir -p "$findings"

# fuzz NAME: one target, for its time. Fails if there is a finding.
fuzz() {
    name=$1
    work=$build/corpus/$name
    rm -rf "$work"
    mkdir -p "$work"
    cp "$here/corpus/$name"/* "$build/tests/fuzz/seeds/$name"/* "$work"/ 2>/dev/null
    log=$build/${name}_fuzz.log
    dictionary=
    [ -f "$here/dict/$name.dict" ] && dictionary=-dict=$here/dict/$name.dict
    # shellcheck disable=SC2086  # no word if there is no dictionary
    if "$build/tests/${name}_fuzz" "$work" $dictionary -seed="$seed" -max_total_time="$seconds" -timeout=10 \
        -rss_limit_mb=2048 -max_len=25000 -print_final_stats=1 \
        -artifact_prefix="$findings/$name-" >"$log" 2>&1; then
        runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
        cov=$(sed -n 's/.* cov: \([0-9]*\) ft: .*/\1/p' "$log" | tail -n 1)
        echo "$name: no finding in $seconds s, $runs runs, $cov edges"
    else
        tail -n 40 "$log" >&2
        echo "$name: FINDING, see $log and $findings" >&2
        return 1
    fi
}

# Two at a time, which take equally long.
failed=0
# shellcheck disable=SC2086  # a list of words
set -- $targets
while [ $# -gt 0 ]; do
    fuzz "$1" &
    first=$!
    if [ $# -gt 1 ]; then
        fuzz "$2" || failed=1
        shift
    fi
    wait "$first" || failed=1
    shift
done
exit $failed
