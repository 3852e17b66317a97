package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/hosts"
)

// begun is a coracle command that runs on a host.
type begun struct {
	*exec.Cmd
	output bytes.Buffer
	ended  chan error
}

// at starts a command on a host, and sends it a signal as soon as it has come to a point.
func at(t *testing.T, h *hosts.Host, there func() bool, signal syscall.Signal, args ...string) *begun {
	t.Helper()
	b := &begun{Cmd: h.Command(hosts.Bin(t), args...), ended: make(chan error, 1)}
	b.Stdout, b.Stderr = &b.output, &b.output
	b.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // the process of a Command has entered the host, and the command is its child
	if err := b.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { b.ended <- b.Wait() }()
	look, limit := time.NewTicker(time.Millisecond), time.After(time.Minute)
	defer look.Stop()
	for !there() {
		select {
		case <-look.C:
		case err := <-b.ended:
			if b.ended <- err; there() { // just before
				return b
			}
			t.Fatalf("coracle %s ended before it came to the point: %v\n%s", strings.Join(args, " "), err, b.output.String())
		case <-limit:
			b.signal(syscall.SIGKILL)
			t.Fatalf("coracle %s did not come to the point: %v", strings.Join(args, " "), <-b.ended)
		}
	}
	b.signal(signal)
	return b
}

func (b *begun) signal(s syscall.Signal) { _ = syscall.Kill(-b.Process.Pid, s) }

// goOn continues a command that was stopped, and wants that it succeeds.
func (b *begun) goOn(t *testing.T) {
	t.Helper()
	b.signal(syscall.SIGCONT)
	if err := <-b.ended; err != nil {
		t.Errorf("%v: %v\n%s", b.Args, err, b.output.String())
	}
}

// killAt kills a command at a point.
func killAt(t *testing.T, h *hosts.Host, there func() bool, args ...string) {
	t.Helper()
	<-at(t, h, there, syscall.SIGKILL, args...).ended
}

// appears returns what reports whether there are files of a pattern that are not there now, or were changed.
func appears(pattern string) func() bool {
	look := func() map[string]time.Time {
		seen := map[string]time.Time{}
		found, _ := filepath.Glob(pattern)
		for _, path := range found {
			if info, err := os.Lstat(path); err == nil {
				seen[path] = info.ModTime()
			}
		}
		return seen
	}
	before := look()
	return func() bool {
		for path, changed := range look() {
			if !before[path].Equal(changed) {
				return true
			}
		}
		return false
	}
}

func gone(path string) func() bool {
	return func() bool {
		_, err := os.Lstat(path)
		return os.IsNotExist(err)
	}
}

// killedCopies kills the commands that make and remove backups at each of their steps. The same again finishes, everything that is there is whole, and
// nothing that is unfinished is left.
func killedCopies(t *testing.T, h *hosts.Host, s bucket, recipient string) {
	t.Helper()
	dir, mine := h.Data("server", "snapshots"), h.Path("/root/mine")
	flags := append(slices.Clone(s.flags), "--etcd-s3-folder=killed", "--etcd-snapshot-name=killed", "--etcd-snapshot-recipient="+recipient,
		"--etcd-snapshot-retention=1", "--etcd-s3-retention=1")
	do := func(command ...string) []string { return slices.Concat([]string{"etcd", "snapshot"}, command, flags) }
	for _, unfinished := range []string{".snapshot-*/*", ".killed-*", "killed-*.age"} { // the database is copied, the backup is written, it is tried
		killAt(t, h, appears(filepath.Join(dir, unfinished)), do("save")...)
	}
	killAt(t, h, func() bool { return len(s.below("killed/")) > 0 }, do("save")...)
	h.Coracle(do("save")...)
	killAt(t, h, appears(filepath.Join(filepath.Dir(mine), ".mine*")), "etcd", "snapshot", "save", "/root/mine")
	h.Coracle("etcd", "snapshot", "save", "/root/mine")
	h.Coracle(do("save")...)
	there := func() []madeCopy {
		list, err := listCopies(t, h, flags...)
		if err != nil {
			t.Error(err)
		}
		return slices.DeleteFunc(list, func(c madeCopy) bool { return !strings.HasPrefix(c.Name, "killed-") })
	}
	whole := func() []madeCopy {
		h.Coracle(do("list", "--check", "--identity=/root/key")...)
		for _, pattern := range []string{filepath.Join(dir, ".*"), filepath.Join(filepath.Dir(mine), ".mine*")} {
			left, err := filepath.Glob(pattern)
			left = slices.DeleteFunc(left, func(path string) bool { return filepath.Base(path) == ".lock" })
			if err != nil || len(left) > 0 {
				t.Errorf("killed commands have left %v, %v", left, err)
			}
		}
		return there()
	}
	list := whole()
	if len(list) < 4 {
		t.Fatalf("there are %+v", list)
	}
	killAt(t, h, gone(h.Path(list[0].Location)), do("prune")...)
	h.Coracle(do("prune")...)
	if list = whole(); len(list) != 2 || list[0].Name != list[1].Name || list[0].Tried.IsZero() {
		t.Fatalf("after a prune there are %+v", list)
	}
	delete := func(c madeCopy) {
		if _, err := h.TryCoracle(do("delete", c.Name)...); err != nil && !strings.Contains(err.Error(), "has no backup called "+c.Name) {
			t.Errorf("deleted again: %v", err)
		}
		if list, left := whole(), s.below("killed/"); len(list)+len(left) > 0 {
			t.Errorf("when the last one is deleted there are %+v and %v", list, left)
		}
	}
	killAt(t, h, gone(h.Path(list[0].Location)), do("delete", list[0].Name)...)
	delete(list[0])
	killAt(t, h, func() bool { return len(s.below("killed/")) > 0 }, do("save")...)
	if list = there(); len(list) == 0 {
		t.Fatal("a killed save has left no file")
	}
	note := filepath.Join(dir, "."+filepath.Base(list[0].Location)+".about.json.12") // as if it was killed while it wrote that
	if err := os.WriteFile(note, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	delete(list[0])
}

// twoCopies makes two backups at once: the second command says that it waits for the first.
func twoCopies(t *testing.T, h *hosts.Host) {
	t.Helper()
	dir := h.Data("server", "snapshots")
	one := at(t, h, appears(filepath.Join(dir, ".snapshot-*")), syscall.SIGSTOP, "etcd", "snapshot", "save")
	two := at(t, h, func() bool { return lockAwaited(filepath.Join(dir, ".lock")) }, syscall.SIGCONT, "etcd", "snapshot", "save")
	one.goOn(t)
	two.goOn(t)
	if said := two.output.String(); !strings.Contains(said, "waiting for another command that makes or removes backups") {
		t.Errorf("the second said\n%s", said)
	}
}

// lockAwaited reports whether a process waits for the lock of a file.
func lockAwaited(file string) bool {
	var info syscall.Stat_t
	if syscall.Stat(file, &info) != nil {
		return false
	}
	locks, _ := os.ReadFile("/proc/locks")
	for line := range strings.Lines(string(locks)) {
		if strings.Contains(line, " -> ") && strings.Contains(line, fmt.Sprintf(":%d ", info.Ino)) {
			return true
		}
	}
	return false
}

// ownDirectory makes backups in a directory of one's own, the last of which is killed while it is tried and is damaged, and copies its content to own. A
// directory that is missing may be a disk that is not mounted.
func ownDirectory(t *testing.T, h *hosts.Host, own string) {
	t.Helper()
	const dir = "/root/own"
	if _, err := h.TryCoracle("etcd", "snapshot", "save", "--dir="+dir); err == nil || !strings.Contains(err.Error(), dir+": no such file or directory: make it, or mount it") {
		t.Errorf("saved into a directory that is missing: %v", err)
	}
	h.Run("mkdir", dir)
	h.Coracle("etcd", "snapshot", "save", "--dir="+dir)
	if list, err := listCopies(t, h, "--dir="+dir); err != nil || len(list) != 1 || list[0].Tried.IsZero() || filepath.Dir(list[0].Location) != dir {
		t.Errorf("in a directory of its own there are %+v, %v", list, err)
	}
	killAt(t, h, appears(h.Path(dir+"/*.age")), "etcd", "snapshot", "save", "--dir="+dir)
	list, err := listCopies(t, h, "--dir="+dir)
	if err != nil || len(list) != 2 || !list[1].Tried.IsZero() {
		t.Fatalf("after a killed one there are %+v, %v", list, err)
	}
	if err := os.Truncate(h.Path(list[1].Location), 1000); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(own, os.DirFS(h.Path(dir))); err != nil {
		t.Fatal(err)
	}
}

// killedRestore restores a backup, killed at each of its steps, and then twice at once.
func killedRestore(t *testing.T, h *hosts.Host, args ...string) {
	t.Helper()
	restore := append([]string{"etcd", "snapshot", "restore", "--yes"}, args...)
	for _, step := range []string{"server.restoring", "server.restoring/server", "server.restoring/server/etcd"} {
		killAt(t, h, appears(h.Data(step)), restore...)
	}
	one := at(t, h, appears(h.Data("server.restoring/server")), syscall.SIGSTOP, restore...)
	if _, err := h.TryCoracle(restore...); err == nil || !strings.Contains(err.Error(), "another restore is at work here") {
		t.Errorf("restored while another one does: %v", err)
	}
	one.goOn(t)
	if left := unfinishedRestores(h); len(left) > 0 {
		t.Errorf("a restore has left %v", left)
	}
}

// unfinishedRestores are what killed restores have left.
func unfinishedRestores(h *hosts.Host) (left []string) {
	for _, pattern := range []string{"server.restoring", ".snapshot-*"} {
		found, _ := filepath.Glob(h.Data(pattern))
		left = append(left, found...)
	}
	return left
}
