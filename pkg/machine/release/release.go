// Package release fetches released executables of coracle and decides whether a file is one.
//
// A release is a directory, on a web server or a disk:
//
//	BASE/channels/stable                the version that the channel stands at, as a line of text
//	BASE/VERSION/coracle-linux-amd64    the executable, for each architecture
//	BASE/VERSION/SHA256SUMS             a checksum for each file of the directory
//	BASE/VERSION/SHA256SUMS.sig         the release key's signature of SHA256SUMS
//
// Only the signature is trusted, so BASE may be a mirror that anybody runs, and plain HTTP. The checksums have one of
// the file "version" too, whose text is the version: a mirror cannot pass off one release as another.
//
// install.sh does the same in shell, for machines that have no coracle yet. What is done with an executable is left to
// package install and package upgrade.
package release

import (
	"fmt"

	"github.com/coracle-dev/coracle/pkg/core/exitcode"
)

const (
	// DefaultMirror is the base of releases if no other is named.
	DefaultMirror = "https://github.com/coracle-dev/coracle/releases/download"
	// DefaultChannel is the channel of those who name neither a channel nor a version.
	DefaultChannel = "stable"

	// SumsFile lists the checksums of a release's files, as sha256sum writes them.
	SumsFile = "SHA256SUMS"
	// SignatureFile is the signature of SumsFile.
	SignatureFile = SumsFile + ".sig"
	// versionFile is in SumsFile, so that the signature covers the version.
	versionFile = "version"
)

// PublicKey is the key that releases are signed with: RSA with 3072 bits, a key pair that cosign and openssl take alike.
// install.sh has the same text.
const PublicKey = `-----BEGIN PUBLIC KEY-----
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
`

// Asset is the name of the executable for an architecture by Go's name for it, such as amd64.
func Asset(arch string) string { return "coracle-linux-" + arch }

// Untrusted is a file whose checksum or signature is wrong, as against one that could not be had or read.
type Untrusted struct {
	File   string // which file, or where from
	Reason string
}

func (u Untrusted) Error() string {
	return fmt.Sprintf("%s is not to be trusted: %s; nothing was changed", u.File, u.Reason)
}

// untrusted is an Untrusted with the exit code of its kind.
func untrusted(file, reason string) error {
	return exitcode.With(exitcode.Untrusted, Untrusted{file, reason})
}
