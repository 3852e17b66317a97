// Command bundle makes the parts of the payload: the pause image, the payload archive, licence texts, test images, and
// the overlay that compiles upstream commands into coracle's executables. scripts/build calls it.
package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/coracle-dev/coracle/scripts/bundle/nft"
	"github.com/coracle-dev/coracle/scripts/bundle/overlay"
)

// command is one subcommand: its arguments and its function.
type command struct {
	usage string
	args  int
	run   func(args []string) error
}

// commands is the table of subcommands.
var commands = map[string]command{
	"agnhost": {"GOARCH BINARY BUSYBOX PROBE SOURCES NAME OUTFILE", 7, func(a []string) error {
		return agnhostImage(a[0], a[1], a[2], a[3], a[4], a[5], a[6])
	}},
	"conformance": {"GOARCH BUSYBOX PROGRAMS SOURCES LIST OUTDIR", 6, func(a []string) error {
		return conformanceImages(a[0], a[1], a[2], a[3], a[4], a[5])
	}},
	"busybox": {"GOARCH BUSYBOX PROBE NAME OUTFILE", 5, func(a []string) error { return busyboxImage(a[0], a[1], a[2], a[3], a[4]) }},
	"program": {"GOARCH BINARY USER NAME OUTFILE", 5, func(a []string) error { return programImage(a[0], a[1], a[2], a[3], a[4]) }},
	"critest": {"GOARCH BUSYBOX STANDIN OUTDIR", 4, func(a []string) error { return critestImages(a[0], a[1], a[2], a[3]) }},
	"overlay": {"ROOT OUTDIR", 2, func(a []string) error {
		_, err := overlay.Write(a[0], a[1])
		return err
	}},
	"patched":  {"NAME,... MODULE OUTDIR", 3, func(a []string) error { return overlay.WritePatched(a[0], a[1], a[2]) }},
	"nft":      {"DEBIAN_ROOT OUTDIR", 2, func(a []string) error { return nft.Gather(a[0], a[1]) }},
	"pack":     {"DIR LEVEL OUTFILE", 3, func(a []string) error { return pack(a[0], a[1], a[2]) }},
	"attach":   {"FRONT PAYLOAD LEVEL OUTFILE", 4, func(a []string) error { return attach(a[0], a[1], a[2], a[3]) }},
	"versions": {"ROOT DEBIAN_ROOT PAUSE_VERSION OUTFILE", 4, func(a []string) error { return writeVersions(a[0], a[1], a[2], a[3]) }},
	"licenses": {"ROOT OVERLAY DEBIAN_ROOT PAYLOAD_DIR OUTFILE", 5, func(a []string) error {
		return writeLicenses(a[0], a[1], a[2], a[3], a[4])
	}},
	"list": {"PAYLOAD_DIR OUTFILE", 2, func(a []string) error { return list(a[0], a[1]) }},
	"image": {"GOARCH VERSION PAYLOAD ROOT CONFIG OUTFILE", 6, func(a []string) error {
		return productImage(a[0], a[1], a[2], a[3], a[4], a[5])
	}},
	"index": {"OUTFILE AMD64_IMAGE ARM64_IMAGE", 3, func(a []string) error { return imageIndex(a[0], a[1:]) }},
	"sbom": {"ROOT RELEASE_DIR VERSION COMMIT CREATED PAUSE_VERSION ARCH=DEBIAN_ROOT,... OUTFILE", 8, func(a []string) error {
		return writeSBOM(a[0], release{a[1], a[2], a[3], a[4], a[5]}, a[6], a[7])
	}},
	"pause": {"GOARCH BINARY NAME OUTFILE", 4, func(a []string) error { return pauseImage(a[0], a[1], a[2], a[3]) }},
}

func main() {
	if len(os.Args) < 2 || len(os.Args)-2 != commands[os.Args[1]].args || commands[os.Args[1]].run == nil {
		var lines []string
		for name, c := range commands {
			lines = append(lines, "  bundle "+name+" "+c.usage)
		}
		slices.Sort(lines)
		fmt.Fprintln(os.Stderr, "usage:\n"+strings.Join(lines, "\n"))
		os.Exit(2)
	}
	if err := commands[os.Args[1]].run(os.Args[2:]); err != nil {
		fmt.Fprintf(os.Stderr, "bundle %s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
}
