package script

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coracle-dev/coracle/test/executable"
	"github.com/coracle-dev/coracle/test/mirror"
)

// each runs a test in dash, or in every shell if CORACLE_TEST_SHELLS is "all", as before a release: the script starts thousands of programs.
func each(t *testing.T, test func(t *testing.T, shell []string)) {
	some := map[string][]string{"dash": shells["dash"]}
	if os.Getenv("CORACLE_TEST_SHELLS") == "all" {
		some = shells
	}
	in(t, some, test)
}

// in runs a test in each of some shells.
func in(t *testing.T, some map[string][]string, test func(t *testing.T, shell []string)) {
	for name, shell := range available(t, some) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, shell)
		})
	}
}

func TestInstall(t *testing.T) {
	m := newMirror(t)
	url := m.Serve(t)
	tests := map[string]struct {
		env  map[string]string
		args []string
		want []string // after --bin-dir DIR
	}{
		"nothing":           {nil, nil, nil},
		"arguments":         {nil, []string{"server", "--disable", "a b"}, []string{"--", "server", "--disable", "a b"}},
		"flags only":        {nil, []string{"--disable=dns"}, []string{"--", "--disable=dns"}},
		"http":              {map[string]string{"INSTALL_CORACLE_MIRROR": url}, nil, nil},
		"http with a slash": {map[string]string{"INSTALL_CORACLE_MIRROR": url + "/"}, nil, nil},
		"file":              {map[string]string{"INSTALL_CORACLE_MIRROR": "file://" + m.Dir}, nil, nil},
		"version":           {map[string]string{"INSTALL_CORACLE_VERSION": version, "INSTALL_CORACLE_CHANNEL": "none"}, nil, nil},
		"server that joins": {map[string]string{"CORACLE_URL": "https://a:6443"}, []string{"server"}, []string{"--", "server"}},
		"exec":              {map[string]string{"INSTALL_CORACLE_EXEC": "agent --x *"}, []string{"--y"}, []string{"--", "agent", "--x", "*", "--y"}},
		"exec of flags":     {map[string]string{"INSTALL_CORACLE_EXEC": "--x"}, []string{"--y"}, []string{"--", "--x", "--y"}},
		"all else": {
			map[string]string{"INSTALL_CORACLE_NAME": "two", "INSTALL_CORACLE_SKIP_START": "true", "INSTALL_CORACLE_SKIP_ENABLE": "1", "INSTALL_CORACLE_WAIT": "10m"}, nil,
			[]string{"--name", "two", "--wait", "10m", "--skip-start", "--skip-enable"},
		},
		"said to be false": {
			map[string]string{"INSTALL_CORACLE_SKIP_DOWNLOAD": "false", "INSTALL_CORACLE_SKIP_START": "0", "INSTALL_CORACLE_SKIP_ENABLE": "no"}, nil,
			nil,
		},
	}
	each(t, func(t *testing.T, shell []string) {
		for name, test := range tests {
			t.Run(name, func(t *testing.T) {
				s := newSandbox(t, m, shell)
				for k, v := range test.env {
					s.env[k] = v
				}
				before := s.tree()
				s.installed(s.run(test.args...), before, append([]string{"install", "--bin-dir", s.bin}, test.want...)...)
			})
		}
	})
}

// TestEnvironment: coracle gets the server to join in its environment.
func TestEnvironment(t *testing.T) {
	m := newMirror(t)
	each(t, func(t *testing.T, shell []string) {
		for _, env := range []map[string]string{
			{"CORACLE_URL": "https://a:6443", "CORACLE_TOKEN": "sec'r et", "CORACLE_NODE_NAME": "n"},
			{"K3S_URL": "https://a:6443", "K3S_TOKEN": "sec'r et", "CORACLE_NODE_NAME": "n"},
			{"CORACLE_URL": "https://a:6443", "K3S_URL": "x", "CORACLE_TOKEN": "sec'r et", "K3S_TOKEN": "x", "CORACLE_NODE_NAME": "n"},
		} {
			s := newSandbox(t, m, shell)
			for k, v := range env {
				s.env[k] = v
			}
			before := s.tree()
			s.installed(s.run(), before, "install", "--bin-dir", s.bin)
			s.hasEnv("CORACLE_NODE_NAME=n", "CORACLE_SERVER=https://a:6443", "CORACLE_TOKEN=sec'r et")
		}
	})
}

// hasEnv checks coracle's own variables in its environment.
func (s *sandbox) hasEnv(want ...string) {
	s.t.Helper()
	var got []string
	for line := range strings.Lines(s.recorded("env")) {
		if strings.HasPrefix(line, "CORACLE_") {
			got = append(got, strings.TrimSuffix(line, "\n"))
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		s.t.Errorf("coracle's variables are %q, want %q", got, want)
	}
}

// TestSudo: a user who is not root gets the same result through sudo, which clears the environment.
func TestSudo(t *testing.T) {
	m := newMirror(t)
	each(t, func(t *testing.T, shell []string) {
		s := newSandbox(t, m, shell)
		s.spy()
		write(s.t, s.path, "id", "#!/bin/sh\necho 1000\n")
		write(s.t, s.path, "sudo", fmt.Sprintf("#!/bin/sh\nexec env -i PATH=\"$PATH\" RECORD=%s \"$@\"\n", s.log("")))
		s.link("sh", "/bin/sh")
		s.env["CORACLE_TOKEN"], s.env["CORACLE_NODE_NAME"] = "it's $(touch /tmp/no) \"a\" \\ token", "two\nCORACLE_LINES=2"
		before := s.tree()
		s.installed(s.run("server", "--flag", "with blank"), before, "install", "--bin-dir", s.bin, "--", "server", "--flag", "with blank")
		env := s.recorded("env")
		for _, want := range []string{"CORACLE_TOKEN=it's $(touch /tmp/no) \"a\" \\ token\n", "CORACLE_NODE_NAME=two\nCORACLE_LINES=2\n"} {
			if !strings.Contains(env, want) {
				t.Errorf("%q is not in\n%s", want, env)
			}
		}
		if strings.Contains(s.recorded("calls"), "token") {
			t.Errorf("the token is in an argument:\n%s", s.recorded("calls"))
		}

		s.remove("sudo")
		before = s.tree()
		os.Remove(s.log("argv"))
		s.refused(s.run(), before, 3, "only root can install a service")
	})
}

// TestArguments: no program gets the token as an argument.
func TestArguments(t *testing.T) {
	m := newMirror(t)
	each(t, func(t *testing.T, shell []string) {
		s := newSandbox(t, m, shell)
		s.spy()
		s.env["CORACLE_URL"], s.env["CORACLE_TOKEN"], s.env["CORACLE_AGENT_TOKEN"] = "https://a:6443", "hush", "hush"
		s.env["INSTALL_CORACLE_MIRROR"] = m.Serve(t)
		before := s.tree()
		s.installed(s.run(), before, "install", "--bin-dir", s.bin)
		calls := s.recorded("calls")
		if strings.Contains(calls, "hush") || !strings.Contains(calls, "curl") {
			t.Errorf("these were called:\n%s", calls)
		}
	})
}

// spy makes all tools record their arguments.
func (s *sandbox) spy() {
	for _, tool := range tools {
		s.wrap(tool, fmt.Sprintf("echo %s \"$@\" >>%s", tool, s.log("calls")))
	}
}

// wrap makes a tool run a shell line first.
func (s *sandbox) wrap(tool, line string) {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.path, tool))
	if err != nil {
		s.t.Fatal(err)
	}
	write(s.t, s.path, tool, strings.Replace(string(text), "#!/bin/sh\n", "#!/bin/sh\n"+line+"\n", 1))
}

// TestSignatures: with openssl and each awk, only the correct signature is accepted.
func TestSignatures(t *testing.T) {
	m, other := newMirror(t), mirror.New(t)
	for name, awk := range available(t, awks) {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, shell []string) {
				s := newSandbox(t, m, shell)
				s.remove("openssl")
				s.link("awk", awk...)
				before := s.tree()
				s.installed(s.run(), before, "install", "--bin-dir", s.bin)
				os.Remove(s.log("argv"))

				s.env["INSTALL_CORACLE_KEY"] = other.KeyFile
				s.refused(s.run(), before, 7, "was not made by the release key")
			})
		})
	}
}

// TestFails: failures before coracle is called, with openssl and without.
func TestFails(t *testing.T) {
	m := newMirror(t)
	other := mirror.New(t)
	url := m.Serve(t)
	dir := filepath.Join(m.Dir, version)
	sums := read(t, filepath.Join(dir, "SHA256SUMS"))
	copied := func(change func(dir string)) func(*testing.T, *sandbox) {
		return func(t *testing.T, s *sandbox) {
			root := t.TempDir()
			if err := os.CopyFS(root, os.DirFS(m.Dir)); err != nil {
				t.Fatal(err)
			}
			change(filepath.Join(root, version))
			s.env["INSTALL_CORACLE_MIRROR"] = root
		}
	}
	set := func(name, value string) func(*testing.T, *sandbox) {
		return func(_ *testing.T, s *sandbox) { s.env[name] = value }
	}
	without := func(tools ...string) func(*testing.T, *sandbox) {
		return func(_ *testing.T, s *sandbox) {
			s.env["INSTALL_CORACLE_MIRROR"] = url
			s.remove(tools...)
		}
	}
	tests := map[string]struct {
		spoil func(*testing.T, *sandbox)
		code  int
		why   string
	}{
		"executable changed":  {copied(func(d string) { write(t, d, asset, program+"x") }), 7, "wrong checksum"},
		"executable missing":  {copied(func(d string) { os.Remove(filepath.Join(d, asset)) }), 5, "could not be fetched"},
		"sums changed":        {copied(func(d string) { write(t, d, "SHA256SUMS", sums+"\n") }), 7, "was not made by the release key"},
		"signature changed":   {copied(func(d string) { spoilSignature(t, d) }), 7, "was not made by the release key"},
		"signature empty":     {copied(func(d string) { write(t, d, "SHA256SUMS.sig", "") }), 7, "was not made by the release key"},
		"signature of a page": {copied(func(d string) { write(t, d, "SHA256SUMS.sig", "<html>\n") }), 7, "was not made by the release key"},
		"signature missing":   {copied(func(d string) { os.Remove(filepath.Join(d, "SHA256SUMS.sig")) }), 5, "could not be fetched"},
		"signed by another":   {copied(func(d string) { other.Sign(t, d) }), 7, "was not made by the release key"},
		"sums without it":     {copied(func(d string) { sumsWithout(t, m, d, asset) }), 7, "does not name " + asset},
		"sums without version": {
			copied(func(d string) { sumsWithout(t, m, d, "version") }), 7, "does not name version",
		},
		"another release": {
			copied(func(d string) {
				rename(t, d, filepath.Join(filepath.Dir(d), "v9"))
				write(t, filepath.Dir(d), "channels/stable.signed", "v9 1\n"+m.Signature(t, "v9 1\n"))
			}),
			7, "wrong checksum: version",
		},
		"the script's own key": {set("INSTALL_CORACLE_KEY", ""), 7, "was not made by the release key"},
		"no key":               {set("INSTALL_CORACLE_KEY", "/none"), 1, "nothing was installed"},
		"no mirror":            {set("INSTALL_CORACLE_MIRROR", "/none"), 5, "/none/channels/stable.signed could not be fetched"},
		"no server":            {set("INSTALL_CORACLE_MIRROR", "http://127.0.0.1:1"), 5, "channels/stable.signed could not be fetched"},
		"no channel":           {set("INSTALL_CORACLE_CHANNEL", "edge"), 5, "channels/edge.signed could not be fetched"},
		"no version":           {set("INSTALL_CORACLE_VERSION", "v0"), 5, "v0/SHA256SUMS could not be fetched"},
		"404":                  {func(_ *testing.T, s *sandbox) { s.env["INSTALL_CORACLE_MIRROR"] = url + "/x" }, 5, "404"},
		"version that climbs":  {set("INSTALL_CORACLE_VERSION", "v1/../../x"), 2, "is no version"},
		"version is dots":      {set("INSTALL_CORACLE_VERSION", ".."), 2, "is no version"},
		"not true or false":    {set("INSTALL_CORACLE_SKIP_START", "maybe"), 2, "INSTALL_CORACLE_SKIP_START is maybe"},
		"no executable":        {set("INSTALL_CORACLE_SKIP_DOWNLOAD", "true"), 1, "there is no"},
		"no file":              {set("INSTALL_CORACLE_FILE", "/none"), 1, "INSTALL_CORACLE_FILE"},
		"no program to fetch":  {without("curl", "wget"), 3, "neither curl nor wget"},
		"no sha256sum":         {without("sha256sum"), 3, "sha256sum is needed"},
		"nothing to verify":    {without("openssl", "awk"), 3, "openssl or awk is needed"},
		"another architecture": {uname("Linux", "riscv64"), 3, "this machine is riscv64"},
		"another system":       {uname("Darwin", "arm64"), 3, "this is Darwin"},
	}
	each(t, func(t *testing.T, shell []string) {
		for name, test := range tests {
			t.Run(name, func(t *testing.T) {
				s := newSandbox(t, m, shell)
				test.spoil(t, s)
				before := s.tree()
				s.refused(s.run(), before, test.code, test.why)
			})
		}
	})
}

// uname changes the output of uname.
func uname(system, machine string) func(*testing.T, *sandbox) {
	return func(_ *testing.T, s *sandbox) {
		write(s.t, s.path, "uname", fmt.Sprintf("#!/bin/sh\ncase $1 in -s) echo %s ;; -m) echo %s ;; esac\n", system, machine))
	}
}

func spoilSignature(t *testing.T, dir string) {
	text := []byte(read(t, filepath.Join(dir, "SHA256SUMS.sig")))
	if text[200]++; text[200] == 'z'+1 {
		text[200] = 'a'
	}
	write(t, dir, "SHA256SUMS.sig", string(text))
}

// sumsWithout removes a line from the checksums and signs the rest.
func sumsWithout(t *testing.T, m *mirror.Mirror, dir, name string) {
	var left strings.Builder
	lines := bufio.NewScanner(strings.NewReader(read(t, filepath.Join(dir, "SHA256SUMS"))))
	for lines.Scan() {
		if !strings.HasSuffix(lines.Text(), " "+name) {
			left.WriteString(lines.Text() + "\n")
		}
	}
	write(t, dir, "SHA256SUMS", left.String())
	write(t, dir, "SHA256SUMS.sig", m.Signature(t, left.String()))
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := executable.Write(filepath.Join(dir, name), []byte(text)); err != nil {
		t.Fatal(err)
	}
}
