#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Sessions of official client packages with the gateway: clients.py, client_features.py. The packages are pinned, and
# installed into BUILD/peers/clients; without the package index the test is a SKIP. SLUICE_CLIENTS_PYTHON: an interpreter
# that has them.
# usage: clients.sh ROOT BUILD
set -euo pipefail
root=$1
build=$2
packages=(anthropic==2.14.0 ollama==0.6.3 openai==3.57.0)
dir=$build/peers/clients
python=${SLUICE_CLIENTS_PYTHON:-$dir/bin/python}
mkdir -p "$build/peers"
if ! "$python" -c 'import anthropic, ollama, openai' 2>/dev/null; then
    if ! { python3 -m venv --without-pip "$dir" && timeout 300 python3 -m pip --python "$python" install --quiet "${packages[@]}"; } >"$build/peers/clients.log" 2>&1; then
        echo "SKIP clients: ${packages[*]} cannot be installed"
        exit 0
    fi
fi
work=$(mktemp -d "${TMPDIR:-/tmp}/clients.XXXXXX")
trap 'rm -rf "$work"' EXIT
status=0
for script in clients client_features; do
    "$python" -B "$root/tests/peers/$script.py" --models "$build/tests/family_models" --libexec "$build/libexec" \
        -o "$work" || status=1
done
exit "$status"
