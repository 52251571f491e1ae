# SPDX-License-Identifier: Apache-2.0
# usage: first_comment.pl SOURCE...: prints the sources whose first comment does not say what the file is for: there is
# none between the line of the licence and the code, its first sentence has fewer than four words, or it begins like a
# question ("What ...", "How ..."), which names a subject and says nothing of it.
use strict;
use warnings;

my $words_min = 4;

# The text of a source's first comment, without its marks; '': there is none.
sub first_comment {
    my ($text) = @_;
    $text =~ s/\A#!.*\n//;
    $text =~ s{\A(?:/\*|\#|//|<!--) ?SPDX-License-Identifier: \S+(?: \*/| -->)?\n?}{};
    $text =~ s/\A"use strict";\n//;
    my ($comment) = $text =~ m{\A\s*(?|/\*(.*?)\*/|"""(.*?)"""|((?:[#](?!include\b|define\b|if)[^\n]*\n)+)|((?://[^\n]*\n)+))}s;
    return '' unless defined $comment;
    $comment =~ s{^[ \t]*(?:\*+|[#]+|//)[ \t]?}{}mg;
    $comment =~ s/\A\s*SPDX-License-Identifier: \S+//;
    return $comment =~ s/\A\s+//r;
}

for my $source (@ARGV) {
    open(my $in, '<', $source) or die "$source: $!\n";
    my ($sentence) = split /(?<=[.;!?])\s+/, first_comment(do { local $/; scalar <$in> });
    my $n = () = ($sentence // '') =~ /\w[\w'.\/-]*/g;
    print $n == 0 ? "$source: no comment before the code\n"
        : $n < $words_min ? "$source: its first comment begins with $n words\n"
        : $sentence =~ /^(What|Whether|How|Where|Which|Whose|Whatever|The same)\b/
        ? "$source: its first comment begins with '$1'\n" : '';
}
