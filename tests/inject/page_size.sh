#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# An engine states that it does not support the kernel's page size, and starts nothing.
# usage: page_size.sh SOURCE BUILD
set -uo pipefail

run=("$2/libexec/sluice-run" -m "$1/launch/demo/tiny-books-moe-q8_0.gguf" --print-memory)
"${run[@]}" >/dev/null || {
    echo "sluice-run fails without the other page size, too"
    exit 1
}
out=$(LD_PRELOAD=$2/tests/libpage_shim.so "${run[@]}" 2>&1)
status=$?
if [ $status -ne 1 ] || ! grep -q "pages of 16384 bytes; sluice needs pages of 4096" <<<"$out"; then
    echo "status $status: $out"
    exit 1
fi
