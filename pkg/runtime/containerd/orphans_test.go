package containerd

import (
	"strings"
	"testing"

	"github.com/coracle-dev/coracle/pkg/core/process"
)

func TestShimOf(t *testing.T) {
	c := Containerd{Shim: "/bin/shim", Socket: "/run/c.sock"}
	tests := []struct{ cmdline, want string }{
		{"/bin/shim -namespace k8s.io -id abc -address /run/c.sock", "abc"},
		{"/bin/shim -namespace k8s.io -id abc -address /run/other.sock", ""},
		{"/bin/other -namespace k8s.io -id abc -address /run/c.sock", ""},
		{"/bin/shim -namespace k8s.io -address /run/c.sock -id abc delete", ""},
		{"/bin/shim -id", ""},
		{"", ""},
	}
	for _, tt := range tests {
		if got := c.shimOf(process.Process{Args: strings.Split(tt.cmdline, " ")}); got != tt.want {
			t.Errorf("%q is the shim of %q", tt.cmdline, got)
		}
	}
}

func TestNamespaceOf(t *testing.T) {
	tests := []struct{ info, want string }{
		{`{"sandboxMetadata":{"Version":"v1","Metadata":{"NetNSPath":"/var/run/netns/cni-1"}}}`, "/var/run/netns/cni-1"},
		{`{"runtimeSpec":{"linux":{"namespaces":[{"type":"pid"},{"type":"network","path":"/run/netns/cni-2"}]}}}`, "/run/netns/cni-2"},
		{`{}`, ""},
	}
	for _, tt := range tests {
		if got, err := namespaceOf(tt.info); err != nil || got != tt.want {
			t.Errorf("%s: %q, %v", tt.info, got, err)
		}
	}
	if _, err := namespaceOf("nonsense"); err == nil {
		t.Error("nonsense is understood")
	}
}

func TestMentions(t *testing.T) {
	const ours, foreign = "cni-01234567-89ab-cdef-0123-456789abcdef", "cni-fedcba98-7654-3210-fedc-ba9876543210"
	database := []byte("\x00\x01{\"NetNSPath\":\"/var/run/netns/" + ours + "\"}")
	for name, want := range map[string]bool{ours: true, foreign: false, "cni-0123": false} {
		if got := mentions(database, name); got != want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
