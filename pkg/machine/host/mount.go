package host

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/footprint"
	"github.com/coracle-dev/coracle/pkg/core/ledger"
)

// shareRoot makes all mounts shared, as systemd does. Mounts that a pod makes with bidirectional propagation (CSI drivers)
// then reach the host, and the host's mounts reach pods.
func shareRoot(l *ledger.Ledger) error {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("reading the mount table: %w", err)
	}
	if shared(string(mounts), "/") {
		return nil
	}
	if err := l.Note(unshared(string(mounts))...); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("making mounts shared (mount --make-rshared /): %w", err)
	}
	return nil
}

// unshared returns a ledger entry for each mount in the text of mountinfo that is not shared.
func unshared(mountinfo string) (entries []ledger.Entry) {
	seen := map[string]bool{}
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		if len(fields) < 7 || seen[fields[4]] || shared(mountinfo, fields[4]) {
			continue
		}
		seen[fields[4]] = true
		old := "private"
		if strings.HasPrefix(fields[6], "master:") {
			old = "slave"
		}
		point := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(fields[4])
		entries = append(entries, ledger.Entry{Kind: ledger.Propagation, Name: point, Old: old, New: "shared"})
	}
	return entries
}

// shared reports whether the topmost mount at the mount point is in a peer group, by the text of mountinfo.
func shared(mountinfo, point string) bool {
	found := false
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		if len(fields) < 7 || fields[4] != point {
			continue
		}
		found = false
		for _, optional := range fields[6:] {
			if optional == "-" {
				break
			}
			found = found || strings.HasPrefix(optional, "shared:")
		}
	}
	return found
}

// shareNetNS makes the directory of network namespaces a shared mount before the first namespace is mounted there.
// Otherwise the first `ip netns add` on the machine would bind the directory over itself, and with it each mount of an
// earlier sandbox's namespace: containerd could not remove those sandboxes any more.
func shareNetNS(l *ledger.Ledger) error {
	if err := l.MkdirAll(footprint.NetNSDir, 0o755); err != nil {
		return err
	}
	err := unix.Mount("", footprint.NetNSDir, "none", unix.MS_SHARED|unix.MS_REC, "")
	if err == nil {
		return nil
	}
	if !errors.Is(err, unix.EINVAL) { // EINVAL: it is no mount point yet
		return fmt.Errorf("making %s a shared mount: %w", footprint.NetNSDir, err)
	}
	if err := l.Note(ledger.Entry{Kind: ledger.Mount, Name: footprint.NetNSDir}); err != nil {
		return err
	}
	if err := unix.Mount(footprint.NetNSDir, footprint.NetNSDir, "none", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("binding %s to itself: %w", footprint.NetNSDir, err)
	}
	if err := unix.Mount("", footprint.NetNSDir, "none", unix.MS_SHARED|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("making %s a shared mount: %w", footprint.NetNSDir, err)
	}
	return nil
}
