# chroot.sh: Debians of their own, for the scripts in this directory that need
# another one than the machine has.
#
# To be sourced by bash, as root.  Trees are made by debootstrap in $trees and
# kept there for the next time.  What cannot be made on a machine for reasons
# that are not idem's (mounts are not permitted, the archive is out of reach or
# inconsistent) is told in one line, in $tree_why, and left to the caller.

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
me=${0##*/}
trees=${IDEM_MAJORS_DIR:-/var/tmp/idem-majors}
tree_why=

die()
{
	echo "$me: $*" >&2
	exit 1
}

[ "$(id -u)" = 0 ] || die "only root can make and enter a chroot"

suite_of()
{
	case $1 in
		15) echo bookworm ;;
		17) echo trixie ;;
		18) echo sid ;;
		*) die "no Debian is known that comes with PostgreSQL $1" ;;
	esac
}

# Where this machine's own packages come from.
mirror()
{
	apt-get indextargets --format '$(REPO_URI) $(ORIGIN) $(LABEL)' \
		'Identifier: Packages' | sed -n 's/ Debian Debian$//p' | head -n 1
}

# Runs a command in a mount namespace of its own, so that nothing stays mounted
# however it ends.
apart()
{
	unshare --mount --pid --fork --kill-child --propagation private --mount-proc "$@" </dev/null
}

# tree_enter DIR COMMAND: no service may start in it, and only what belongs to
# the way to the archive comes in from the environment.
tree_enter()
{
	local dir=$1 name pass=()
	shift
	for name in http_proxy https_proxy no_proxy IDEM_TEST_LIMIT IDEM_OLD_SERVER \
		IDEM_CLIENTS; do
		[ -z "${!name:-}" ] || pass+=("$name=${!name}")
	done
	apart bash -euc '
		dir=$1; shift
		mount -t proc proc "$dir/proc"
		mkdir -p "$dir/dev/shm" "$dir/dev/pts"
		mount -t tmpfs tmpfs "$dir/dev/shm"
		mount --bind /dev/pts "$dir/dev/pts"
		exec chroot "$dir" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
			LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"
	' - "$dir" "${pass[@]}" "$@"
}

# Can this machine do any of it?
trees_possible()
{
	if ! "$top/tools/setup" majors; then
		tree_why="debootstrap cannot be installed"
	elif ! apart mount -t tmpfs tmpfs /mnt 2>/dev/null; then
		tree_why="a mount namespace of one's own is not permitted on this machine"
	elif [ -z "$(mirror)" ]; then
		tree_why="apt knows of no Debian archive"
	else
		return 0
	fi
	return 1
}

# what a log says of the failure, in one line
told()
{
	local line
	line=$(grep -aE '^(E|W|err):|[Uu]nmet|[Ff]ailed|[Ee]rror|[Nn]ot permitted' "$1" | tail -n 1)
	[ -n "$line" ] || line=$(tail -n 1 "$1")
	echo "${line:-no reason was given}"
}

# tree_make SUITE DIR: a minimal Debian, unless it is there.  A sid can be
# older than its Release file allows.
tree_make()
{
	local suite=$1 dir=$2

	[ ! -e "$dir/complete" ] || return 0
	rm -rf --one-file-system "$dir"
	mkdir -p "$dir"
	echo "$me: making a Debian $suite in $dir"
	if ! apart debootstrap --variant=minbase "$suite" "$dir" "$(mirror)" >"$dir.log" 2>&1; then
		tree_why="debootstrap of $suite: $(told "$dir.log")"
		return 1
	fi
	printf 'Acquire::Check-Valid-Until "false";\nAcquire::Retries "3";\nDPkg::Options:: "--force-unsafe-io";\n' \
		>"$dir/etc/apt/apt.conf.d/50idem"
	apt-config dump | grep -E '^Acquire::https?::Proxy ' >"$dir/etc/apt/apt.conf.d/60proxy" || true
	touch "$dir/complete"
}

# tree_copy DIR: what git knows of, as it is now, in DIR/idem, and what it knows of
# former versions.
tree_copy()
{
	rm -rf "$1/idem"
	mkdir "$1/idem"
	git -C "$top" ls-files -z | tar -C "$top" --null -T - -cf - |
		tar -C "$1/idem" -xf - --no-same-owner
	"$top/tools/former" --source "$1/idem/former"
}

# tree_install DIR WHAT COMMAND: runs a command that installs packages.
tree_install()
{
	local dir=$1 what=$2
	shift 2
	if ! tree_enter "$dir" "$@" >"$dir.log" 2>&1; then
		tree_why="$what: $(told "$dir.log")"
		return 1
	fi
}
