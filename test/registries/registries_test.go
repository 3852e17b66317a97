package registries

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/slots"
)

func TestMain(m *testing.M) { os.Exit(hosts.Main(m)) }

// TestRegistry checks the properties on which other tests rely: push permissions, and the access log.
func TestRegistry(t *testing.T) {
	slots.Take(t)
	if os.Geteuid() != 0 {
		t.Skip("hosts are made of namespaces, which needs root")
	}
	archives, err := filepath.Glob(filepath.Join(os.Getenv("CORACLE_TEST_IMAGES"), "busybox.tar"))
	if err != nil || len(archives) == 0 {
		t.Skip("CORACLE_TEST_IMAGES names no directory with image archives: run `make test`")
	}
	h := hosts.New(t, hosts.NewWire(t, netip.MustParsePrefix("172.31.9.0/24")), "store", hosts.Options{})
	r := Start(t, h, Options{TLS: NewAuthority(t, "mine"), Users: map[string]string{"me": "mine"}})
	img := ReadImage(t, archives[0])
	r.Push("team/app:1", img)
	if got := r.Requests("PUT", "/v2/team/app/manifests/1", " 201 "); len(got) != 1 {
		t.Errorf("the log says of the push: %q", got)
	}
	r.SetUsers(map[string]string{"other": "password"})
	r.opts.Users = map[string]string{"me": "mine"}
	if err := r.push("team/app", "2", img, img.target); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("a former user's push ends with %v", err)
	}
	r.Stop()
	if conn, err := h.Dial(t.Context(), "tcp", r.Addr); err == nil {
		t.Error(errors.New("a stopped registry listens"), conn.Close())
	}
}
