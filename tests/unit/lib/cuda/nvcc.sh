#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# nvcc.sh NVCC ROOT REASON MODULE: nvcc compiles every kernel without a warning. The build did so if it made the module
# (REASON is empty), which then has to be there. --long (SLUICE_LONG=1): also to machine code for the oldest and the newest
# target.
set -u -o pipefail

nvcc=$1
root=$2
reason=$3
module=$4
status=0
if [ -n "$reason" ]; then
    echo "SKIP cuda_nvcc: the CUDA module is not built: $reason"
elif [ -f "$module" ]; then
    echo "ok cuda_nvcc: $module"
else
    echo "not ok cuda_nvcc: $module was not built"
    status=1
fi
[ "${SLUICE_LONG:-0}" != 0 ] && [ -x "$nvcc" ] || exit $status
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
for source in "$root"/lib/cuda/*.cu "$root"/lib/cuda/*/*.cu; do
    for target in 75 120; do
        if text=$("$nvcc" -std=c++17 -O3 -fmad=false -Werror all-warnings -I"$root" -arch=sm_$target -cubin "$source" -o "$out/x" 2>&1); then
            echo "ok cuda_nvcc $(basename "$source") sm_$target"
        else
            echo "$text" | head -20
            echo "not ok cuda_nvcc $(basename "$source") sm_$target"
            status=1
        fi
    done
done
exit $status
