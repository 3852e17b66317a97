package networkpolicy

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coracle-dev/coracle/pkg/core/crisocket"
)

// sandboxes returns the running pod sandboxes of this node that have addresses. The addresses are those of the CNI plugin's leases.
func sandboxes(ctx context.Context, socket, leases string) ([]*attachment, error) {
	conn, err := crisocket.Dial(socket)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	list, err := cri.NewRuntimeServiceClient(conn).ListPodSandbox(ctx, &cri.ListPodSandboxRequest{Filter: &cri.PodSandboxFilter{
		State: &cri.PodSandboxStateValue{State: cri.PodSandboxState_SANDBOX_READY},
	}})
	if err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	leased, err := leasedTo(leases)
	if err != nil {
		return nil, err
	}
	var out []*attachment
	for _, s := range list.Items {
		if addrs := leased[s.Id]; len(addrs) > 0 {
			m := s.Metadata
			out = append(out, &attachment{sandbox: s.Id, namespace: m.GetNamespace(), name: m.GetName(),
				uid: podKey(m.GetNamespace(), m.GetName(), m.GetUid()), addrs: addrs})
		}
	}
	return out, nil
}

// leasedTo returns the addresses of each sandbox. A lease is a file named by the address, whose first line is the ID of the sandbox;
// the directory has other files as well.
func leasedTo(dir string) (map[string][]netip.Addr, error) {
	entries, err := os.ReadDir(dir)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading address leases: %w", err)
	}
	out := map[string][]netip.Addr{}
	for _, entry := range entries {
		addr, err := netip.ParseAddr(entry.Name())
		if err != nil {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading an address lease: %w", err)
		}
		sandbox, _, _ := strings.Cut(string(data), "\n")
		sandbox = strings.TrimSpace(sandbox)
		out[sandbox] = append(out[sandbox], addr)
	}
	return out, nil
}
