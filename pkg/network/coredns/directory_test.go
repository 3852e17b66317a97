package coredns

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"
)

// TestHostFiles: the name server's directory has copies of the host's files, also after a change. A file that cannot be read is logged
// once, and again after it could be read.
func TestHostFiles(t *testing.T) {
	host, log, logged := t.TempDir(), logrus.New(), &logtest.Hook{}
	log.AddHook(logged)
	r := &running{DNS: DNS{Dir: filepath.Join(t.TempDir(), "dns"), ResolvConf: host}, notCopied: map[string]bool{}, log: logrus.NewEntry(log)}
	if err := r.fillDirectory(); err != nil {
		t.Fatalf("resolv.conf is a directory: %v", err)
	}
	want, err := os.ReadFile(hostsFile)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(r.Dir, hostsFile)); err != nil || string(got) != string(want) {
		t.Errorf("hosts is %q (%v)", got, err)
	}

	source, copied := filepath.Join(host, "hosts"), filepath.Join(r.Dir, "etc", "x")
	file := hostFile{[]string{filepath.Join(host, "none"), source}, "/etc/x"}
	for _, text := range []string{"192.0.2.1 a\n", "192.0.2.1 b\n"} {
		if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		r.copyHostFiles(file)
		got, err := os.ReadFile(copied)
		info, _ := os.Stat(copied)
		if err != nil || string(got) != text || info.Mode() != 0o644 {
			t.Errorf("the copy is %q (%v, %v)", got, info, err)
		}
	}

	for count := range 2 {
		if err := os.Remove(source); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(source, source); err != nil {
			t.Fatal(err)
		}
		r.copyHostFiles(file)
		r.copyHostFiles(file)
		if got := len(logged.AllEntries()); got != count+2 { // the first is resolv.conf's
			t.Errorf("%d messages: %v", got, logged.AllEntries())
		}
		if err := os.Remove(source); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(source, fmt.Append(nil, count), 0o600); err != nil {
			t.Fatal(err)
		}
		r.copyHostFiles(file)
	}
}
