# cluster.sh: throw-away PostgreSQL servers, for the scripts in this directory.
#
# To be sourced by bash.  It makes one temporary directory, $tmp, in which
# everything happens: data directories, sockets, copies.  When the script ends,
# however it ends, every process that was started for $tmp is stopped and $tmp
# is removed.  Servers listen on a socket in $tmp only.  As root they run as
# the user postgres, since initdb refuses root.

set -euo pipefail
unset MAKEFLAGS MAKELEVEL MFLAGS PGHOST PGPORT PGUSER PGDATABASE PGPASSWORD \
	PGSERVICE PGOPTIONS PGDATA PGAPPNAME PGTZ PGCLIENTENCODING PGSSLMODE
export LC_ALL=C.UTF-8 PG_CONFIG=${PG_CONFIG:-pg_config}

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
me=${0##*/}

die()
{
	echo "$me: $*" >&2
	exit 1
}

bindir=$($PG_CONFIG --bindir) || die "$PG_CONFIG: cannot be run"
[ -x "$bindir/initdb" ] || die "no PostgreSQL server in $bindir"
# pgbouncer is in /usr/sbin
export PATH="$bindir:$PATH:/usr/sbin"

if [ "$(id -u)" = 0 ]; then
	dbuser=postgres
	id postgres >/dev/null 2>&1 || die "no user postgres to run a server as"
else
	dbuser=$(id -un)
fi

tmp=$(mktemp -d "${TMPDIR:-/tmp}/idem.XXXXXX")
tmp=$(cd "$tmp" && pwd -P)

# The pids of what belongs to $tmp: what works inside it, and what inherited
# the mark that as_dbuser sets.
cluster_pids()
{
	{
		find /proc/[0-9]*/cwd -maxdepth 0 \
			\( -lname "$tmp" -o -lname "$tmp/*" \) || true
		grep -lzxF "IDEM_TMP=$tmp" /proc/[0-9]*/environ || true
	} 2>/dev/null | cut -d / -f 3 | sort -u
}

# Poolers, test drivers and clients first, then the servers, at last by force.
cluster_cleanup()
{
	local rc=$? signal pid i

	trap '' INT TERM HUP
	trap - EXIT
	cd /
	for signal in TERM QUIT KILL; do
		for pid in $(cluster_pids); do
			[ $signal != TERM ] ||
				[ "$(cat "/proc/$pid/comm" 2>/dev/null)" != postgres ] || continue
			kill -$signal "$pid" 2>/dev/null || true
		done
		for i in $(seq 10); do
			[ -n "$(cluster_pids)" ] || break 2
			sleep 0.1
		done
	done
	rm -rf "$tmp"
	exit $rc
}
trap cluster_cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

[ "$dbuser" = "$(id -un)" ] || chown "$dbuser" "$tmp"

# Runs a command as the user that servers run as, with $tmp as its home and
# its place for temporary files.
as_dbuser()
{
	local env=(env HOME="$tmp" TMPDIR="$tmp" IDEM_TMP="$tmp" USER="$dbuser" LOGNAME="$dbuser")

	if [ "$dbuser" = "$(id -un)" ]; then
		"${env[@]}" "$@"
	else
		setpriv --reuid="$dbuser" --regid="$(id -g "$dbuser")" --init-groups "${env[@]}" "$@"
	fi
}

# Runs a command in the background and waits for it, so that a signal to this
# script alone ends it at once.
attended()
{
	"$@" </dev/null &
	wait $!
}

# cluster_start NAME [SETTING=VALUE ...]: makes and starts a server in
# $tmp/NAME, whose superuser is postgres, and points PGHOST, PGPORT, PGUSER and
# PGDATABASE to it.
cluster_start()
{
	local name=$1 data=$tmp/$1 setting
	shift

	(cd "$tmp" && as_dbuser initdb -D "$data" -U postgres -A trust -E UTF8 \
		--locale=C --no-sync) >"$tmp/initdb.log" 2>&1 || {
		cat "$tmp/initdb.log" >&2
		die "initdb failed"
	}
	{
		echo "listen_addresses = ''"
		echo "unix_socket_directories = '$tmp'"
		echo "port = 5432"
		for setting; do
			echo "${setting%%=*} = '${setting#*=}'"
		done
	} | as_dbuser tee -a "$data/postgresql.conf" >/dev/null
	export PGHOST=$tmp PGPORT=5432 PGUSER=postgres PGDATABASE=postgres
	cluster_restart "$name"
}

# cluster_restart NAME: starts it where it does not run.  The server is a child of this
# script, not of pg_ctl, so that its pid is free as soon as it has died.
cluster_restart()
{
	local data=$tmp/$1 i

	(cd "$tmp" && as_dbuser postgres -D "$data") >>"$data.log" 2>&1 </dev/null &
	server=$!
	for i in $(seq 600); do
		! pg_isready -q || return 0
		kill -0 "$server" 2>/dev/null || break
		sleep 0.1
	done
	cat "$data.log" >&2
	die "the server did not start"
}

cluster_stop()
{
	(cd "$tmp" && as_dbuser pg_ctl -D "$tmp/$1" -w -s -m fast stop)
}

# cluster_kill NAME: SIGKILL to the postmaster, as if the machine had died,
# and back only when all its processes are gone.
cluster_kill()
{
	local data=$tmp/$1 i

	kill -KILL "$(head -n 1 "$data/postmaster.pid")"
	wait "$server" || true
	for i in $(seq 200); do
		[ -n "$(find /proc/[0-9]*/cwd -maxdepth 0 -lname "$data" 2>/dev/null)" ] ||
			return 0
		sleep 0.05
	done
	die "processes of a killed server did not end"
}

# tree_installed DIR: is what was built there what the server has?
tree_installed()
{
	local f libdir extdir

	libdir=$($PG_CONFIG --pkglibdir)
	extdir=$($PG_CONFIG --sharedir)/extension
	cd "$1"
	for f in idem.so idem.control sql/idem--*.sql; do
		case $f in
			*.so) cmp -s "$f" "$libdir/$f" || return 1 ;;
			*) cmp -s "$f" "$extdir/${f##*/}" || return 1 ;;
		esac
	done
}

# Builds the tree in $tmp/tree, a copy that $dbuser owns, so that the tree
# itself keeps no trace, and installs it where it is not installed already.
# Arguments are passed to make.  Without them nothing is built where the tree is
# built and installed as it stands.
tree_install()
{
	local libdir extdir denied

	libdir=$($PG_CONFIG --pkglibdir)
	extdir=$($PG_CONFIG --sharedir)/extension
	denied="idem as it stands here is not installed, and $libdir is not yours to write to; as root, run \"make install\" in $top, then try again"
	[ -e "$libdir/idem.so" ] || [ -w "$libdir" ] || die "$denied"

	mkdir "$tmp/tree"
	(cd "$top" && tar -cf - --exclude=./.git --exclude='*.o' --exclude='*.bc' \
		--exclude='*.so' --exclude=./tmp_check --exclude=./results .) |
		tar -xf - -C "$tmp/tree" --no-same-owner
	[ "$dbuser" = "$(id -un)" ] || chown -R "$dbuser" "$tmp/tree"
	cd "$tmp/tree"
	if [ $# = 0 ] && make -q -C "$top" PG_CONFIG="$PG_CONFIG" >"$tmp/build.log" 2>&1 &&
		(tree_installed "$top"); then
		return 0
	fi
	make -s PG_CONFIG="$PG_CONFIG" clean
	make -s -j "$(nproc)" PG_CONFIG="$PG_CONFIG" "$@" >"$tmp/build.log" 2>&1 || {
		cat "$tmp/build.log" >&2
		die "the build failed"
	}
	cat "$tmp/build.log" >&2

	if (tree_installed "$tmp/tree"); then
		return 0
	elif [ -w "$libdir" ] && [ -w "$extdir" ]; then
		make -s PG_CONFIG="$PG_CONFIG" "$@" install >"$tmp/build.log" 2>&1 || {
			cat "$tmp/build.log" >&2
			die "the installation failed"
		}
	else
		die "$denied"
	fi
}
