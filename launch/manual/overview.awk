# SPDX-License-Identifier: Apache-2.0
# sluice.1, from "command<tab>what it is for" lines. Variables: version, date, see.
function escape(s) {
    gsub(/\\/, "\\e", s)
    gsub(/-/, "\\-", s)
    return s
}

BEGIN {
    print ".\\\" Made from the help text of the launcher."
    printf ".TH SLUICE 1 \"%s\" \"sluice %s\" \"sluice\"\n", date, version
    print ".SH NAME\nsluice \\- run Mixture\\-of\\-Experts models larger than memory"
    print ".SH SYNOPSIS\n\\fBsluice\\fR \\fICOMMAND\\fR [\\fIOPTIONS\\fR]"
    print ".PP\n\\fBsluice\\fR \\fIFILE\\fR [\\fIOPTIONS\\fR]"
    print ".PP\n\\fBsluice help\\fR \\fICOMMAND\\fR"
    print ".SH DESCRIPTION"
    print "Runs Mixture\\-of\\-Experts language models that are larger than the memory they"
    print "may use: a budget in bytes bounds all processes of an engine together."
    print ".PP\nWith a model file in place of a command: a conversation (repl), or one response (generate) if the"
    print "options have a prompt."
    print ".PP\nEach command is a separate program:"
}

{
    print ".TP\n\\fB" escape($1) "\\fR"
    print escape($2)
}

END {
    print ".PP\n\\fBserve\\fR is short for \\fBrun \\-\\-http 8080\\fR, \\fBchat\\fR for \\fBrepl\\fR."
    print ".SH ENVIRONMENT"
    print ".TP\n\\fBSLUICE_RUN_DIR\\fR\nWhere run directories are created. Default:"
    print "\\fI$XDG_RUNTIME_DIR/sluice\\fR, or \\fI/tmp/sluice\\-UID\\fR."
    print ".SH EXIT STATUS\n0 done, 1 failed, 2 bad usage, bad input, or a budget that is too small."
    print ".SH SEE ALSO"
    count = split(see, name, " ")
    for (i = 1; i <= count; i++) print ".BR " escape(name[i]) " (1)" (i < count ? "," : "")
}
