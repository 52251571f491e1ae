#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Sessions of official client packages with the gateway: clients.py, client_features.py. The packages are pinned, and
# installed into BUILD/peers/venv; without the package index the test is a SKIP. SLUICE_CLIENTS_PYTHON: an interpreter
# that has them.
# usage: clients.sh ROOT BUILD
set -euo pipefail
root=$1
build=$2
. "$root/tests/peers/environment.sh"
if [ -n "${SLUICE_CLIENTS_PYTHON:-}" ]; then
    python=$SLUICE_CLIENTS_PYTHON
elif ! install_packages "${client_packages[@]}"; then
    echo "SKIP clients: ${client_packages[*]} cannot be installed"
    exit 0
fi
work=$(mktemp -d "${TMPDIR:-/tmp}/clients.XXXXXX")
trap 'rm -rf "$work"' EXIT
status=0
for script in clients client_features; do
    [ "$script" = clients ] || has_its_turn 2 1 "$script" || continue # clients has a session in each API
    "$python" "$root/tests/peers/$script.py" --models "$build/tests/family_models" --libexec "$build/libexec" \
        -o "$work" || status=1
done
exit "$status"
