#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# nvcc.sh NVCC ROOT: every kernel compiles with nvcc without a warning. To PTX for the oldest target, which shows
# what nvcc rejects; --long (SLUICE_LONG=1): to machine code for the oldest and the newest.
set -u -o pipefail

nvcc=$1
root=$2
if [ ! -x "$nvcc" ]; then
    echo "SKIP cuda_nvcc: there is no nvcc"
    exit 0
fi
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
kinds=("-arch=compute_75 -ptx")
[ "${SLUICE_LONG:-0}" = 0 ] || kinds=("-arch=sm_75 -cubin" "-arch=sm_120 -cubin")
status=0
for source in "$root"/lib/cuda/*.cu "$root"/lib/cuda/*/*.cu; do
    for kind in "${kinds[@]}"; do
        # shellcheck disable=SC2086  # two arguments
        if text=$("$nvcc" -std=c++17 -O3 -fmad=false -Werror all-warnings -I"$root" $kind "$source" -o "$out/x" 2>&1); then
            echo "ok cuda_nvcc $(basename "$source") $kind"
        else
            echo "$text" | head -20
            echo "not ok cuda_nvcc $(basename "$source") $kind"
            status=1
        fi
    done
done
exit $status
