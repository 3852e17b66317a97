package reset

import (
	"fmt"
	"slices"
	"testing"
)

func TestSummary(t *testing.T) {
	items := []Item{{Kind: "link", Name: "cni0", Detail: "bridge"}}
	for i := range 300 {
		items = append(items, Item{Kind: "file", Name: fmt.Sprintf("/var/lib/cni/results/cbr0-%d-eth0", i)})
	}
	for i := range 4 {
		items = append(items, Item{Kind: "pod's log", Name: fmt.Sprintf("/var/log/pods/%d", i)}, Item{Kind: "nft table", Name: fmt.Sprintf("ip t%d", i)})
	}
	for i := range 6 {
		items = append(items, Item{Kind: "directory", Name: fmt.Sprintf("/etc/%d", i), Detail: "if empty"})
	}
	items = append(items, Item{Kind: "mount", Name: "/var/lib/cni/results/x"}, Item{Kind: "nft table", Name: "ip t4"})
	want := []string{
		"link cni0 (bridge)", "300 × file in /var/lib/cni/results",
		"pod's log /var/log/pods/0", "nft table ip t0", "pod's log /var/log/pods/1", "nft table ip t1",
		"pod's log /var/log/pods/2", "nft table ip t2", "pod's log /var/log/pods/3", "nft table ip t3",
		"directory /etc/0 (if empty)", "directory /etc/1 (if empty)", "directory /etc/2 (if empty)",
		"directory /etc/3 (if empty)", "directory /etc/4 (if empty)", "directory /etc/5 (if empty)",
		"mount /var/lib/cni/results/x", "nft table ip t4",
	}
	if got := Summary(items); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}
