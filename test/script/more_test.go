package script

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/mirror"
)

// TestWget: either of curl and wget is sufficient, also busybox's wget.
func TestWget(t *testing.T) {
	m := newMirror(t)
	url := m.Serve(t)
	for name, wget := range available(t, map[string][]string{"GNU": {"wget"}, "busybox": {"busybox", "wget"}}) {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, shell []string) {
				s := newSandbox(t, m, shell)
				s.env["INSTALL_CORACLE_MIRROR"] = url
				s.remove("curl")
				s.link("wget", wget...)
				before := s.tree()
				s.installed(s.run(), before, "install", "--bin-dir", s.bin)
				os.Remove(s.log("argv"))
				s.env["INSTALL_CORACLE_VERSION"] = "v0"
				s.refused(s.run(), before, 5, "v0/SHA256SUMS could not be fetched")
			})
		})
	}
}

// TestChannel: the file of a channel must be signed; an old one is told of and used.
func TestChannel(t *testing.T) {
	m := newMirror(t)
	each(t, func(t *testing.T, shell []string) {
		for name, test := range map[string]struct {
			change func(t *testing.T, own *mirror.Mirror, s *sandbox, signed string)
			code   int
			say    string
		}{
			"old": {func(t *testing.T, own *mirror.Mirror, _ *sandbox, _ string) {
				own.ChannelOf(t, "stable", version, time.Unix(0, 0))
			}, 0, "days ago"},
			"of the future": {func(t *testing.T, own *mirror.Mirror, _ *sandbox, _ string) {
				own.ChannelOf(t, "stable", version, time.Now().AddDate(20, 0, 0))
			}, 0, "are right"},
			"another version": {func(t *testing.T, _ *mirror.Mirror, _ *sandbox, signed string) {
				write(t, filepath.Dir(signed), "stable.signed", "v0"+strings.TrimPrefix(read(t, signed), version))
			}, 7, "signature of channel"},
			"cut off": {func(t *testing.T, _ *mirror.Mirror, _ *sandbox, signed string) {
				write(t, filepath.Dir(signed), "stable.signed", version)
			}, 7, "signature of channel"},
			"none": {func(_ *testing.T, _ *mirror.Mirror, _ *sandbox, signed string) { os.Remove(signed) }, 5, "INSTALL_CORACLE_VERSION"},
			"none, and a version": {func(_ *testing.T, _ *mirror.Mirror, s *sandbox, signed string) {
				os.Remove(signed)
				s.env["INSTALL_CORACLE_VERSION"] = version
			}, 0, "are right"},
			"none, and meant": {func(_ *testing.T, _ *mirror.Mirror, s *sandbox, signed string) {
				os.Remove(signed)
				s.env["INSTALL_CORACLE_INSECURE_UNSIGNED"] = "true"
			}, 0, "are right"},
		} {
			t.Run(name, func(t *testing.T) {
				own := m.Empty(t)
				if err := os.CopyFS(own.Dir, os.DirFS(m.Dir)); err != nil {
					t.Fatal(err)
				}
				s := newSandbox(t, own, shell)
				test.change(t, own, s, filepath.Join(own.Dir, "channels", "stable.signed"))
				before := s.tree()
				r := s.run()
				if test.code != 0 {
					s.refused(r, before, test.code, test.say)
					return
				}
				s.installed(r, before, "install", "--bin-dir", s.bin)
				if !strings.Contains(r.output, test.say) {
					t.Errorf("no word of %q:\n%s", test.say, r.output)
				}
			})
		}
	})
}

// TestLocalFile: a local executable is verified with the files beside it.
func TestLocalFile(t *testing.T) {
	m := newMirror(t)
	dir := filepath.Join(m.Dir, version)
	tests := map[string]struct {
		change func(t *testing.T, dir string)
		code   int
		say    string
	}{
		"all beside it":           {func(*testing.T, string) {}, 0, "the signature is right"},
		"no signature":            {func(_ *testing.T, d string) { os.Remove(filepath.Join(d, "SHA256SUMS.sig")) }, 7, "INSECURE_UNSIGNED"},
		"no signature, and meant": {func(_ *testing.T, d string) { os.Remove(filepath.Join(d, "SHA256SUMS.sig")) }, 0, "although it is unsigned"},
		"nothing": {func(_ *testing.T, d string) {
			os.Remove(filepath.Join(d, "SHA256SUMS"))
			os.Remove(filepath.Join(d, "SHA256SUMS.sig"))
		}, 7, "INSECURE_UNSIGNED"},
		"changed": {func(t *testing.T, d string) { write(t, d, "my coracle", program+"x") }, 7, "wrong checksum"},
		"changed without signature, and meant": {func(t *testing.T, d string) {
			write(t, d, "my coracle", program+"x")
			os.Remove(filepath.Join(d, "SHA256SUMS.sig"))
		}, 7, "wrong checksum"},
		"signature changed": {spoilSignature, 7, "was not made by"},
	}
	each(t, func(t *testing.T, shell []string) {
		for name, test := range tests {
			t.Run(name, func(t *testing.T) {
				s := newSandbox(t, m, shell)
				here := t.TempDir()
				if err := os.CopyFS(here, os.DirFS(dir)); err != nil {
					t.Fatal(err)
				}
				rename(t, filepath.Join(here, asset), filepath.Join(here, "my coracle"))
				test.change(t, here)
				s.env["INSTALL_CORACLE_FILE"] = filepath.Join(here, "my coracle")
				s.env["INSTALL_CORACLE_MIRROR"] = "/none"
				if strings.Contains(name, "meant") {
					s.env["INSTALL_CORACLE_INSECURE_UNSIGNED"] = "true"
				}
				before := s.tree()
				r := s.run()
				if test.code != 0 {
					s.refused(r, before, test.code, test.say)
					return
				}
				s.installed(r, before, "install", "--bin-dir", s.bin)
				if !strings.Contains(r.output, test.say) {
					t.Errorf("no word of %q:\n%s", test.say, r.output)
				}
			})
		}
	})
}

// TestSkipDownload: the executable in BIN_DIR is used as it is, and its failure is the script's.
func TestSkipDownload(t *testing.T) {
	m := newMirror(t)
	each(t, func(t *testing.T, shell []string) {
		s := newSandbox(t, m, shell)
		write(t, s.bin, "coracle", program)
		s.env["INSTALL_CORACLE_SKIP_DOWNLOAD"], s.env["INSTALL_CORACLE_MIRROR"] = "true", "/none"
		before := s.tree()
		s.installed(s.run("agent", "--x"), before, "install", "--bin-dir", s.bin, "--", "agent", "--x")

		s.env["CODE"] = "4"
		if r := s.run(); r.code != 4 || r.output != "" || s.tree() != before {
			t.Errorf("coracle ended with 4, the script with %d:\n%s%s", r.code, r.output, s.tree())
		}
	})
}

// TestPlaces: programs are written where they can be executed, and a full disk is an error.
func TestPlaces(t *testing.T) {
	m := newMirror(t)
	const big = "v1.37.1+coracle.8"
	m.Release(t, big, map[string]string{asset: program + strings.Repeat("#\n", 40000)})
	url := m.Serve(t)
	mount := func(t *testing.T, s *sandbox, flags uintptr, options string) {
		if err := syscall.Mount("tmpfs", s.tmp, "tmpfs", flags, options); err != nil {
			t.Skipf("a tmpfs cannot be mounted: %v", err)
		}
		t.Cleanup(func() { syscall.Unmount(s.tmp, syscall.MNT_DETACH) })
	}
	each(t, func(t *testing.T, shell []string) {
		t.Run("noexec", func(t *testing.T) {
			s := newSandbox(t, m, shell)
			mount(t, s, syscall.MS_NOEXEC, "mode=755")
			before := s.tree()
			s.installed(s.run(), before, "install", "--bin-dir", s.bin)
		})
		t.Run("full", func(t *testing.T) {
			s := newSandbox(t, m, shell)
			mount(t, s, 0, "size=64k,mode=755")
			s.env["INSTALL_CORACLE_MIRROR"], s.env["INSTALL_CORACLE_VERSION"] = url, big
			before := s.tree()
			s.refused(s.run(), before, 5, asset+" could not be fetched into "+s.tmp)
		})
	})
}

// TestTruncated: a script that ends early, after any line or within the last ones, does nothing.
func TestTruncated(t *testing.T) {
	m := newMirror(t)
	each(t, func(t *testing.T, shell []string) {
		s := newSandbox(t, m, shell)
		whole, before := s.script, s.tree()
		var cuts []int
		for i, c := range whole {
			if c == '\n' && i < len(whole)-1 {
				cuts = append(cuts, i+1)
			}
		}
		end := strings.TrimRight(whole, "\n")
		for i := len(end) - 100; i < len(end); i++ {
			cuts = append(cuts, i)
		}
		for _, cut := range cuts {
			s.script = whole[:cut]
			s.run()
			if s.recorded("argv") != "" {
				t.Fatalf("cut after %q it calls coracle", whole[max(0, cut-60):cut])
			}
		}
		if after := s.tree(); after != before {
			t.Errorf("left behind:\n%s", after)
		}
	})
}

// counted makes each tool record its call, and the call whose number is in FAIL fail without doing anything.
const counted = `echo %s >>%s
n=0; while read -r _; do n=$((n+1)); done <%[2]s
[ $n != "$FAIL" ] || { echo >>%[2]s.failed; %[3]s; }`

// TestEachCallFails: whichever program fails or gets a signal, coracle is not called and nothing is left.
func TestEachCallFails(t *testing.T) {
	m := newMirror(t)
	url := m.Serve(t)
	for name, failure := range map[string]string{
		"fails": "exit 1", "SIGTERM": "kill -TERM $SCRIPT; exit 1",
		"says nothing": "exit 0", "SIGINT": "kill -INT $SCRIPT; exit 1", // in one shell only, because shells differ least in these
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, shell []string) {
				if short := name == "says nothing" || name == "SIGINT"; short && filepath.Base(shell[0]) != "dash" {
					return
				}
				s := newSandbox(t, m, shell)
				s.env["INSTALL_CORACLE_MIRROR"] = url
				s.script = "export SCRIPT=$$\n" + s.script
				for _, tool := range tools {
					if tool != "rm" { // rm is needed for the clean-up
						s.wrap(tool, fmt.Sprintf(counted, tool, s.log("calls"), failure))
					}
				}
				before := s.tree()
				s.env["FAIL"] = "0"
				s.installed(s.run(), before, "install", "--bin-dir", s.bin)
				calls := strings.Fields(s.recorded("calls"))
				if len(calls) < 10 {
					t.Fatalf("only %d calls: %v", len(calls), calls)
				}
				for i, call := range calls {
					s.env["FAIL"] = fmt.Sprint(i + 1)
					var r result
					for failed := ""; failed == ""; failed = s.recorded("calls.failed") { // calls in a pipeline may get the same number
						os.Remove(s.log("argv"))
						os.Remove(s.log("calls"))
						r = s.run()
					}
					os.Remove(s.log("calls.failed"))
					if harmless(name, call) && r.code == 0 && s.tree() == before {
						continue
					}
					if r.code == 0 || s.recorded("argv") != "" || s.tree() != before {
						t.Errorf("call %d, of %s, %s: the script ends with %d, coracle was called with %q:\n%s%s",
							i+1, call, name, r.code, s.recorded("argv"), r.output, s.tree())
					}
				}
			})
		})
	}
}

// harmless are failures that do not stop an installation.
func harmless(failure, call string) bool {
	switch failure {
	case "fails":
		return call == "mktemp" || call == "chmod" || call == "date" // another directory is tried; a wrong clock stops nothing
	case "says nothing":
		return call == "mktemp" || call == "chmod" || call == "date"
	}
	return false
}
