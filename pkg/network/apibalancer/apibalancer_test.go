package apibalancer

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
)

func slice(port int32, name string, addresses ...string) any {
	return &discoveryv1.EndpointSlice{
		Ports:     []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: addresses}},
	}
}

func TestAddressesOf(t *testing.T) {
	no := false
	unready := slice(6443, "https", "10.0.0.9").(*discoveryv1.EndpointSlice)
	unready.Endpoints[0].Conditions.Ready = &no
	for name, c := range map[string]struct {
		slices []any
		want   []string
	}{
		"none":       {nil, nil},
		"one":        {[]any{slice(6443, "https", "10.0.0.1")}, []string{"10.0.0.1:6443"}},
		"sorted":     {[]any{slice(6443, "https", "10.0.0.2"), slice(6443, "https", "10.0.0.1", "10.0.0.2")}, []string{"10.0.0.1:6443", "10.0.0.2:6443"}},
		"IPv6":       {[]any{slice(6443, "https", "fd00::1")}, []string{"[fd00::1]:6443"}},
		"other port": {[]any{slice(80, "http", "10.0.0.1")}, nil},
		"not ready":  {[]any{unready}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if got := addressesOf(c.slices); !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestMemory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "servers.json")
	o := Options{Own: "10.0.0.1:6443", OwnDial: "127.0.0.1:6443", Servers: []string{"10.0.0.1:6443"}, Fallback: []string{"lb:6443"}, File: file}
	b := New(o)
	if err := b.take([]any{slice(6443, "https", "10.0.0.1", "10.0.0.2", "10.0.0.3")}); err != nil {
		t.Fatal(err)
	}
	if err := b.take([]any{slice(6443, "https", "10.0.0.1", "10.0.0.3")}); err != nil {
		t.Fatal(err)
	}
	o.Servers = nil
	all, _ := New(o).Servers()
	var got []string
	for _, s := range all {
		got = append(got, s.Address)
	}
	want := []string{"10.0.0.1:6443", "10.0.0.3:6443", "10.0.0.2:6443", "lb:6443"}
	slices.Sort(got[2:]) // those to fall back on have no order
	if !slices.Equal(got, want) || !all[0].Own || all[1].Fallback || !all[2].Fallback {
		t.Errorf("got %+v, want %v", all, want)
	}

	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if all, _ := New(o).Servers(); len(all) != 2 {
		t.Errorf("with a damaged file: %+v", all)
	}
}

func TestTLS(t *testing.T) {
	b := New(Options{CA: filepath.Join(t.TempDir(), "ca.crt")})
	if _, err := b.tls(); err == nil {
		t.Error("no CA and no error")
	}
	if err := os.WriteFile(b.CA, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := b.tls(); err == nil {
		t.Error("an empty CA and no error")
	}
}
