#!/usr/bin/perl
# history.pl SEED COUNT MNT - COUNT random steps in the life of the pool `turns`, mounted at MNT: files are written,
# snapshots, clones and bookmarks come and go, heads are promoted, rolled back and renamed. It uses the `zfs` of PATH,
# in check-turns and in the machine of zvm. What may be refused is; each refusal is a line of what it prints.
use strict;
use warnings;
no warnings 'qw';

my ($seed, $count, $mnt) = @ARGV;
srand($seed);
my $serial = 0;
my %refused;

sub pick { $_[int rand @_] }
sub name { pick(qw(a b c d e f)) . "$seed." . $serial++ }

sub lines {
    open(my $pipe, "-|", @_) or die "@_: $!";
    chomp(my @lines = <$pipe>);
    close($pipe) or die "@_: failed";
    return @lines;
}

sub try {
    my $pid = fork() // die "fork: $!";
    if (!$pid) { open(STDERR, ">&", \*STDOUT); exec(@_) or die "@_: $!" }
    waitpid($pid, 0);
    die "@_: killed by signal " . ($? & 127) . "\n" if $? & 127;
    print $? ? "refused: @_\n" : "@_\n";
    $refused{$_[1]}++ if $?;
    return !$?;
}

sub heads { lines(qw(zfs list -H -o name -t filesystem)) }
sub snapshots { lines(qw(zfs list -H -o name -t snapshot)) }
sub clones { map { (split /\t/)[0] } grep { (split /\t/)[1] ne "-" } lines(qw(zfs list -H -o name,origin -t filesystem)) }
sub own { my @found = grep { index($_, "$_[0]\@") == 0 } snapshots(); return @found }

# Some files of a head become others: new, longer, shorter, changed inside, gone.
sub write_files {
    my ($head) = @_;
    my $dir = "$mnt/$head";
    return if !-d $dir;
    for (1 .. 1 + rand 6) {
        my $file = "$dir/" . pick("a" .. "h");
        my $what = int rand 5;
        if ($what == 0) { unlink $file }
        elsif ($what == 1) { -e $file and (truncate($file, int rand 200_000) or die "$file: $!") }
        else {
            open(my $f, -e $file ? "+<" : ">", $file) or die "$file: $!";
            seek($f, int(rand(300_000)), 0) if $what == 2;
            print $f join("", map { pack("N", $what == 3 ? $_ : rand(4294967296)) } 1 .. rand(40_000));
            close($f) or die "$file: $!";
        }
    }
    print "wrote in $head\n";
}

my @kinds = (
    [9, sub { write_files(pick(heads())) }],
    [5, sub { try("zfs", "snapshot", (rand() < 0.3 ? "-r" : ()), pick(heads()) . "@" . name()) }],
    [2, sub { try("zfs", "create", (rand() < 0.5 ? ("-o", "compression=" . pick(qw(off lz4 gzip))) : ()), pick(heads()) . "/" . name()) }],
    [3, sub { my $of = pick(snapshots()) // return; try("zfs", "clone", $of, pick(heads()) . "/" . name()) }],
    [2, sub { my $of = pick(clones()) // return; try("zfs", "promote", $of) }],
    [2, sub { my $to = pick(own(pick(heads()))) // return; try("zfs", "rollback", (rand() < 0.7 ? "-r" : ()), $to) }],
    [3, sub { my $of = pick(snapshots()) // return; try("zfs", "destroy", pick([], ["-d"], ["-r"])->@*, $of) }],
    [1, sub { my $of = pick(grep { m{/} } heads()) // return; try("zfs", "destroy", "-r", $of) }],
    [1, sub { my $of = pick(snapshots()) // return; my ($fs) = $of =~ /^([^@]*)/; try("zfs", "rename", $of, "$fs@" . name()) }],
    [1, sub { my $of = pick(grep { m{/} } heads()) // return; try("zfs", "rename", $of, pick(heads()) . "/" . name()) }],
    [1, sub { my $of = pick(snapshots()) // return; try("zfs", "hold", pick(qw(keep stay)), $of) }],
    [1, sub { my $of = pick(snapshots()) // return; try("zfs", "release", pick(qw(keep stay)), $of) }],
    [1, sub { my $of = pick(snapshots()) // return; my ($fs) = $of =~ /^([^@]*)/; try("zfs", "bookmark", $of, "$fs#" . name()) }],
    [1, sub { my $of = pick(lines(qw(zfs list -H -o name -t bookmark))) // return; try("zfs", "destroy", $of) }],
    [1, sub { try("zfs", "set", pick("org.test:a=" . rand(), "refreservation=" . pick("none", "1M"), "quota=" . pick("none", "100M"), "copies=" . pick(1, 2)), pick(heads())) }],
    [1, sub { try("zfs", "inherit", pick("org.test:a", "quota", "copies"), pick(heads())) }],
);
my @table = map { ($_->[1]) x $_->[0] } @kinds;
pick(@table)->() for 1 .. $count;
printf "refused: %s\n", join(", ", map { "$_ $refused{$_}" } sort keys %refused);
