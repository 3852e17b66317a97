// Package release fetches released executables of coracle and decides whether a file is one.
//
// A release is a directory, on a web server or a disk:
//
//	BASE/channels/stable.signed         the version of the channel and when that was signed, in seconds since 1970; its signature
//	BASE/channels/stable                the version alone, which older releases read
//	BASE/VERSION/coracle-linux-amd64    the executable, for each architecture
//	BASE/VERSION/SHA256SUMS             a checksum for each file of the directory
//	BASE/VERSION/SHA256SUMS.sig         the release key's signature of SHA256SUMS
//	BASE/VERSION/channel                what a channel's signed file has while it is at this version
//
// Only the signature is trusted, so BASE may be anyone's mirror, and plain HTTP. The checksums include one of a file "version",
// whose text is the version, so that a mirror cannot pass off one release as another.
//
// install.sh does the same in shell, for machines without coracle. Packages install and upgrade use the executable.
package release

import (
	"fmt"

	"github.com/coracle-dev/coracle/pkg/core/exitcode"
)

const (
	// DefaultMirror is the default base of releases.
	DefaultMirror = "https://github.com/coracle-dev/coracle/releases/download"
	// DefaultChannel is the channel if neither a channel nor a version is given.
	DefaultChannel = "stable"

	// SumsFile lists the checksums of a release's files, as sha256sum writes them.
	SumsFile = "SHA256SUMS"
	// SignatureFile is the signature of SumsFile.
	SignatureFile = SumsFile + ".sig"
	// SignedChannel is the end of the name of a channel's signed file.
	SignedChannel = ".signed"
	// versionFile has a checksum in SumsFile, so that the signature covers the version.
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

// Untrusted is the error of a file whose checksum or signature is wrong. Files that cannot be read have other errors.
type Untrusted struct {
	File   string // its name, or where it was read from
	Reason string
}

func (u Untrusted) Error() string {
	return fmt.Sprintf("%s is not to be trusted: %s; nothing was changed", u.File, u.Reason)
}

// untrusted returns an Untrusted with its exit code.
func untrusted(file, reason string) error {
	return exitcode.With(exitcode.Untrusted, Untrusted{file, reason})
}
