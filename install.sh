#!/bin/sh
# Installs coracle, Kubernetes in one executable, as a service of this machine; run again, it upgrades it.
#
#   curl -sfL URL | sh -                                                     a server: a cluster of one
#   curl -sfL URL | CORACLE_URL=https://SERVER:6443 CORACLE_TOKEN=… sh -     an agent, which joins it
#   curl -sfL URL | sh -s - server --disable dns                             arguments are the command's
#
# It fetches the executable to a directory of its own, verifies checksum and signature, and hands over to it: the rest
# is done by "coracle install". Until then nothing of this machine is changed, and when it fails that directory goes too.
# Needed are Linux on x86_64 or aarch64, root or sudo, curl or wget, sha256sum, and openssl or awk.
#
#   CORACLE_URL, CORACLE_TOKEN       the server to join, and the token for it; K3S_URL and K3S_TOKEN do as well.
#   CORACLE_…                        all settings of "coracle server --help" by their variables; the service gets them.
#   INSTALL_CORACLE_VERSION          what to install, as v1.37.1+coracle.1. Without it: what the channel stands at.
#   INSTALL_CORACLE_CHANNEL          stable, if not set.
#   INSTALL_CORACLE_EXEC             the command with its arguments, as "server --disable dns"; others are added to it.
#   INSTALL_CORACLE_NAME             for a second service beside the first: coracle-NAME.
#   INSTALL_CORACLE_BIN_DIR          where to put the executable; /usr/local/bin if not set.
#   INSTALL_CORACLE_MIRROR           where releases are: a URL or a directory.
#   INSTALL_CORACLE_FILE             an executable that is here already, to be installed instead of a release.
#   INSTALL_CORACLE_SKIP_DOWNLOAD    true: use the executable that is in the BIN_DIR.
#   INSTALL_CORACLE_SKIP_START       true: do not start the service now. INSTALL_CORACLE_SKIP_ENABLE: nor at boot.
#   INSTALL_CORACLE_KEY              a file with the public key to trust instead of the one below.
#
# Exit codes: 0 done, 1 failed, 2 a variable or argument is wrong, 3 this machine cannot do it, 5 no release to be had,
# 7 checksum or signature wrong; others are those of "coracle install".
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

# is_true NAME: whether the variable says so.
is_true() {
	eval "set -- \"$1\" \"\${$1-}\""
	case $2 in
	true | yes | 1) return 0 ;;
	"" | false | no | 0) return 1 ;;
	esac
	fail "$1 is $2; it can be true or false" 2
}

# finish removes what was made here. handed says that coracle itself has taken over, and has said what went wrong.
work="" handed=""
finish() {
	code=$?
	[ -z "$work" ] || rm -rf "$work"
	[ "$code" = 0 ] || [ -n "$handed" ] || say "nothing was installed or changed" >&2
	exit "$code"
}

# make_work makes the directory that all is put into until it is verified: in a place from where programs may be run.
make_work() {
	for place in "${TMPDIR:-/tmp}" /var/lib "$bin_dir"; do
		work=$(umask 077 && mktemp -d "$place/coracle-install.XXXXXX" 2>/dev/null) || continue
		printf '#!/bin/sh\n' >"$work/try" && chmod 700 "$work/try" && "$work/try" 2>/dev/null && return
		rm -rf "$work"
	done
	work=""
	fail "no program can be put into ${TMPDIR:-/tmp} and run there; name another directory with TMPDIR" 3
}

check_machine() {
	[ "$(uname -s)" = Linux ] || fail "this is $(uname -s); coracle runs on Linux" 3
	case $(uname -m) in
	x86_64 | amd64) asset=coracle-linux-amd64 ;;
	aarch64 | arm64) asset=coracle-linux-arm64 ;;
	*) fail "this machine is $(uname -m); there is a coracle for x86_64 and for aarch64" 3 ;;
	esac
	[ "$(id -u)" = 0 ] || have sudo || fail "only root can install a service: run this as root, or install sudo" 3
	have sha256sum || fail "sha256sum is needed; coreutils and busybox have it" 3
}

# at NAME: where a file of the mirror is. In a URL a plain plus sign could be taken for a blank.
at() {
	case $mirror in
	http://* | https://*) printf '%s/%s' "${mirror%/}" "$1" | sed 's/+/%2B/g' ;;
	*) printf '%s/%s' "${mirror#file://}" "$1" ;;
	esac
}

# fetch NAME FILE: copies a file of the mirror. show is what curl is to show: errors, or how far it is.
show=sS
fetch() {
	from=$(at "$1")
	case $from in
	http://* | https://*)
		if have curl; then
			curl "-f${show}L" --connect-timeout 10 --speed-limit 1 --speed-time 30 --retry 2 -o "$2" "$from"
		elif have wget; then
			patience="" # busybox has no limit that works in all its versions
			! wget --version 2>/dev/null | grep -q GNU || patience="--timeout=30 --tries=3"
			# shellcheck disable=SC2086 # words
			wget -q $patience -O "$2" "$from"
		else
			fail "neither curl nor wget is here to fetch $from" 3
		fi
		;;
	*) cp "$from" "$2" ;;
	esac || fail "$from could not be fetched into $work. INSTALL_CORACLE_MIRROR names another place than $mirror" 5
}

# sum FILE: its SHA-256.
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

# check_signature makes sure that the release key signed SHA256SUMS: RSA with 3072 bits, PKCS #1 v1.5, SHA-256.
check_signature() {
	release_key >"$work/key"
	if have openssl; then
		openssl base64 -d -A -in "$work/SHA256SUMS.sig" -out "$work/signature"
		said=$(openssl dgst -sha256 -verify "$work/key" -signature "$work/signature" "$work/SHA256SUMS" 2>&1)
		[ "$said" = "Verified OK" ]
	elif have awk; then
		check_signature_with_awk
	else
		fail "openssl or awk is needed to verify the release's signature" 3
	fi || fail "the signature of SHA256SUMS was not made by the release key" 7
}

# check_signature_with_awk raises the signature to the power of 65537, modulo the key's modulus, and compares the result
# with what must come out. In base64 three bytes are four digits, which is a limb of the numbers here; the modulus begins
# at such a limb in every key of this kind, between the two constants.
check_signature_with_awk() {
	signature=$(tr -d '\r\n' <"$work/SHA256SUMS.sig")
	modulus=$(grep -v -e '---' "$work/key" | tr -d '\r\n')
	modulus=${modulus#MIIBojANBgkqhkiG9w0BAQEFAAOCAY8AMIIBigKCAYEA}
	modulus=${modulus%AgMBAAE=}
	[ ${#modulus} = 512 ] || fail "the release key is not RSA with 3072 bits; only openssl can take it" 3
	[ ${#signature} = 512 ] || return 1
	awk -v modulus="$modulus" -v signature="$signature" -v digest="$(sum "$work/SHA256SUMS")" '
	function read_number(text, number,   i, j, limb) {
		for (i = 0; i < 128; i++) {
			limb = 0
			for (j = 1; j <= 4; j++) limb = limb * 64 + index(digits, substr(text, 4 * i + j, 1)) - 1
			number[127 - i] = limb
		}
	}
	function leading(x) { return (x[127] * base + x[126]) * base + x[125] }
	function floor(x) { return int(x) > x ? int(x) - 1 : int(x) }
	# x = a * b mod m, for each limb of a from the top. The quotient comes from the leading limbs, so x ends above -m.
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
		for (i = 0; i < 2; i++) { # limbs in order; then again with m added if it was negative
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

# fetch_release puts a release's executable into the work directory.
fetch_release() {
	version=${INSTALL_CORACLE_VERSION-}
	if [ -z "$version" ]; then
		fetch "channels/$channel" "$work/channel"
		version=$(cat "$work/channel")
	fi
	case $version in
	[!0-9A-Za-z]* | *[!0-9A-Za-z.+_-]* | "") fail "\"$version\" is no version; they look like v1.37.1+coracle.1" 2 ;;
	esac
	say "fetching $version from $mirror"
	fetch "$version/SHA256SUMS" "$work/SHA256SUMS"
	fetch "$version/SHA256SUMS.sig" "$work/SHA256SUMS.sig"
	check_signature
	printf '%s\n' "$version" >"$work/version"
	check_sum version "$work/version" # or a mirror could give one release for another
	! [ -t 2 ] || show="#" # this one takes a while
	fetch "$version/$asset" "$work/coracle"
	check_sum "$asset" "$work/coracle"
	say "checksum and signature are right"
}

# take_file puts a local executable into the work directory, and verifies it as far as there is something beside it.
take_file() {
	cp "$INSTALL_CORACLE_FILE" "$work/coracle" || fail "INSTALL_CORACLE_FILE could not be put into $work"
	beside=$(dirname "$INSTALL_CORACLE_FILE")
	if ! [ -e "$beside/SHA256SUMS" ]; then
		say "$INSTALL_CORACLE_FILE is installed unverified: there is no SHA256SUMS beside it"
		return
	fi
	cp "$beside/SHA256SUMS" "$work/SHA256SUMS"
	if [ -e "$beside/SHA256SUMS.sig" ]; then
		cp "$beside/SHA256SUMS.sig" "$work/SHA256SUMS.sig"
		check_signature
		say "the signature is right"
	else
		say "there is no SHA256SUMS.sig beside $INSTALL_CORACLE_FILE: only its checksum is verified"
	fi
	check_sum "$asset" "$work/coracle"
}

# as_root PROGRAM ARGS…: sudo clears the environment, and arguments can be seen by all; so settings go through a file.
as_root() {
	if [ "$(id -u)" = 0 ]; then
		"$@" </dev/null
		return
	fi
	for name in $(env | sed -n -e 's/^\(CORACLE_[A-Z0-9_]*\)=.*/\1/p' -e 's/^\([A-Za-z]*_[Pp][Rr][Oo][Xx][Yy]\)=.*/\1/p'); do
		printf "export %s='%s'\n" "$name" "$(eval "printf %s \"\${$name-}\"" | sed "s/'/'\\\\''/g")"
	done >"$work/settings"
	# shellcheck disable=SC2016 # for the shell of root
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

	set -f # words, not patterns
	# shellcheck disable=SC2086
	set -- ${INSTALL_CORACLE_EXEC-} "$@"
	set +f
	[ $# = 0 ] || set -- -- "$@"
	! is_true INSTALL_CORACLE_SKIP_ENABLE || set -- --skip-enable "$@"
	! is_true INSTALL_CORACLE_SKIP_START || set -- --skip-start "$@"
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

# The whole script is read before anything is done: one that ends early does nothing.
{ main "$@"; }
