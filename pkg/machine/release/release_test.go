package release_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/machine/release"
	"github.com/coracle-dev/coracle/test/mirror"
)

const version = "v1.37.1+coracle.7"

// program is what the test's release has in the place of an executable.
const program = "an executable\n"

// asset is its name.
var asset = release.Asset(runtime.GOARCH)

func newMirror(t *testing.T) *mirror.Mirror { return fill(t, mirror.New(t)) }

// fill lets a mirror have a release.
func fill(t *testing.T, m *mirror.Mirror) *mirror.Mirror {
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
	first, other := mirror.New(t), mirror.New(t)
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
				other.Sign(t, dir)
				put(t, dir, "SHA256SUMS.sig", old)
			}, release.Source{}, true, "signature",
		},
		"another key": {
			func(t *testing.T, _ *mirror.Mirror, dir string) { other.Sign(t, dir) }, release.Source{}, true, "signature",
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
		"version that climbs":   {nil, release.Source{Version: "../" + version}, false, "is not a version"},
		"channel that climbs":   {nil, release.Source{Channel: "../x"}, false, "is not a channel"},
		"channel of other text": {channelSays("<!doctype>"), release.Source{}, false, "which is not a version"},
		"channel without signature": {
			func(t *testing.T, m *mirror.Mirror, _ string) {
				if err := os.Remove(filepath.Join(m.Dir, "channels", "stable.signed")); err != nil {
					t.Fatal(err)
				}
			}, release.Source{}, false, "name the version instead",
		},
		"channel of another version": {
			func(t *testing.T, m *mirror.Mirror, _ string) {
				dir := filepath.Join(m.Dir, "channels")
				put(t, dir, "stable.signed", "v0"+strings.TrimPrefix(get(t, dir, "stable.signed"), version))
			}, release.Source{}, true, "signature",
		},
		"channel that climbs on": {
			channelSays("../../etc"), release.Source{}, false, "which is not a version",
		},
		"key that is none": {nil, release.Source{Key: "no key"}, false, "not a public key in PEM"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := fill(t, first.Empty(t))
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
				if code := exitcode.Code(err); test.untrusted && code != 7 || strings.HasPrefix(name, "no such") && code != 5 {
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

// TestOldChannel: a channel that was signed long ago, or by a clock that is wrong, is told of and used; a channel without signature
// is used if that is wanted.
func TestOldChannel(t *testing.T) {
	m := newMirror(t)
	for name, tt := range map[string]struct {
		signed time.Time
		told   bool
	}{
		"new":    {time.Now(), false},
		"old":    {time.Now().Add(-200 * 24 * time.Hour), true},
		"1970":   {time.Unix(0, 0), true},
		"future": {time.Now().Add(20 * 365 * 24 * time.Hour), false},
	} {
		m.ChannelOf(t, "stable", version, tt.signed)
		var said string
		got, err := release.Source{Mirror: m.Dir, Key: m.Key, Say: func(s string) { said = s }}.Resolve(t.Context())
		if got != version || err != nil || strings.Contains(said, "days ago") != tt.told {
			t.Errorf("%s: %s, %v; said %q", name, got, err, said)
		}
	}
	m.Channel(t, "mine", version)
	if err := os.Remove(filepath.Join(m.Dir, "channels", "mine.signed")); err != nil {
		t.Fatal(err)
	}
	if got, err := (release.Source{Mirror: m.Dir, Key: m.Key, Channel: "mine", Unsigned: true}).Resolve(t.Context()); got != version || err != nil {
		t.Errorf("%s, %v", got, err)
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

// TestVerifyLocal: as much is verified as lies beside the file.
func TestVerifyLocal(t *testing.T) {
	m := newMirror(t)
	for name, test := range map[string]struct {
		remove []string
		text   string
		want   release.Evidence
		say    string
	}{
		"all":       {nil, program, release.Evidence{Checksum: true, Signature: true}, ""},
		"sums":      {[]string{"SHA256SUMS.sig"}, program, release.Evidence{Checksum: true}, ""},
		"nothing":   {[]string{"SHA256SUMS", "SHA256SUMS.sig"}, "any", release.Evidence{}, ""},
		"another":   {nil, "any", release.Evidence{}, "its SHA-256 is"},
		"unsigned":  {[]string{"SHA256SUMS.sig"}, "any", release.Evidence{}, "its SHA-256 is"},
		"wrong key": {nil, program, release.Evidence{}, "signature"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(filepath.Join(m.Dir, version))); err != nil {
				t.Fatal(err)
			}
			for _, f := range test.remove {
				os.Remove(filepath.Join(dir, f))
			}
			put(t, dir, "mine", test.text)
			key := m.Key
			if name == "wrong key" {
				key = ""
			}
			got, err := release.VerifyLocal(filepath.Join(dir, "mine"), "mine", dir, runtime.GOARCH, key)
			if got != test.want || (err == nil) != (test.say == "") || err != nil && !strings.Contains(err.Error(), test.say) {
				t.Errorf("got %+v, %v; want %+v and %q", got, err, test.want, test.say)
			}
			if errors.As(err, new(release.Untrusted)) != (test.say != "") {
				t.Errorf("%v is an Untrusted or is not", err)
			}
		})
	}
}

// TestSilentServer: a server that says nothing, at once or in the middle, is given up.
func TestSilentServer(t *testing.T) {
	m := newMirror(t)
	files := http.FileServer(http.Dir(m.Dir))
	for name, silent := range map[string]func(w http.ResponseWriter){
		"at once":       func(http.ResponseWriter) {},
		"in the middle": func(w http.ResponseWriter) { io.WriteString(w, "half"); w.(http.Flusher).Flush() },
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strings.HasSuffix(r.URL.Path, asset) {
					silent(w)
					<-r.Context().Done()
					return
				}
				files.ServeHTTP(w, r)
			}))
			defer server.Close()
			dir := t.TempDir()
			_, err := release.Source{Mirror: server.URL, Key: m.Key, Stall: 50 * time.Millisecond}.Fetch(t.Context(), filepath.Join(dir, "coracle"), nil)
			if err == nil || !strings.Contains(err.Error(), "sent nothing for 50ms") {
				t.Errorf("got %v", err)
			}
			if entries, _ := os.ReadDir(dir); len(entries) != 0 {
				t.Errorf("left: %v", entries)
			}
		})
	}
}
