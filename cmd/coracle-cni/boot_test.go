package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// TestBoots has 50 boots of a node with 20 pods, whose power is cut each time.
func TestBoots(t *testing.T) {
	dir, boot := t.TempDir(), 0
	l := leases{dir, "coracle", func() string { return fmt.Sprint("boot ", boot) }}
	for boot = range 50 {
		given := map[string]bool{}
		for pod := range 20 {
			got, err := l.take(fmt.Sprintf("pod-%d-%d", boot, pod), "eth0", prefixes("10.42.3.0/24", "fd00:42::/64"))
			if err != nil {
				t.Fatalf("boot %d, pod %d: %v", boot, pod, err)
			}
			for _, ip := range got.IPs {
				if given[ip.Address.String()] {
					t.Fatalf("boot %d: %s was leased twice", boot, ip.Address.IP)
				}
				given[ip.Address.String()] = true
			}
		}
		if got := held(t, l); len(got) != 40 {
			t.Fatalf("boot %d: %d leases of 20 pods", boot, len(got))
		}
	}
	files, err := os.ReadDir(filepath.Join(dir, "coracle"))
	if err != nil || len(files) != 40+4 { // and the lock, the boot, and the last address of each family
		t.Errorf("%d files are left (%v)", len(files), err)
	}
}

// TestLeasesAreKept while their pods may run.
func TestLeasesAreKept(t *testing.T) {
	boot := ""
	l := leases{t.TempDir(), "coracle", func() string { return boot }}
	file := filepath.Join(l.dataDir, l.network, bootFile)
	take := func(id string, want int) {
		t.Helper()
		if _, err := l.take(id, "eth0", prefixes("10.42.3.0/24")); err != nil {
			t.Fatal(err)
		}
		if got := held(t, l); len(got) != want {
			t.Errorf("leased: %v, want %d", got, want)
		}
	}
	take("a", 1) // by a version of coracle that writes no boot, and where the boot is unknown
	boot = "1"
	take("b", 2)
	take("c", 3)
	boot = ""
	take("d", 4)
	boot = "1"
	take("e", 5)
	os.WriteFile(file, nil, 0o600) // by a disk that fails
	take("f", 6)
	boot = "2"
	take("g", 1)
	if err := l.release("g", "eth0"); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(file); string(data) != "2\n" {
		t.Errorf("the boot is %q, %v", data, err)
	}
}

func TestThisBoot(t *testing.T) {
	if a, b := thisBoot(), thisBoot(); a == "" || a != b {
		t.Errorf("one boot is %q and %q", a, b)
	}
}
