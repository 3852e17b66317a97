package upgrade

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/core/paths"
)

func TestCheckData(t *testing.T) {
	for _, c := range []struct{ last, version, want string }{
		{"", "v1.37.1+coracle.1", ""},
		{"v1.37.1+coracle.2", "v1.37.1+coracle.1", ""},
		{"v1.37.2+coracle.1", "v1.37.1+coracle.1", ""},
		{"v1.37.1+coracle.1", "v1.38.0+coracle.1", ""},
		{"v1.38.0+coracle.1", "v1.37.1+coracle.9", "may not understand what Kubernetes 1.38 has written"},
		{"v1.39.0+coracle.1", "v1.37.1+coracle.9", "may not understand what Kubernetes 1.39 has written"},
		{"v1.37.1+coracle.1", "v1.39.0+coracle.1", "must not skip a minor version; upgrade to 1.38 first"},
		{"v1.37.1+coracle.1", "v2.0.0+coracle.1", "must not skip"},
		{"v2.0.0+coracle.1", "v1.99.0+coracle.1", "must not skip"},
		{"damaged", "v1.37.1+coracle.1", ""},
		{"v1.38.0+coracle.1", "none", ""},
	} {
		d := paths.Dirs{Data: t.TempDir()}
		if c.last != "" {
			if err := RecordData(d, c.last); err != nil {
				t.Fatal(err)
			}
		}
		switch err := CheckData(d, c.version); {
		case c.want == "" && err != nil:
			t.Errorf("%s after %q: %v", c.version, c.last, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || exitcode.ClassOf(err) != exitcode.Misuse):
			t.Errorf("%s after %q: %v, want %q", c.version, c.last, err, c.want)
		}
	}
	d := paths.Dirs{Data: t.TempDir()}
	if err := os.MkdirAll(d.DataVersion(), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := CheckData(d, "v1.37.1+coracle.1"); err == nil {
		t.Error("a record that cannot be read counts as none")
	}
}

// TestForgetData: a record that cannot be removed is an error, because the older version would refuse the data.
func TestForgetData(t *testing.T) {
	d := paths.Dirs{Data: t.TempDir()}
	if err := errors.Join(ForgetData(d), RecordData(d, "v1.38.0+coracle.1"), ForgetData(d), CheckData(d, "v1.37.1+coracle.1")); err != nil {
		t.Error(err)
	}
	if err := os.MkdirAll(filepath.Join(d.DataVersion(), "child"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := ForgetData(d); err == nil {
		t.Error("a record that is still there counts as removed")
	}
}
