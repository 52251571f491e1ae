#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run_tsan.sh PROBE PROGRAM: 77 (a counted skip) with its reason when ThreadSanitizer cannot start here.
if ! reason=$("$1" 2>&1); then
  echo "SKIP: ThreadSanitizer cannot run on this kernel: $(echo "$reason" | head -1)"
  exit 77
fi
TSAN_OPTIONS="halt_on_error=1 exitcode=66" exec "$2"
