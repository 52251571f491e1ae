# SPDX-License-Identifier: Apache-2.0
# Reads `ctest -V`, prints failures and skips, and counts. Each line of a test's output is "NUMBER: text".
#   Check programs      "100%: Checks: 12, Failures: 0, Errors: 0"      that number of tests
#   other programs      "ok NAME", "not ok NAME: why", "SKIP NAME: why" one test each
#   anything else       one test, by its exit status
#   "LEFT N rows: what" or "LEFT 1 case: NAME" are left to the runs of other changes (sample.tbl.h), and no tests of this one.
# Before the last line the failures again, "failed: PROGRAM: what": the middle of a long output may be cut off where it is
# shown.
# Before the last line also how many are left.
# The last line is "N passed, N failed" and ", N skipped" if any were.

function flush_result(name, result) {
    for (i = 1; i <= wrongs[number]; i++) failures[++noted] = name ": " wrong_line[number, i]
    if (!(number in own)) {
        if (result == "Passed") passed++
        else if (result == "Skipped") { skipped++; print "SKIP " name ": see its output" }
        else { failed++; failures[++noted] = name }
    } else if (result != "Passed" && bad[number] == 0) {
        failed++; failures[++noted] = name    # it failed without counting a failure: a crash or a time limit
    }
}

/^ *[0-9]+: / {
    number = $1; sub(/:$/, "", number)
    line = $0; sub(/^ *[0-9]+: ?/, "", line)
    if (line ~ /^[0-9]+%: Checks: [0-9]+, Failures: [0-9]+, Errors: [0-9]+/) {
        split(line, part, /[:,] */)
        checks = part[3] + 0; wrong = part[5] + part[7]
        own[number] = 1; passed += checks - wrong; failed += wrong; bad[number] += wrong
        if (wrong) wrong_line[number, ++wrongs[number]] = line
    } else if (line ~ /^ok /) {
        own[number] = 1; passed++
    } else if (line ~ /^not ok /) {
        own[number] = 1; failed++; bad[number]++; print line
        wrong_line[number, ++wrongs[number]] = line
    } else if (line ~ /^SKIP /) {
        own[number] = 1; skipped++; print line
    } else if (line ~ /^LEFT [0-9]+ /) {
        split(line, part, " "); left += part[2]
        if (part[3] == "case:") own[number] = 1
    } else if (line ~ /^# /) {
        print line
    }
    kept[number] = kept[number] "    " line "\n"
    if (length(kept[number]) > 6000) kept[number] = substr(kept[number], length(kept[number]) - 4000)
    fflush()
    next
}

/^ *[0-9]+\/[0-9]+ Test +#[0-9]+: / {
    number = $0; sub(/^.*Test +#/, "", number); sub(/:.*/, "", number)
    name = $0; sub(/^.*#[0-9]+: +/, "", name); sub(/[ .].*/, "", name)
    result = "Failed"
    if ($0 ~ /Passed/) result = "Passed"
    else if ($0 ~ /\*\*\*Skipped/) result = "Skipped"
    flush_result(name, result)
    time = $0; sub(/^.* +([0-9.]+ sec)/, "", time)
    print result ": " name " (" $(NF - 1) " s)"
    if (result == "Failed") printf "%s", kept[number]
    fflush()
    next
}

/^No tests were found/ { failed++; print }

END {
    for (i = 1; i <= noted; i++) print "failed: " failures[i]
    if (left) printf "%d rows and cases take turns and are left to other changes; this is turn %s (SLUICE_TURN)\n", left, ENVIRON["SLUICE_TURN"]
    printf "%d passed, %d failed", passed, failed
    if (skipped) printf ", %d skipped", skipped
    printf "\n"
    exit failed > 0 || passed == 0
}
