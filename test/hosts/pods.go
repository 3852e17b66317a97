package hosts

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// PodProcess is any process of the pod of that UID, for On: to be in the pod's network.
func PodProcess(t testing.TB, uid string) int {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil || !strings.Contains(strings.ReplaceAll(string(data), "_", "-"), uid) {
			continue
		}
		var pid int
		if _, err := fmt.Sscanf(file, "/proc/%d/cgroup", &pid); err == nil {
			return pid
		}
	}
	t.Fatalf("no process is of pod %s", uid)
	return 0
}
