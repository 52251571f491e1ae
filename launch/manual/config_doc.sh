#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The table of docs/config.md from the table of parameters: config_doc.sh PROGRAMS [--check].
# PROGRAMS is the directory of the built programs. --check prints the difference instead, and fails.
set -eu -o pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
programs=$1 doc=$root/docs/config.md

made() {
    sed '/^| parameter /,$d' "$doc"
    "$programs/sluice-run" --print-config=md
}

if [ "${2:-}" = --check ]; then
    made | diff "$doc" - && exit 0
    echo "docs/config.md does not match the parameter table; run launch/manual/config_doc.sh build/libexec"
    exit 1
fi
new=$(mktemp)
trap 'rm -f "$new"' EXIT
made >"$new"
cat "$new" >"$doc"
