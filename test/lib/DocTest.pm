# DocTest.pm - runs the examples of a Markdown page and compares what they print
#
# The convention, which every page follows:
#
#   ```sql        is typed into psql as it stands.  One session runs a page from
#                 top to bottom, in a database that is fresh for the page, so
#                 that transactions, variables and tables carry on.
#   ```text       right after it is what psql printed, results and errors alike.
#                 A ```sql block without it must raise no error.
#   ```sh         holds make commands; what they would do must be known to make.
#   ```mermaid    is a definition that idem_define() takes.
#   ```signature  is a function as the catalogue has it, without casts.
#   ```js, ```python, ```java, ```c, ```ruby    is an excerpt of the file that
#                 the line <!-- from FILE --> before it names, as it stands there.
#   <!-- run      holds SQL that the reader does not see; -->  no error either.
#   <!-- diagram -->  before a ```text block: it shows no output.
#
# Nothing is left to patterns: examples print only what is the same every
# time.  Blanks at line ends and blank lines around the output do not count.

package DocTest;

use strict;
use warnings;

use Exporter 'import';
use IPC::Run ();

our @EXPORT = qw(doc_blocks doc_run doc_signatures doc_links doc_anchors);

my %excerpts = map { $_ => 1 } qw(js python java c ruby);
my %languages = (map({ $_ => 1 } qw(sql text sh signature mermaid)), %excerpts);

sub read_page
{
	my ($file) = @_;

	open(my $in, '<:encoding(UTF-8)', $file) or die "$file: $!";
	my @lines = <$in>;
	close($in);
	chomp @lines;
	return @lines;
}

# Takes a page apart: a list of { kind, line, text }, where an output that
# belongs to an sql block is its {output}.  Dies where the page breaks the
# convention.
sub doc_blocks
{
	my ($file) = @_;
	my @lines = read_page($file);
	my (@blocks, $open, $diagram, $adjacent, $from);
	my $n = 0;

	foreach my $line (@lines)
	{
		$n++;
		if (defined $open)
		{
			my $kind = $open->{kind};

			if ($line !~ ($kind eq 'run' ? qr/^-->$/ : qr/^```\s*$/))
			{
				$open->{text} .= "$line\n";
				next;
			}
			if ($kind eq 'mermaid')
			{
				push @blocks,
				  {
					%$open,
					kind => 'run',
					diagram => $open->{text},
					text =>
					  "BEGIN; SELECT idem_define('diagram', \$mermaid\$$open->{text}\$mermaid\$); ROLLBACK;"
				  };
			}
			elsif ($kind ne 'text')
			{
				push @blocks, $open;
			}
			elsif ($adjacent)
			{
				$blocks[-1]{output} = tidy($open->{text});
			}
			elsif (!$diagram)
			{
				die "$file:$open->{line}: output without its command\n";
			}
			$adjacent = $kind eq 'sql';
			undef $diagram;
			undef $open;
		}
		elsif ($line =~ /^```(\S*)/)
		{
			die "$file:$n: unknown language \"$1\"\n" if !$languages{$1};
			$open = { kind => $1, line => $n, text => '' };
			if ($excerpts{$1})
			{
				die "$file:$n: an excerpt of no file\n" if !defined $from;
				$open->{from} = $from;
			}
			undef $from;
		}
		elsif ($line eq '<!-- run')
		{
			$open = { kind => 'run', line => $n, text => '' };
		}
		elsif ($line =~ /^\s*(```|<!-- *run)/)
		{
			die "$file:$n: a block that no test would see\n";
		}
		elsif ($line ne '')
		{
			# prose in between parts an output from its command
			$adjacent = 0;
			$diagram = $line eq '<!-- diagram -->';
			($from) = $line =~ /^<!-- from (\S+) -->$/;
		}
	}
	die "$file:$open->{line}: block without end\n" if defined $open;
	return @blocks;
}

sub tidy
{
	my ($text) = @_;

	$text =~ s/[ \t]+$//mg;
	$text =~ s/\A\n+//;
	$text =~ s/\n+\z//;
	return $text;
}

# Runs the sql and run blocks in one psql session and sets {got} of each.
sub doc_run
{
	my ($node, $db, @blocks) = @_;
	my ($script, $out) = ('', '');
	my $i = 0;

	foreach my $block (@blocks)
	{
		my $marker = sprintf('\echo @@ %d', $i++);

		$script .= "$marker\n$block->{text}\n";
	}

	local %ENV = (
		%ENV,
		PGCLIENTENCODING => 'UTF8',
		PGTZ             => 'UTC',
		PGDATESTYLE      => 'ISO',
		PAGER            => '');
	utf8::encode($script);
	IPC::Run::run(
		[ $node->installed_command('psql'), '-X', '-d', $node->connstr($db) ],
		'<', \$script, '>&', \$out);
	utf8::decode($out);

	my (undef, @parts) = split(/^@@ (\d+)\n/m, $out);
	while (my ($k, $text) = splice(@parts, 0, 2))
	{
		$blocks[$k]{got} = tidy($text);
	}
	return;
}

# The signatures that a page shows, blanks between words made one.
sub doc_signatures
{
	my ($file) = @_;
	my @found;

	foreach my $block (grep { $_->{kind} eq 'signature' } doc_blocks($file))
	{
		# one function per "name(" at the start of a line
		push @found, map { s/\s+/ /gr =~ s/^ | $//gr }
		  split(/^(?=\S+\()/m, $block->{text});
	}
	return @found;
}

# Prose of a page, without its blocks.
sub prose
{
	my ($file) = @_;
	my $text = join("\n", read_page($file)) . "\n";

	$text =~ s/^```.*?^```\n//msg;
	return $text;
}

# The targets of a page's links to files of the tree.
sub doc_links
{
	my ($file) = @_;

	return grep { !/^\w+:/ } prose($file) =~ /\]\(([^)\s]+)\)/g;
}

# The anchors that a page's headings have.
sub doc_anchors
{
	my ($file) = @_;

	return map { lc($_) =~ s/[^\w\- ]//gr =~ s/ /-/gr }
	  prose($file) =~ /^#+ +(.*?) *$/mg;
}

1;
