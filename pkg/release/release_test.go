package release_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/coracle-dev/coracle/pkg/complain"
	"github.com/coracle-dev/coracle/pkg/release"
	"github.com/coracle-dev/coracle/test/mirror"
)

const version = "v1.37.1+coracle.7"

// program is what the test's release has in the place of an executable.
const program = "an executable\n"

// asset is its name.
var asset = release.Asset(runtime.GOARCH)

func newMirror(t *testing.T) *mirror.Mirror {
	m := mirror.New(t)
	m.Release(t, version, map[string]string{asset: program, "install.sh": "#!/bin/sh\n"})
	m.Channel(t, "stable", version)
	return m
}

func TestFetch(t *testing.T) {
	m := newMirror(t)
	for name, base := range map[string]string{
		"http": m.Serve(t), "http with slash": m.Serve(t) + "/", "directory": m.Dir, "file": "file://" + m.Dir,
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "coracle")
			var done, total int64
			got, err := release.Source{Mirror: base, Key: m.Key}.Fetch(t.Context(), file, func(d, of int64) { done, total = d, of })
			if err != nil {
				t.Fatal(err)
			}
			if got != version {
				t.Errorf("fetched %s, want %s", got, version)
			}
			data, err := os.ReadFile(file)
			if err != nil || string(data) != program {
				t.Errorf("the file holds %q (%v)", data, err)
			}
			if info, _ := os.Stat(file); info.Mode() != 0o755 {
				t.Errorf("the file's mode is %v", info.Mode())
			}
			if want := int64(len(program)); done != want || total != want {
				t.Errorf("progress ended at %d of %d, want %d", done, total, want)
			}
		})
	}
}

func TestFetchRefuses(t *testing.T) {
	tests := map[string]struct {
		spoil     func(t *testing.T, m *mirror.Mirror, dir string)
		source    release.Source
		untrusted bool
		say       string
	}{
		"changed executable": {
			func(t *testing.T, _ *mirror.Mirror, dir string) { put(t, dir, asset, "another\n") },
			release.Source{}, true, "its SHA-256 is",
		},
		"changed sums": {
			func(t *testing.T, _ *mirror.Mirror, dir string) {
				put(t, dir, asset, "another\n")
				old := get(t, dir, "SHA256SUMS.sig")
				mirror.New(t).Sign(t, dir)
				put(t, dir, "SHA256SUMS.sig", old)
			}, release.Source{}, true, "signature",
		},
		"another key": {
			func(t *testing.T, _ *mirror.Mirror, dir string) { mirror.New(t).Sign(t, dir) }, release.Source{}, true, "signature",
		},
		"no signature but text": {
			func(t *testing.T, _ *mirror.Mirror, dir string) { put(t, dir, "SHA256SUMS.sig", "<html>") }, release.Source{}, true, "base64",
		},
		"another release in its place": {
			func(t *testing.T, m *mirror.Mirror, _ string) {
				if err := os.Rename(filepath.Join(m.Dir, version), filepath.Join(m.Dir, "v9")); err != nil {
					t.Fatal(err)
				}
			}, release.Source{Version: "v9"}, true, "is not v9",
		},
		"no such architecture":  {nil, release.Source{Arch: "riscv64"}, false, "riscv64"},
		"no such version":       {nil, release.Source{Version: "v2"}, false, "v2"},
		"no such channel":       {nil, release.Source{Channel: "edge"}, false, "finding the version of channel edge"},
		"version that climbs":   {nil, release.Source{Version: "../" + version}, false, "is no version"},
		"channel that climbs":   {nil, release.Source{Channel: "../x"}, false, "is no channel"},
		"channel of other text": {channelSays("<!doctype html>"), release.Source{}, false, "which is no version"},
		"channel that climbs on": {
			channelSays("../../etc"), release.Source{}, false, "which is no version",
		},
		"key that is none": {nil, release.Source{Key: "no key"}, false, "not a public key in PEM"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := newMirror(t)
			if test.spoil != nil {
				test.spoil(t, m, filepath.Join(m.Dir, version))
			}
			for _, base := range []string{m.Serve(t), m.Dir} {
				source := test.source
				source.Mirror = base
				if source.Key == "" {
					source.Key = m.Key
				}
				dir := t.TempDir()
				put(t, dir, "coracle", "old")
				_, err := source.Fetch(t.Context(), filepath.Join(dir, "coracle"), nil)
				if err == nil || !strings.Contains(err.Error(), test.say) {
					t.Errorf("got %v, want an error with %q", err, test.say)
				}
				if errors.As(err, new(release.Untrusted)) != test.untrusted {
					t.Errorf("%v: Untrusted is not %v", err, test.untrusted)
				}
				if code := complain.Code(err); test.untrusted && code != 7 || strings.HasPrefix(name, "no such") && code != 5 {
					t.Errorf("%v: the exit code is %d", err, code)
				}
				entries, _ := os.ReadDir(dir)
				if len(entries) != 1 || get(t, dir, "coracle") != "old" {
					t.Errorf("the directory was changed: %v", entries)
				}
			}
		})
	}
}

func channelSays(text string) func(*testing.T, *mirror.Mirror, string) {
	return func(t *testing.T, m *mirror.Mirror, _ string) { m.Channel(t, "stable", text) }
}

func put(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, dir, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
