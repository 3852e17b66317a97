package podsubnet

import (
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

func TestReadBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "made", "subnet.json")
	if _, err := Read(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a file the error is %v", err)
	}
	want := Subnet{
		PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.42.3.0/24"), netip.MustParsePrefix("fd42:3::/64")}, MTU: 1430,
		ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16"), netip.MustParsePrefix("fd42::/48")},
	}
	if err := want.Write(path); err != nil {
		t.Fatal(err)
	}
	if got, err := Read(path); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("read %v, %v", got, err)
	}
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := want.Write(path); err != nil {
		t.Fatal(err)
	}
	if after, err := os.Stat(path); err != nil || !os.SameFile(before, after) {
		t.Errorf("the same content was written again: %v", err)
	}
}

func TestGateway(t *testing.T) {
	for subnet, want := range map[string]string{"10.42.3.0/24": "10.42.3.1/24", "10.42.3.77/24": "10.42.3.1/24", "fd42:3::/64": "fd42:3::1/64"} {
		if got := Gateway(netip.MustParsePrefix(subnet)).String(); got != want {
			t.Errorf("the gateway of %s is %s, want %s", subnet, got, want)
		}
	}
}
