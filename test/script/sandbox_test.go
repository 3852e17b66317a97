package script

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/pkg/machine/release"
	"github.com/coracle-dev/coracle/test/mirror"
)

const version = "v1.37.1+coracle.7"

// tools are the programs that install.sh may call. A sandbox's PATH has links to them, and nothing else.
var tools = []string{"cat", "chmod", "cp", "curl", "cut", "date", "dirname", "env", "grep", "id", "mktemp", "openssl", "rm", "sed", "sha256sum", "tr", "uname"}

// shells are the command lines of the shells in which install.sh must work. bash runs as sh.
var shells = map[string][]string{
	"dash": {"dash"}, "busybox": {"busybox", "sh"}, "bash": {"bash", "--posix"},
}

// awks are implementations of awk.
var awks = map[string][]string{"mawk": {"mawk"}, "busybox": {"busybox", "awk"}, "gawk": {"gawk"}, "original-awk": {"original-awk"}}

// available returns those that this machine has, and logs the missing ones.
func available(t *testing.T, programs map[string][]string) map[string][]string {
	t.Helper()
	out := maps.Clone(programs)
	for name, argv := range programs {
		path, err := exec.LookPath(argv[0])
		if err != nil {
			t.Logf("without %s: %v", name, err)
			delete(out, name)
			continue
		}
		out[name] = append([]string{path}, argv[1:]...)
	}
	return out
}

// sandbox is an environment for install.sh: its own PATH, directory for temporary files, and directory for executables.
type sandbox struct {
	t              *testing.T
	dir            string
	path, tmp, bin string
	shell          []string
	script         string
	env            map[string]string
}

// newSandbox has tools, and a mirror with a release that records its arguments.
func newSandbox(t *testing.T, m *mirror.Mirror, shell []string) *sandbox {
	t.Helper()
	dir := t.TempDir()
	s := &sandbox{t: t, dir: dir, path: filepath.Join(dir, "path"), tmp: filepath.Join(dir, "tmp"), bin: filepath.Join(dir, "bin"), shell: shell}
	for _, d := range []string{s.path, s.tmp, s.bin, s.log("")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, tool := range tools {
		s.link(tool)
	}
	script, err := os.ReadFile("../../install.sh")
	if err != nil {
		t.Fatal(err)
	}
	s.script = string(script)
	if filepath.Base(shell[0]) == "busybox" {
		s.script = s.prelude() + s.script
	}
	s.env = map[string]string{
		"TMPDIR": s.tmp, "INSTALL_CORACLE_BIN_DIR": s.bin, "INSTALL_CORACLE_MIRROR": m.Dir, "INSTALL_CORACLE_KEY": m.KeyFile, "RECORD": s.log(""),
	}
	return s
}

// prelude makes busybox's shell use the tools in PATH, because it may prefer its built-in ones.
func (s *sandbox) prelude() string {
	text := fmt.Sprintf("command() { [ \"$1\" = -v ] && [ -e \"%s/$2\" ]; }\n", s.path)
	for _, tool := range slices.Concat(tools, []string{"awk", "sudo", "wget"}) {
		text += fmt.Sprintf("%s() { %s/%[1]s \"$@\"; }\n", tool, s.path)
	}
	return text
}

// program replaces coracle in the mirror: it records its arguments and its environment.
const program = `#!/bin/sh
for a; do printf '%s\n' "$a"; done >"$RECORD/argv"
/usr/bin/env >"$RECORD/env"
exit "${CODE:-0}"
`

// newMirror has a release whose coracle is program.
func newMirror(t *testing.T) *mirror.Mirror {
	t.Helper()
	m := mirror.New(t)
	m.Release(t, version, map[string]string{asset: program})
	m.Channel(t, "stable", version)
	return m
}

var asset = release.Asset(runtime.GOARCH)

func (s *sandbox) log(name string) string { return filepath.Join(s.dir, "log", name) }

// link links a tool of this machine into the PATH.
func (s *sandbox) link(tool string, argv ...string) {
	s.t.Helper()
	path, err := exec.LookPath(tool)
	if len(argv) > 0 {
		path, err = argv[0], nil
	}
	if err != nil {
		s.t.Skipf("this test needs %s: %v", tool, err)
	}
	s.remove(tool)
	write(s.t, s.path, tool, fmt.Sprintf("#!/bin/sh\nexec %s %s \"$@\"\n", path, strings.Join(argv[min(1, len(argv)):], " ")))
}

func (s *sandbox) remove(tools ...string) {
	for _, tool := range tools {
		os.Remove(filepath.Join(s.path, tool))
	}
}

// result is the result of a run of install.sh.
type result struct {
	code   int
	output string // stdout and stderr
}

// run runs install.sh, which the shell reads from a pipe as in the documentation, with arguments after -s.
func (s *sandbox) run(args ...string) result {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.shell[0], append(append(slices.Clone(s.shell[1:]), "-s", "-"), args...)...)
	cmd.Stdin = strings.NewReader(s.script)
	cmd.Dir = s.dir
	cmd.Env = []string{"PATH=" + s.path}
	for name, value := range s.env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	// Whatever a test does wrong, its processes end with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		s.t.Fatalf("%v: %v\n%s", cmd.Args, err, out.String())
	}
	return result{cmd.ProcessState.ExitCode(), out.String()}
}

// tree lists the content of the sandbox except its log: names, modes and sizes.
func (s *sandbox) tree() string {
	s.t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(s.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if path == s.log("") {
			return filepath.SkipDir
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%s %v %d\n", strings.TrimPrefix(path, s.dir), info.Mode(), info.Size()*btoi(!d.IsDir()))
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return b.String()
}

func btoi(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// recorded is the record of program; "" if it was not called.
func (s *sandbox) recorded(what string) string {
	data, err := os.ReadFile(s.log(what))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.t.Fatal(err)
	}
	return string(data)
}

// installed checks that coracle was called with these arguments, and that nothing else was left.
func (s *sandbox) installed(r result, before string, args ...string) {
	s.t.Helper()
	if r.code != 0 {
		s.t.Errorf("install.sh ends with %d:\n%s", r.code, r.output)
	}
	if got, want := s.recorded("argv"), strings.Join(args, "\n")+"\n"; got != want {
		s.t.Errorf("coracle was called with\n%swant\n%s%s", got, want, r.output)
	}
	if after := s.tree(); after != before {
		s.t.Errorf("left behind:\n%s\nbefore:\n%s", after, before)
	}
}

// refused checks that install.sh ended with the code and the message before it called coracle, and left nothing.
func (s *sandbox) refused(r result, before string, code int, why string) {
	s.t.Helper()
	if r.code != code || !strings.Contains(r.output, why) {
		s.t.Errorf("install.sh ends with %d, want %d and %q:\n%s", r.code, code, why, r.output)
	}
	if s.recorded("argv") != "" {
		s.t.Errorf("coracle was called:\n%s", r.output)
	}
	if after := s.tree(); after != before {
		s.t.Errorf("left behind:\n%s\nbefore:\n%s", after, before)
	}
}
