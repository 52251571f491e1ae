#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# gpu_test.sh BUILD MODULE: gpu.sh without a GPU, and with the module whose GPU is memory of the process: results,
# resuming, limits, failures, the table.
# shellcheck disable=SC2317 # functions are called by check
set -u -o pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=$1
fake=$2
dir=$(mktemp -d /tmp/sluice-gpu-test.XXXXXX)
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/tmp"
export TMPDIR=$dir/tmp # what gpu.sh leaves, and nothing of another test
failed=0

check() { # NAME CONDITION...
    local name=$1
    shift
    if "$@"; then
        echo "ok gpu_test $name"
    else
        echo "not ok gpu_test $name"
        sed 's/^/#   /' "$dir/out"
        failed=1
    fi
}

# gpu STATUS RESULTS OPTIONS...: its output is in $dir/out.
gpu() {
    local want=$1 results=$2 status
    shift 2
    "$here/gpu.sh" -o "$dir/$results" -b "$build" "$@" >"$dir/out" 2>&1
    status=$?
    [ "$status" -eq "$want" ] || echo "gpu.sh $*: status $status" | tee -a "$dir/out"
    [ "$status" -eq "$want" ]
}

last_is() { [ "$(tail -1 "$dir/out")" = "$1" ]; }
has() { grep -Eq "$1" "$dir/out"; }
has_not() { ! has "$1"; }
table_has() { grep -Eq "$2" "$dir/$1/gpu.md"; }

limits() {
    "$here/gpu.sh" --parts | awk '{ sum += $2; if ($2 >= 480) bad = 1 } END { exit bad || sum > 2400 || NR < 10 }'
}

parts=$("$here/gpu.sh" --parts | wc -l)
check "every part is below 8 minutes, all below 40" limits

# shellcheck disable=SC2046 # words
check "synth makes the model of the part speed" "$build/libexec/sluice-synth" -q --dry-run -o "$dir/none.gguf" $("$here/gpu.sh" --shape)

# ---- without a GPU ----

unset SLUICE_TEST_GPU
export GPU_SH_EVERY=36 GPU_SH_TOKENS=4 GPU_SH_PROMPT=8 GPU_SH_KILL_TOKENS=24 GPU_SH_KILLS=1 GPU_SH_RUNS=1
if "$build/bench/gpu_bits" none device >"$dir/out"; then
    echo "SKIP gpu_test without a GPU: this machine has one"
else
    module=$([ -f "$build/libexec/libsluice_cuda.so" ] && echo 1 || echo 0)
    check "without a GPU it ends" gpu 0 none
    check "each part that needs a GPU is a counted skip" last_is "$module passed, 0 failed, $((parts - module)) skipped"
    check "a skip has its reason" has '^SKIP models .*: (no NVIDIA driver|the driver has no GPU|the build has no CUDA module)'
    check "the table has every part" [ "$(grep -c '^| [a-z]*: .* | \(ok\|SKIP\) |' "$dir/none/gpu.md")" -eq "$parts" ]
fi

# ---- with memory of the process ----

# At every sixth change: nothing but gpu.sh is tested here, the kernels and the engine have tests of their own.
if [ "${SLUICE_LONG:-}" != 1 ] && [ $((${SLUICE_TURN:-0} % 6)) -ne 0 ]; then
    echo "LEFT 1 case: gpu_test with a GPU in memory"
    exit $failed
fi
cp "$fake" "$dir/module.so"
export SLUICE_TEST=1 SLUICE_TEST_GPU=$dir/module.so PATH=$dir/bin:$PATH
mkdir "$dir/bin"
cat >"$dir/bin/compute-sanitizer" <<'SANITIZER'
#!/bin/sh
while [ "${1#--}" != "$1" ]; do shift 2; done
exec "$@"
SANITIZER
cat >"$dir/bin/ncu" <<'NCU' # two launches of one kernel and one of another, as ncu 2025.3 writes them
#!/bin/sh
while [ "${1#--}" != "$1" ]; do
    case $1 in
    --csv) shift ;;
    --log-file) file=$2; shift 2 ;;
    *) shift 2 ;;
    esac
done
cat >"$file" <<'CSV'
==PROF== Connected to process 1
"ID","Process ID","Kernel Name","Metric Name","Metric Unit","Metric Value"
"0","1","first(int)","dram__bytes_read.sum","Kbyte","3,000.00"
"0","1","first(int)","gpu__time_duration.sum","usecond","1.50"
"1","1","first(int)","dram__bytes_read.sum","Mbyte","3.00"
"1","1","first(int)","gpu__time_duration.sum","nsecond","1,500"
"2","1","void second<type, (int)4>(struct)","gpu__time_duration.sum","ns","1,000"
CSV
exec "$@"
NCU
chmod +x "$dir/bin/compute-sanitizer" "$dir/bin/ncu"
"$build/libexec/sluice-synth" -q -o "$dir/tiny.gguf" tiny arch=qwen3moe --type Q8_0 >/dev/null 2>&1
export GPU_SH_TEXT_MODEL=$dir/tiny.gguf GPU_SH_WORDS="Once upon"

check "-t leaves parts that could end later" gpu 3 fake -t 110 --only build,kernels,models
check "it states which" has '^left models: up to 120 s'
check "the other ones ran" has '^ok kernels .*: [0-9]+ products have the bits of the CPU, 0 do not'
check "the table has what is left" table_has fake '^\| models: .* \| not run \|'
check "the same command resumes" gpu 0 fake -m "$dir/tiny.gguf" --only sandbox,kernels,models,text,kills,memcheck,speed,profile
check "what has a result is not run again" has_not '^ok kernels'
check "golden models" has '^ok models .*: [0-9]+ models have the bits of the CPU, 0 do not, .*; [1-9][0-9]* tokens by a graph'
check "texts" has '^ok text .*: 14 texts of 4 tokens are the same'
check "kills" has '^ok kills .*: 1 kills, the same text'
check "compute-sanitizer" has '^ok memcheck'
check "speed" table_has fake 'GPU 10 %'
check "the sandbox permits what a driver needs" has '^ok sandbox'
check "time by kernel" table_has fake '^. first . 2 . 3 . 1\.5 . 75\.0 . 2000 .$'
check "and by its template" table_has fake '^. second<type, 4> . 1 . 1 . '
check "--again runs a part again" gpu 0 fake --only build,models --again build
check "it did" has '^ok build \('
check "and no other" has_not 'models \('

touch "$dir/fails"
check "a GPU that fails" gpu 1 broken -m "$dir/tiny.gguf" --only sandbox,kernels,text,speed,profile
check "is a counted failure, also where the CPU computes instead" last_is "0 passed, 5 failed, 0 skipped"
check "of which the reason is stated" has '^FAILED text .*the GPU is lost'
rm "$dir/fails"
GPU_SH_LIMIT=1 GPU_SH_EVERY=1 check "a part that is too slow" gpu 1 slow --only models
check "ends at its limit" has '^FAILED models .*: not finished within 1 s'
echo "another commit" >"$dir/slow/key"
check "results of another machine or commit" gpu 2 slow
check "nothing is left of an engine" [ -z "$(ls -A "$TMPDIR")" ]
exit $failed
