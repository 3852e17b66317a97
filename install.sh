#!/bin/sh
# Installs coracle, Kubernetes in one executable, as a service of this machine. Run again, it upgrades coracle.
#
#   curl -sfL URL | sh -                                                     a server: a cluster of one
#   curl -sfL URL | CORACLE_URL=https://SERVER:6443 CORACLE_TOKEN=… sh -     an agent of that server's cluster
#   curl -sfL URL | sh -s - server --disable dns                             arguments for the service
#
# It downloads the executable to a temporary directory, verifies checksum and signature, and runs its command
# "coracle install", which does the rest. Before that it changes nothing on this machine; it always removes the directory.
# It needs Linux on x86_64 or aarch64, root or sudo, curl or wget, sha256sum, and openssl or awk.
#
#   CORACLE_URL, CORACLE_TOKEN       the server to join, and the token for it; K3S_URL and K3S_TOKEN work too.
#   CORACLE_…                        the variables of all settings in "coracle server --help"; the service gets them.
#   INSTALL_CORACLE_VERSION          the version to install, such as v1.37.1+coracle.1. Default: the channel's version.
#   INSTALL_CORACLE_CHANNEL          the channel; default: stable.
#   INSTALL_CORACLE_EXEC             the command with its arguments, such as "server --disable dns"; arguments are appended.
#   INSTALL_CORACLE_NAME             for a second service beside the first: coracle-NAME.
#   INSTALL_CORACLE_BIN_DIR          the directory of the executable; default: /usr/local/bin.
#   INSTALL_CORACLE_MIRROR           the location of releases: a URL or a directory.
#   INSTALL_CORACLE_FILE             a local executable to install instead of a release, with its signature beside it.
#   INSTALL_CORACLE_INSECURE_UNSIGNED  true: accept a local executable without a signature, such as one that you have built, and a channel without.
#   INSTALL_CORACLE_SKIP_DOWNLOAD    true: use the executable in INSTALL_CORACLE_BIN_DIR.
#   INSTALL_CORACLE_SKIP_START       true: do not start the service now. INSTALL_CORACLE_SKIP_ENABLE: nor at boot.
#   INSTALL_CORACLE_WAIT             how long the start may take, such as 10m; what takes longer is taken back. Default: 2m.
#   INSTALL_CORACLE_KEY              a file with the public key to trust instead of the one below.
#
# Exit codes: 0 done, 1 failed, 2 a variable or argument is wrong, 3 this machine cannot run it, 5 the release could not be
# downloaded, 7 a checksum or the signature is wrong; others are those of "coracle install".
set -eu

# The key that releases are signed with.
release_key() {
	if [ -n "${INSTALL_CORACLE_KEY-}" ]; then
		cat "$INSTALL_CORACLE_KEY"
		return
	fi
	cat <<'EOF'
-----BEGIN PUBLIC KEY-----
MIIBojANBgkqhkiG9w0BAQEFAAOCAY8AMIIBigKCAYEAzt953lfgT/nk4kVNAyPG
lQQNR0g1sRD8lWBegvUtRkkWREtcDPmJUKVc7T98pZh2SobnZCMSwYyYBagpVNqN
pcUMmtXihHUrwDmXgfWXrBUkjLKKxM3fGMD6skACeufGsMFP0pO8pKIZfaunaWke
tHyU21PTHl9H5eLh+v94WazLtBHGZUOtIPjHoXuHWQPhWwqq9w6SRTHts4EBBABk
/a45fnbQJL6cSr3RBbPkXdO69BQg7oqjzxsTVQ9uok29F4RvARer41jJvg6nvGtY
aux0uR+7puUu+TLhx01aTAq3mDHfdaJ5lndp+MpvjlE4k8/mzf24b8svIBnExw1W
h4EPxOFpuChFPgmI8HsA/JXvG7L78l/UKz8iveoTTnsdPvEdwwPsPco22ApmSzms
wosAdocaStoFNJhuTxIRlKzfWyIXw+Ox+0b9Wi8/dF/m4zuS6QK+Q4kTGvyQ/1iT
KZE2ZxN/2MUg+ZqPt0JfPcExsqu4VkJggAPZ1nuV7ZetAgMBAAE=
-----END PUBLIC KEY-----
EOF
}

say() { printf 'coracle: %s\n' "$*"; }

# fail SENTENCE [CODE]
fail() {
	say "$1" >&2
	exit "${2:-1}"
}

have() { command -v "$1" >/dev/null 2>&1; }

# is_true NAME: whether the variable is set to a true value.
is_true() {
	eval "set -- \"$1\" \"\${$1-}\""
	case $2 in
	true | yes | 1) return 0 ;;
	"" | false | no | 0) return 1 ;;
	esac
	fail "$1 is $2; it can be true or false" 2
}

# finish removes the work directory. handed is set once "coracle install" runs, which reports its own errors.
work="" handed=""
finish() {
	code=$?
	[ -z "$work" ] || rm -rf "$work"
	[ "$code" = 0 ] || [ -n "$handed" ] || say "nothing was installed or changed" >&2
	exit "$code"
}

# make_work makes a directory for files that are not verified yet, on a file system from which programs can be executed.
make_work() {
	for place in "${TMPDIR:-/tmp}" /var/lib "$bin_dir"; do
		work=$(umask 077 && mktemp -d "$place/coracle-install.XXXXXX" 2>/dev/null) || continue
		printf '#!/bin/sh\n' >"$work/try" && chmod 700 "$work/try" && "$work/try" 2>/dev/null && return
		rm -rf "$work"
	done
	work=""
	fail "programs in ${TMPDIR:-/tmp} cannot be executed; set TMPDIR to another directory" 3
}

check_machine() {
	[ "$(uname -s)" = Linux ] || fail "this is $(uname -s); coracle runs on Linux" 3
	case $(uname -m) in
	x86_64 | amd64) asset=coracle-linux-amd64 ;;
	aarch64 | arm64) asset=coracle-linux-arm64 ;;
	*) fail "this machine is $(uname -m); coracle runs on x86_64 and aarch64" 3 ;;
	esac
	[ "$(id -u)" = 0 ] || have sudo || fail "only root can install a service: run this as root, or install sudo" 3
	have sha256sum || fail "sha256sum is needed; coreutils and busybox have it" 3
}

# at NAME: the path or URL of a file of the mirror. In URLs a plain plus sign could be read as a space.
at() {
	case $mirror in
	http://* | https://*) printf '%s/%s' "${mirror%/}" "$1" | sed 's/+/%2B/g' ;;
	*) printf '%s/%s' "${mirror#file://}" "$1" ;;
	esac
}

# fetch NAME FILE [WAY OUT]: copies a file of the mirror. show is a flag of curl: to print errors only, or progress.
show=sS
fetch() {
	from=$(at "$1")
	case $from in
	http://* | https://*)
		if have curl; then
			curl "-f${show}L" --connect-timeout 10 --speed-limit 1 --speed-time 30 --retry 2 -o "$2" "$from"
		elif have wget; then
			patience="" # busybox has no time-out option that works in all its versions
			! wget --version 2>/dev/null | grep -q GNU || patience="--timeout=30 --tries=3"
			# shellcheck disable=SC2086 # words
			wget -q $patience -O "$2" "$from"
		else
			fail "neither curl nor wget is here to fetch $from" 3
		fi
		;;
	*) cp "$from" "$2" ;;
	esac || fail "$from could not be fetched into $work. Set INSTALL_CORACLE_MIRROR to use another location than $mirror${3-}" 5
}

# sum FILE: the SHA-256 of a file.
sum() { sha256sum <"$1" | cut -d ' ' -f 1; }

# listed NAME: the SHA-256 that SHA256SUMS has for a file.
listed() {
	while read -r digest name; do
		[ "${name#\*}" != "$1" ] || printf %s "$digest"
	done <"$work/SHA256SUMS"
}

# check_sum NAME FILE
check_sum() {
	want=$(listed "$1")
	got=$(sum "$2")
	[ -n "$want" ] || fail "SHA256SUMS does not name $1" 7
	[ "$want" = "$got" ] || fail "$2 has the wrong checksum: $1 must have $want, this has $got" 7
}

# check_signature FILE: makes sure that the release key signed a file of the work directory, whose signature is in FILE.sig:
# RSA with 3072 bits, PKCS #1 v1.5, SHA-256.
check_signature() {
	release_key >"$work/key"
	if have openssl; then
		openssl base64 -d -A -in "$work/$1.sig" -out "$work/signature"
		said=$(openssl dgst -sha256 -verify "$work/key" -signature "$work/signature" "$work/$1" 2>&1)
		[ "$said" = "Verified OK" ]
	elif have awk; then
		check_signature_with_awk "$1"
	else
		fail "openssl or awk is needed to verify the release's signature" 3
	fi || fail "the signature of $1 was not made by the release key" 7
}

# check_signature_with_awk raises the signature to the power of 65537, modulo the key's modulus, and compares the result
# with the expected value. In base64, three bytes are four digits; these are one limb of the numbers here. In every RSA key
# of 3072 bits the modulus begins at a limb, between the two constants.
check_signature_with_awk() {
	signature=$(tr -d '\r\n' <"$work/$1.sig")
	modulus=$(grep -v -e '---' "$work/key" | tr -d '\r\n')
	modulus=${modulus#MIIBojANBgkqhkiG9w0BAQEFAAOCAY8AMIIBigKCAYEA}
	modulus=${modulus%AgMBAAE=}
	[ ${#modulus} = 512 ] || fail "the release key is not RSA with 3072 bits; openssl is needed to use it" 3
	[ ${#signature} = 512 ] || return 1
	awk -v modulus="$modulus" -v signature="$signature" -v digest="$(sum "$work/$1")" '
	function read_number(text, number,   i, j, limb) {
		for (i = 0; i < 128; i++) {
			limb = 0
			for (j = 1; j <= 4; j++) limb = limb * 64 + index(digits, substr(text, 4 * i + j, 1)) - 1
			number[127 - i] = limb
		}
	}
	function leading(x) { return (x[127] * base + x[126]) * base + x[125] }
	function floor(x) { return int(x) > x ? int(x) - 1 : int(x) }
	# x = a * b mod m, for each limb of a from the top. The quotient is estimated from the leading limbs, so x is above -m.
	function multiply(a, b, x,   i, j, q, v, carry, below, t) {
		for (j = 0; j < 128; j++) t[j] = 0
		for (i = 127; i >= 0; i--) {
			q = int((leading(t) * base + a[i] * leading(b)) / leading(m))
			carry = below = 0
			for (j = 0; j < 128; j++) {
				v = below + a[i] * b[j] - q * m[j] + carry
				below = t[j]
				carry = int(v / base)
				t[j] = v - carry * base
			}
			t[127] += (below + carry) * base
		}
		for (j = 0; j < 128; j++) x[j] = t[j]
	}
	BEGIN {
		digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
		base = 16777216
		read_number(modulus, m)
		read_number(signature, s)
		read_number(signature, x)
		for (i = 0; i < 16; i++) multiply(x, x, x)
		multiply(x, s, x)
		for (i = 0; i < 2; i++) { # propagates carries; then again with m added if the result is negative
			carry = 0
			for (j = 0; j < 128; j++) {
				v = x[j] + carry + (negative ? m[j] : 0)
				carry = floor(v / base)
				x[j] = v - carry * base
			}
			negative = carry < 0
		}
		for (j = 127; j >= 0; j--) got = got sprintf("%06x", x[j])
		want = "0001"
		for (i = 0; i < 330; i++) want = want "ff"
		want = want "003031300d060960864801650304020105000420" digest
		exit got == want && length(digest) == 64 ? 0 : 1
	}'
}

# read_channel sets version to the channel's. That a signed channel is old is no error: the clock may be wrong.
read_channel() {
	if is_true INSTALL_CORACLE_INSECURE_UNSIGNED; then
		fetch "channels/$channel" "$work/channel"
		version=$(cat "$work/channel")
		return
	fi
	fetch "channels/$channel.signed" "$work/signed" ", or INSTALL_CORACLE_VERSION to name the version"
	seconds="" signed=""
	{ read -r version seconds && read -r signed; } <"$work/signed" || :
	printf '%s %s\n' "$version" "$seconds" >"$work/channel"
	printf %s "$signed" >"$work/channel.sig"
	check_signature channel
	days=$((($(date +%s || echo 0) - seconds) / 86400))
	[ "$days" -le 100 ] || say "channel $channel was signed $days days ago: $mirror may withhold newer versions, or the clock of this machine is wrong" >&2
}

# fetch_release downloads a release's executable to the work directory and verifies it.
fetch_release() {
	version=${INSTALL_CORACLE_VERSION-}
	[ -n "$version" ] || read_channel
	case $version in
	[!0-9A-Za-z]* | *[!0-9A-Za-z.+_-]* | "") fail "\"$version\" is no version; they look like v1.37.1+coracle.1" 2 ;;
	esac
	say "fetching $version from $mirror"
	fetch "$version/SHA256SUMS" "$work/SHA256SUMS"
	fetch "$version/SHA256SUMS.sig" "$work/SHA256SUMS.sig"
	check_signature SHA256SUMS
	printf '%s\n' "$version" >"$work/version"
	check_sum version "$work/version" # without this a mirror could serve one release as another
	! [ -t 2 ] || show="#" # a progress bar: this file is large
	fetch "$version/$asset" "$work/coracle"
	check_sum "$asset" "$work/coracle"
	say "checksum and signature are right"
}

# take_file copies a local executable to the work directory, and verifies the copy with the checksum and signature beside it.
take_file() {
	cp "$INSTALL_CORACLE_FILE" "$work/coracle" || fail "INSTALL_CORACLE_FILE could not be copied to $work"
	beside=$(dirname "$INSTALL_CORACLE_FILE")
	if [ -e "$beside/SHA256SUMS" ]; then cp "$beside/SHA256SUMS" "$work/SHA256SUMS"; fi
	if [ -e "$work/SHA256SUMS" ] && [ -e "$beside/SHA256SUMS.sig" ]; then
		cp "$beside/SHA256SUMS.sig" "$work/SHA256SUMS.sig"
		check_signature SHA256SUMS
		say "the signature is right"
	elif is_true INSTALL_CORACLE_INSECURE_UNSIGNED; then
		say "$INSTALL_CORACLE_FILE is installed although it is unsigned"
	else
		fail "$INSTALL_CORACLE_FILE is unsigned: put SHA256SUMS and SHA256SUMS.sig of its release beside it, or set INSTALL_CORACLE_INSECURE_UNSIGNED=true for a file that you have built" 7
	fi
	if [ -e "$work/SHA256SUMS" ]; then check_sum "$asset" "$work/coracle"; fi
}

# as_root PROGRAM ARGS…: runs a program as root. It passes settings in a file, because sudo clears the environment and other
# users can see arguments.
as_root() {
	if [ "$(id -u)" = 0 ]; then
		"$@" </dev/null
		return
	fi
	for name in $(env | sed -n -e 's/^\(CORACLE_[A-Z0-9_]*\)=.*/\1/p' -e 's/^\([A-Za-z]*_[Pp][Rr][Oo][Xx][Yy]\)=.*/\1/p'); do
		printf "export %s='%s'\n" "$name" "$(eval "printf %s \"\${$name-}\"" | sed "s/'/'\\\\''/g")"
	done >"$work/settings"
	# shellcheck disable=SC2016 # root's shell expands it
	sudo sh -c '. "$0" && exec "$@"' "$work/settings" "$@" </dev/null
}

main() {
	LC_ALL=C
	export LC_ALL
	bin_dir=${INSTALL_CORACLE_BIN_DIR:-/usr/local/bin}
	mirror=${INSTALL_CORACLE_MIRROR:-https://github.com/coracle-dev/coracle/releases/download}
	channel=${INSTALL_CORACLE_CHANNEL:-stable}
	CORACLE_SERVER=${CORACLE_URL:-${CORACLE_SERVER:-${K3S_URL-}}}
	CORACLE_TOKEN=${CORACLE_TOKEN:-${K3S_TOKEN-}}
	unset CORACLE_URL
	[ -z "$CORACLE_SERVER" ] || export CORACLE_SERVER
	[ -z "$CORACLE_TOKEN" ] || export CORACLE_TOKEN

	set -f # do not expand patterns
	# shellcheck disable=SC2086
	set -- ${INSTALL_CORACLE_EXEC-} "$@"
	set +f
	[ $# = 0 ] || set -- -- "$@"
	! is_true INSTALL_CORACLE_SKIP_ENABLE || set -- --skip-enable "$@"
	! is_true INSTALL_CORACLE_SKIP_START || set -- --skip-start "$@"
	[ -z "${INSTALL_CORACLE_WAIT-}" ] || set -- --wait "$INSTALL_CORACLE_WAIT" "$@"
	[ -z "${INSTALL_CORACLE_NAME-}" ] || set -- --name "$INSTALL_CORACLE_NAME" "$@"
	[ -z "${INSTALL_CORACLE_BIN_DIR-}" ] || set -- --bin-dir "$bin_dir" "$@"

	check_machine
	trap finish EXIT
	trap 'exit 129' HUP
	trap 'exit 130' INT
	trap 'exit 143' TERM
	make_work
	program=$work/coracle
	if [ -n "${INSTALL_CORACLE_FILE-}" ]; then
		take_file
	elif is_true INSTALL_CORACLE_SKIP_DOWNLOAD; then
		program=$bin_dir/coracle
		[ -x "$program" ] || fail "INSTALL_CORACLE_SKIP_DOWNLOAD is set, but there is no $program"
	else
		fetch_release
	fi
	[ "$program" != "$work/coracle" ] || chmod 755 "$program"
	handed=yes
	as_root "$program" install "$@"
}

# The shell reads the whole script before it runs main: a script that was not downloaded completely does nothing.
{ main "$@"; }
