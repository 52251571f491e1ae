#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# nested.sh [TEXT...]: perplexity of the demo model with experts at 8, 4 and 2 bits, stored separately or
# nested (base and differences); about 5 minutes on two cores. Texts: by default the held-out ones.
# Needs a build with tests; writes about 600 MB to a temporary directory that is removed.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
build=${SLUICE_BUILD:-$root/build}
[ $# -gt 0 ] || set -- "$root"/tests/golden/data/heldout/*.txt
model=$build/tests/golden/tiny-books-moe-f16.gguf
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"$build/bench/nested_models" "$model" "$dir"
cp "$model" "$dir/native.gguf"
for form in native separate_8 prefix_8 residual_8 separate_4 prefix_4 fitted_4 residual_4 \
    separate_2 prefix_2 fitted_2; do
    for text in "$@"; do
        "$build/libexec/sluice-eval" -m "$dir/$form.gguf" --text "$text" --ctx-size 512 --output json 2>/dev/null
    done | awk -v form="$form" '
        /"ppl"/ { gsub(/[^0-9.e+-]/, "", $2); ppl = $2 }
        /"tokens"/ { gsub(/[^0-9]/, "", $2); n = $2 }
        /^}/ { sum += n * log(ppl); tokens += n }
        END { printf "%-12s %8.3f  (%d tokens)\n", form, exp(sum / tokens), tokens }'
done
