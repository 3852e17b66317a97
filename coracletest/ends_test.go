package coracletest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var statusMessage = meta.Status{Message: "refused by the test itself"}

func selector(label, value string) *meta.LabelSelector {
	return &meta.LabelSelector{MatchLabels: map[string]string{label: value}}
}

// left lists what this machine has of a cluster.
func left(name string) error {
	var found []string
	for _, pattern := range []string{
		"/var/lib/coracle-clusters/" + name, "/var/lib/coracle-clusters/.snapshots/*" + name, os.TempDir() + "/coracle-" + name + "-*",
		"/sys/class/net/*" + name + "*", "/sys/fs/cgroup/coracle-" + name, "/sys/fs/cgroup/*/coracle-" + name,
	} {
		paths, _ := filepath.Glob(pattern)
		found = append(found, paths...)
	}
	commands, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range append(commands, "/proc/self/mountinfo") {
		if data, _ := os.ReadFile(path); bytes.Contains(data, []byte(name)) { // none if it has ended
			found = append(found, path+": "+strings.ReplaceAll(string(data[:min(len(data), 200)]), "\x00", " "))
		}
	}
	if found == nil {
		return nil
	}
	return errors.New(strings.Join(found, ", "))
}

// ending names how the child process of TestEnds ends.
const ending = "CORACLETEST_ENDING"

// announced is what the child process prints when it has a cluster.
var announced = regexp.MustCompile(`(?m)^has (run-\S+)$`)

// TestEnds: however a test process ends, nothing is left of its clusters; there are artifacts unless the test has passed.
func TestEnds(t *testing.T) {
	if how := os.Getenv(ending); how != "" {
		endBy(t, how)
		return
	}
	t.Parallel()
	for _, test := range []struct {
		how       string
		code      int
		artifacts bool
	}{
		{"takes too long", 2, true}, // first, because it takes its whole time
		{"passes", 0, false},
		{"fails", 1, true},
		{"panics", 2, true},
		{"is killed", -1, true},
		{"is killed with a prepared cluster", -1, false},
	} {
		t.Run(test.how, func(t *testing.T) {
			t.Parallel()
			artifacts := filepath.Join(t.TempDir(), "artifacts")
			limit := longLimit
			if test.how == "takes too long" {
				limit = timeLimit
			}
			name := ""
			for ; name == ""; limit *= 2 {
				cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestEnds$", "-test.timeout="+limit.String())
				cmd.Env = append(os.Environ(), ending+"="+test.how, "CORACLETEST_ARTIFACTS="+artifacts)
				cmd.WaitDelay = time.Minute
				out, _ := cmd.CombinedOutput()
				found := announced.FindSubmatch(out)
				if found == nil && limit < longLimit {
					continue // the machine was too busy for a cluster in that time
				}
				if cmd.ProcessState.ExitCode() != test.code || found == nil {
					t.Fatalf("exit code %d, not %d: %s", cmd.ProcessState.ExitCode(), test.code, out)
				}
				name = string(found[1])
			}
			deadline := time.Now().Add(time.Minute)
			for left(name) != nil && time.Now().Before(deadline) {
				<-time.After(poll)
			}
			if what := left(name); what != nil {
				t.Errorf("left: %s", what)
			}
			objects, err := os.ReadFile(filepath.Join(artifacts, "objects.yaml"))
			if written := err == nil && strings.Contains(string(objects), "of-the-test"); written != test.artifacts {
				t.Errorf("the test's object in the artifacts: %v (%v), want %v", written, err, test.artifacts)
			}
		})
	}
}

// A test that takes too long has timeLimit, which is mostly enough for a cluster while other tests start theirs. Others, which end by themselves, have longLimit.
const (
	timeLimit = 30 * time.Second
	longLimit = 2 * time.Minute
)

// endBy makes a cluster and ends.
func endBy(t *testing.T, how string) {
	o := Options{Artifacts: os.Getenv("CORACLETEST_ARTIFACTS")}
	if how == "is killed with a prepared cluster" {
		Prepare(t, o, func(c *Cluster) error {
			fmt.Println("has", c.Name)
			return nil
		})
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	c := Start(t, o)
	fmt.Println("has", c.Name)
	mustKubectl(t, c, "create", "configmap", "of-the-test")
	switch how {
	case "fails":
		t.Error("it fails")
	case "panics": // in a goroutine, whose panic runs no cleanup of the test
		go panic("it panics")
		select {}
	case "is killed":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case "takes too long":
		select {}
	}
}
