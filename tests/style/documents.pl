# SPDX-License-Identifier: Apache-2.0
# usage: documents.pl DOCUMENT...: prints the lines, paragraphs and cells of tables that are too long to be read.
# A line has at most 120 columns (characters, not bytes), tables apart. A paragraph or an item of a list has at most 90
# words, so that it can hold one thought; a cell of a table has at most 40. Words of code are not counted: code is in
# fences, or indented by four columns after an empty line.
use strict;
use warnings;
use open qw(:std :encoding(UTF-8));

my ($columns_max, $paragraph_max, $cell_max) = (120, 90, 40);

# The number of words between blanks.
sub words { return scalar(() = $_[0] =~ /\S+/g) }

for my $document (@ARGV) {
    open(my $in, '<', $document) or die "$document: $!\n";
    my ($fence, $code, $paragraph, $begin, $blank) = (0, 0, '', 0, 1);
    my $end = sub {
        my $n = words($paragraph);
        print "$document:$begin: a paragraph of $n words, at most $paragraph_max\n" if $n > $paragraph_max;
        $paragraph = '';
    };
    while (my $line = <$in>) {
        chomp $line;
        my $table = !$fence && $line =~ /^\s*\|/;
        print "$document:$.: " . length($line) . " columns, at most $columns_max\n"
            if length $line > $columns_max && !$table;
        $fence = !$fence if $line =~ /^\s*```/;
        $code = $line =~ /^ {4}/ && ($blank || $code);
        $blank = $line !~ /\S/;
        if ($table) {
            $end->();
            # A bar in `code` is no border of a cell.
            (my $cells = $line) =~ s/`[^`]*`/(my $c = $&) =~ tr{|}{ }; $c/ge;
            for my $cell (split /\|/, $cells) {
                my $n = words($cell);
                print "$document:$.: a cell of $n words, at most $cell_max\n" if $n > $cell_max;
            }
            next;
        }
        # An item of a list, a heading, a fence and code end a paragraph.
        $end->() if $blank || $fence || $code || $line =~ /^\s*(?:[-*]|\d+\.)\s|^#|^\s*```/;
        next if $blank || $fence || $code || $line =~ /^#|^\s*```/;
        $begin = $. if $paragraph eq '';
        $line =~ s/^\s*(?:[-*]|\d+\.)\s+//;
        $paragraph .= "$line ";
    }
    $end->();
}
