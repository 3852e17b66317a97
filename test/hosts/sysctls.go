package hosts

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// machineSysctls are the settings without namespaces that a node changes, with the values that it wants. A node is content
// with a larger value of those that have atLeast.
var machineSysctls = []struct {
	name    string // below /proc/sys
	value   int
	atLeast bool
}{
	{"fs/inotify/max_user_instances", 8192, true},
	{"fs/inotify/max_user_watches", 524288, true},
	{"vm/overcommit_memory", 1, false},
	{"kernel/panic", 10, true},
	{"kernel/panic_on_oops", 1, false},
	{"kernel/keys/root_maxkeys", 1000000, true},
	{"kernel/keys/root_maxbytes", 25000000, true},
}

// setMachineSysctls gives these settings the values that nodes want, and leaves them so. Otherwise the first node of a
// test would set them, and its reset would restore them under the nodes of other tests that run at the same time.
func setMachineSysctls() error {
	if os.Geteuid() != 0 {
		return nil
	}
	for _, s := range machineSysctls {
		path := filepath.Join("/proc/sys", s.name)
		data, err := os.ReadFile(path)
		if err != nil {
			continue // this kernel does not have it
		}
		now, err := strconv.Atoi(strings.TrimSpace(string(data)))
		if err != nil || now == s.value || s.atLeast && now > s.value {
			continue
		}
		if err := os.WriteFile(path, []byte(strconv.Itoa(s.value)), 0o644); err != nil {
			return fmt.Errorf("setting sysctl %s for all tests: %w", s.name, err)
		}
	}
	return nil
}
