# SPDX-License-Identifier: Apache-2.0
# usage: names.pl DOCUMENT...: prints what a document names and the tree does not have, so that names in documents do
# not outlive the source. Three forms are read: `name` (file.c) means that the file contains the name, `dir/file` is a
# path from the root, and `file.c` is a source file; in the README of a folder it is in that folder or next to it. A file
# may be named by the end of its path. Links lead to files and headings that exist.
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

# The anchors of a document's headings, as GitHub and GitLab make them.
my %anchors_of;
sub anchors {
    my ($document) = @_;
    $anchors_of{$document} ||= { map { my $h = lc; $h =~ s/^#+ +//; $h =~ s/[^\w\- ]//g; $h =~ tr/ /-/; ($h => 1) }
            grep { /^#/ } split /\n/, text_of($document) };
    return $anchors_of{$document};
}

sub link_fault {
    my ($document, $link) = @_;
    my ($path, $anchor) = split /#/, $link, 2;
    my $target = $document;
    if (length $path) {
        $target = $document =~ m{/} ? $document =~ s{[^/]*$}{}r . $path : $path;
        1 while $target =~ s{(^|/)(?!\.\./)[^/]+/\.\./}{$1} || $target =~ s{(^|/)\./}{$1};
    }
    return 'nothing' unless -e $target;
    return 'no heading' if defined $anchor && $target =~ /\.md$/ && !anchors($target)->{$anchor};
    return;
}

for my $document (@ARGV) {
    my $text = text_of($document);
    my $place = sub { "$document:" . (1 + (substr($text, 0, $_[0]) =~ tr/\n//)) };
    while ($text =~ /`([A-Za-z_][A-Za-z0-9_]*)`\s+\(`?([\w.\/]+\.(?:c|h|cu|js))`?[),;:]/g) {
        my ($name, $path, $at) = ($1, $2, $place->($-[0]));
        my @files = files_of($path);
        print "$at: there is no file $path\n" unless @files;
        print "$at: $path has no $name\n" if @files && !grep { text_of($_) =~ /\b\Q$name\E\b/ } @files;
    }
    while ($text =~ /\]\(([^)\s]+)\)/g) {
        my ($link, $at) = ($1, $place->($-[0]));
        my $fault = $link =~ m{^\w+:} ? undef : link_fault($document, $link);
        print "$at: the link $link leads to $fault\n" if $fault;
    }
    my ($near) = $document =~ m{^(?:(.*)/)?[^/]+/README\.md$};
    while ($text =~ m{`([\w.][\w./]*\.(?:c|h|cu|cuh|rows|sh|pl|awk|js))`}g) {
        my ($path, $at) = ($1, $place->($-[0]));
        $path =~ s{^(?:\.\./)+}{};
        my @files = files_of($path);
        @files = grep { m{^\Q$near\E/} } @files if length($near // '') && $path !~ m{/};
        print "$at: there is no file $path" . (length($near // '') ? " in $near" : '') . "\n" unless @files;
    }
    while ($text =~ m{`((?:lib|procs|shm|ipc|config|launch|tests|docs)/[\w./-]+)`}g) {
        my ($path, $at) = ($1, $place->($-[0]));
        $path =~ s{/$}{};
        print "$at: there is no $path\n"
            unless $directory{$path} || files_of($path) || grep { m{^\Q$path\E\.\w+$} } @tracked;
    }
}
