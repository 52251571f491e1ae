#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# count_test.sh ROOT: what count.awk makes of the output of ctest: failures, crashes and time limits count, and the end
# names their programs.
set -u
[ $# -eq 1 ] || { echo "usage: $0 ROOT"; exit 2; }
got=$(SLUICE_TURN=5 awk -f "$1/tests/harness/count.awk" <<'END'
1: 100%: Checks: 12, Failures: 0, Errors: 0
1/8 Test  #1: check_passes ..........   Passed    0.10 sec
2: 50%: Checks: 4, Failures: 1, Errors: 1
2/8 Test  #2: check_fails ..........***Failed    0.10 sec
3: 100%: Checks: 3, Failures: 0, Errors: 0
3/8 Test  #3: check_crashes_late ..........***Exception: SegFault  0.10 sec
4: Running suite(s): x
4/8 Test  #4: check_crashes ..........***Exception: SegFault  0.10 sec
5: ok a
6: ok a
5: not ok b: reason
6/8 Test  #6: cases_time_out ..........***Timeout  0.10 sec
5/8 Test  #5: cases_fail ..........***Failed  0.10 sec
7: SKIP a: reason
7: LEFT 1 case: b
7: LEFT 12 rows: of a kind
7/8 Test  #7: cases_skip ..........   Passed  0.10 sec
8/8 Test  #8: program_passes ..........   Passed  0.10 sec
9: LEFT 1 case: all that it has
9/9 Test  #9: program_has_no_turn ..........   Passed  0.10 sec
10: LEFT 3 rows: of a program without cases
10/10 Test  #10: program_passes_with_some ..........   Passed  0.10 sec
END
)
status=$?
want='failed: check_fails: 50%: Checks: 4, Failures: 1, Errors: 1
failed: check_crashes_late
failed: check_crashes
failed: cases_time_out
failed: cases_fail: not ok b: reason
17 rows and cases take turns and are left to other changes; this is turn 5 (SLUICE_TURN)
21 passed, 6 failed, 1 skipped'
if [ "$status" -eq 1 ] && [ "$(tail -n 7 <<<"$got")" = "$want" ]; then
    echo "ok count"
else
    sed 's/^/    /' <<<"$got"
    echo "not ok count: not what was expected, or status $status"
    exit 1
fi
