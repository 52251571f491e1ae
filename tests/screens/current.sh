#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# current.sh ROOT BUILD: the pictures of terminals in docs/screens show the words of this version. Those that were made are
# in BUILD/screens, to be copied to docs/screens if words changed.
set -u -o pipefail

root=$1 made=$2/screens
export SLUICE_LIBEXEC=$2/libexec
output=$("$root/tests/screens/make.sh" "$made" terminals 2>&1) || {
    echo "not ok screens_current: make.sh failed: $output"
    exit 1
}
if grep '^SKIP' <<<"$output" | sed 's/^SKIP [^:]*:/SKIP screens_current:/' | grep .; then
    exit 0
fi
if python3 -B "$root/tests/screens/labels.py" "$made" "$root/docs/screens"; then
    echo "ok screens_current"
else
    echo "not ok screens_current: docs/screens shows other words: copy $made/*.svg to it"
    exit 1
fi
