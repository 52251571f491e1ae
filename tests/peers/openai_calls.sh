#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Sessions of OpenAI's Python package (pinned, in DIR/openai) with every family of calls: openai_calls.py. With BUILD-asan made by
# tests/scenario/sanitized.sh, its gateway is used, and a report of a sanitizer fails.
# usage: openai_calls.sh DIR [BUILD]      BUILD: default build
set -euo pipefail
root=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")
dir=${1:?usage: openai_calls.sh DIR [BUILD]}
build=$(realpath "${2:-$root/build}")
python=$dir/openai/bin/python
libexec=$build/libexec
mkdir -p "$dir"
[ -x "$python" ] || python3 -m venv "$dir/openai"
"$python" -c 'import openai' 2>/dev/null || "$python" -m pip install --quiet openai==3.57.0
ninja -C "$build" family_models >/dev/null
if [ -d "$build-asan/mixed" ]; then
    libexec=$build-asan/mixed
    rm -f "$build-asan"/report.*
fi
status=0
"$python" -B "$root/tests/peers/openai_calls.py" --models "$build/tests/family_models" --libexec "$libexec" -o "$dir/work" || status=$?
for report in "$build-asan"/report.*; do
    [ -e "$report" ] || continue
    head -40 "$report"
    status=1
done
exit "$status"
