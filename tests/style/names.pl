# SPDX-License-Identifier: Apache-2.0
# usage: names.pl DOCUMENT...: prints what a document names and the tree does not have, so that names in documents do
# not outlive the source. Two forms are read: `name` (file.c) means that the file contains the name, and `dir/file` is a
# path from the root. A file may be named by the end of its path.
use strict;
use warnings;

my @tracked = split /\n/, `git ls-files -co --exclude-standard`;
my (%by_base, %directory);
for my $file (@tracked) {
    my $base = (split m{/}, $file)[-1];
    push @{ $by_base{$base} }, $file;
    my $path = $file;
    $directory{$path} = 1 while $path =~ s{/[^/]*$}{};
}

sub text_of {
    my ($file) = @_;
    open(my $in, '<', $file) or return '';
    local $/;
    return scalar <$in>;
}

sub files_of {
    my ($path) = @_;
    my $base = (split m{/}, $path)[-1];
    return grep { $_ eq $path || m{/\Q$path\E$} } @{ $by_base{$base} || [] };
}

for my $document (@ARGV) {
    my $text = text_of($document);
    my $place = sub { "$document:" . (1 + (substr($text, 0, $_[0]) =~ tr/\n//)) };
    while ($text =~ /`([A-Za-z_][A-Za-z0-9_]*)`\s+\(([\w.\/]+\.(?:c|h|cu|js))[),;:]/g) {
        my ($name, $path, $at) = ($1, $2, $place->($-[0]));
        my @files = files_of($path);
        print "$at: there is no file $path\n" unless @files;
        print "$at: $path has no $name\n" if @files && !grep { text_of($_) =~ /\b\Q$name\E\b/ } @files;
    }
    while ($text =~ m{`((?:lib|procs|shm|ipc|config|launch|tests|docs)/[\w./-]+)`}g) {
        my ($path, $at) = ($1, $place->($-[0]));
        $path =~ s{/$}{};
        print "$at: there is no $path\n"
            unless $directory{$path} || files_of($path) || grep { m{^\Q$path\E\.\w+$} } @tracked;
    }
}
