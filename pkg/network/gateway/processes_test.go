package gateway

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/coracle-dev/coracle/pkg/core/process"
)

// imitate runs a program with the arguments of a gateway's process, in a directory.
func imitate(t *testing.T, dir Dir, in string) *exec.Cmd {
	t.Helper()
	if err := os.MkdirAll(in, 0o755); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(in, Program)
	if _, err := os.Stat(program); err != nil { // else another process may be about to read it
		if err := os.WriteFile(program, []byte("read line\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("sh", Program, string(dir), "{}")
	cmd.Dir = in
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // it may have ended
	return cmd
}

// TestEnd: the processes of this gateway end, and no other with the same arguments, such as one in a container.
func TestEnd(t *testing.T) {
	dir := Dir(t.TempDir())
	ours := []*exec.Cmd{imitate(t, dir, string(dir.Files())), imitate(t, dir, string(dir.Files()))}
	theirs := imitate(t, dir, t.TempDir())
	if err := dir.End(); err != nil {
		t.Fatal(err)
	}
	for _, cmd := range ours {
		if cmd.Wait() == nil || cmd.ProcessState.Exited() {
			t.Errorf("it was not killed: %s", cmd.ProcessState)
		}
	}
	if p, err := process.Find(theirs.Process.Pid); err != nil || p.Ended() {
		t.Errorf("another's process was killed: %+v %v", p, err)
	}
	if err := Dir(filepath.Join(t.TempDir(), "none")).End(); err != nil {
		t.Errorf("without a directory: %v", err)
	}
}

// TestEndOldest: as many processes as may be stay, the newest ones.
func TestEndOldest(t *testing.T) {
	dir := Dir(t.TempDir())
	var all []*exec.Cmd
	for range MostProcesses + 2 {
		all = append(all, imitate(t, dir, string(dir.Files())))
	}
	for range 2 { // the second time nothing is too much
		if err := dir.EndOldest(); err != nil {
			t.Fatal(err)
		}
	}
	for i, cmd := range all {
		p, err := process.Find(cmd.Process.Pid)
		if ended := err != nil || p.Ended(); ended != (i < 2) {
			t.Errorf("process %d has ended: %v (%+v, %v)", i, ended, p, err)
		}
	}
}
