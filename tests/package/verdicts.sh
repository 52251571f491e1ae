# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Shared by the tests here: one line per test, a scratch directory. Scripts source it with arguments ROOT and BUILD.
set -u -o pipefail
export LC_ALL=C

[ $# -eq 2 ] || { echo "usage: $0 ROOT BUILD"; exit 2; }
# shellcheck disable=SC2034 # used by the script that sources this
root=$1 build=$2 failed=0
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export SLUICE_RUN_DIR=$scratch/run

# verdict NAME REASON < offending lines: passes if there are none.
verdict() {
    local name=$1 reason=$2 lines
    lines=$(cat)
    if [ -z "$lines" ]; then
        echo "ok $name"
    else
        echo "$lines" | head -30 | sed 's/^/    /'
        echo "not ok $name: $reason"
        # shellcheck disable=SC2034
        failed=1
    fi
}

# have PROGRAM NAME...: if the program is missing, false, and every NAME is counted as skipped.
have() {
    local program=$1 name
    shift
    command -v "$program" >/dev/null && return 0
    for name in "$@"; do
        echo "SKIP $name: $program is not installed"
    done
    return 1
}
