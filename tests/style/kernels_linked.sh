#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# No kernels are in programs that do not compute: their code counts against every budget.
# usage: kernels_linked.sh BUILD
set -euo pipefail

bad=0
for name in run cache loader gateway; do
    symbols=$(nm "$1/libexec/sluice-$name")
    grep -q " main$" <<<"$symbols" || {
        echo "sluice-$name has no symbols: cannot tell"
        exit 77
    }
    if grep -qE " (generic|avx2|avxvnni|avx512|vbmi|amx|neon|dotprod)_ops$" <<<"$symbols"; then
        echo "sluice-$name has kernels; find what refers to them with -Wl,-Map=FILE"
        bad=1
    fi
done
exit $bad
