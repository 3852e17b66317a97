package config

import (
	"path/filepath"
	"slices"
	"strings"
	"unicode"
)

// longestSocket is what the kernel takes as a socket's path, without the closing zero byte.
const longestSocket = 107

// deepestSocket is the longest name below the run directory that a socket of ours has.
const deepestSocket = "containerd/containerd.sock.ttrpc"

// systemDirs are directories of the system's. coracle reset removes its directories whole, so none of these may be one.
var systemDirs = [...]string{"/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib64", "/media", "/mnt", "/opt", "/proc", "/root",
	"/run", "/sbin", "/srv", "/sys", "/tmp", "/usr", "/usr/bin", "/usr/lib", "/usr/local", "/usr/local/bin", "/usr/sbin", "/usr/share",
	"/var", "/var/cache", "/var/lib", "/var/lock", "/var/log", "/var/run", "/var/spool", "/var/tmp"}

// checkDirs reports directories that cannot work, alone or together.
func (d *decoder) checkDirs(r *raw, cfg Config) {
	roots := []struct {
		v    *value
		path string
	}{{&r.dataDir, cfg.Dirs.Data}, {&r.runDir, cfg.Dirs.Run}, {&r.kubeletRoot, cfg.Dirs.Kubelet}}
	for i, x := range roots {
		if slices.Contains(systemDirs[:], x.path) {
			d.add("%s: %s belongs to the system, and coracle removes its directory on reset; choose one below it", x.v.label(), x.path)
		}
		if bad := strings.IndexFunc(x.path, breaksMounts); bad >= 0 {
			d.add("%s: %q has the character %q in it, which mount options and tables cannot hold", x.v.label(), x.path, []rune(x.path[bad:])[0])
		}
		for _, y := range roots[i+1:] {
			if x.path == y.path {
				d.add("%s and %s are both %s; each needs its own", x.v.label(), y.v.label(), x.path)
			}
		}
	}
	if n := len(filepath.Join(cfg.Dirs.Run, deepestSocket)); n > longestSocket {
		d.add("%s: %s is too long: sockets in it would have paths of %d bytes, and the kernel takes %d; choose a shorter one",
			r.runDir.label(), cfg.Dirs.Run, n, longestSocket)
	}
}

// breaksMounts reports characters that separate things in overlayfs' options and in /proc/self/mountinfo.
func breaksMounts(r rune) bool {
	return strings.ContainsRune(":,\\\"'", r) || unicode.IsSpace(r) || unicode.IsControl(r) || r == unicode.ReplacementChar
}
