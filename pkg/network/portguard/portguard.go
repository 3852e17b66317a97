// Package portguard lets the pods of a node send only with their own MAC and IP addresses: the kernel drops all else at the pod's port of
// the bridge. Otherwise a pod that may send raw packets, which containers may by default, could take over the addresses of its neighbours
// and of the node. The CNI plugin writes the addresses of a pod, and the node those of all pods when the table has been deleted.
package portguard

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/network/nft"
)

// Annotation of a pod lets it send with any address. An admission plugin lets a pod have it only in namespaces that have it too,
// because users who may create pods may not change namespaces.
const Annotation = "coracle.io/allow-spoofing"

// AnnotationsCapability is containerd's name for the annotations of pods, in the configuration of CNI plugins.
const AnnotationsCapability = "io.kubernetes.cri.pod-annotations"

// Exempt reports whether a pod with these annotations may send with any address.
func Exempt(annotations map[string]string) bool { return annotations[Annotation] == "true" }

// Port is the port of a pod at the bridge, and the addresses with which the pod may send.
type Port struct {
	Name string
	MAC  net.HardwareAddr
	IPs  []netip.Addr
}

// errNoPort is the error of PortOf for a result of another network.
var errNoPort = errors.New("it is not a pod with a port at the bridge")

// PortOf reads the port from the result of the bridge plugin, or of a chain of plugins that begins with it.
func PortOf(result []byte, bridge string) (Port, error) {
	var r current.Result
	if err := json.Unmarshal(result, &r); err != nil {
		return Port{}, fmt.Errorf("reading the result for a pod: %w", err)
	}
	var p Port
	var found bool
	for _, i := range r.Interfaces {
		var err error
		switch {
		case i.Sandbox != "" && p.MAC == nil:
			p.MAC, err = net.ParseMAC(i.Mac)
		case i.Sandbox == "" && i.Name == bridge:
			found = true
		case i.Sandbox == "" && p.Name == "":
			p.Name = i.Name
		}
		if err != nil {
			return Port{}, fmt.Errorf("reading the result for a pod: %w", err)
		}
	}
	for _, ip := range r.IPs {
		if addr, ok := netip.AddrFromSlice(ip.Address.IP); ok {
			p.IPs = append(p.IPs, addr.Unmap())
		}
	}
	if !found || p.Name == "" || len(p.MAC) != 6 || len(p.IPs) == 0 {
		return Port{}, errNoPort
	}
	return p, nil
}

// Add puts the addresses of a pod in force. It makes the table if another program has deleted it. On a kernel without nftables for
// bridges it does nothing.
func Add(p Port) error {
	err := change(func(t table) error { return t.add(p) })
	if errors.Is(err, unix.ENOENT) {
		err = change(func(t table) error { return errors.Join(t.make(), t.add(p)) })
	}
	if err != nil && !nft.Unsupported(err) {
		return fmt.Errorf("letting the pod send with its own addresses only: %w", err)
	}
	return nil
}

// Remove removes the addresses of a pod. If there are none, that is no error.
func Remove(p Port) error {
	err := change(func(t table) error { return t.remove(p) })
	if err != nil && !errors.Is(err, unix.ENOENT) && !nft.Unsupported(err) {
		return fmt.Errorf("removing the addresses of port %s: %w", p.Name, err)
	}
	return nil
}

// Tidy removes the addresses of ports that do not exist. A runtime whose network plugins failed for a pod does not say which port it had. Without the
// table it returns an error, whose kind the library hides.
func Tidy() error {
	if err := change(func(t table) error { return t.tidy() }); err != nil {
		return fmt.Errorf("removing the addresses of ports that do not exist: %w", err)
	}
	return nil
}

// Restore makes the table and puts the addresses of all pods of a bridge in force, also of those that an earlier version of coracle
// attached. results is the directory in which the runtime keeps the results of CNI plugins.
func Restore(results, bridge string) error {
	ports, err := portsIn(results, bridge)
	failed := change(func(t table) error { return errors.Join(t.make(), t.add(ports...)) })
	if nft.Unsupported(failed) {
		failed = fmt.Errorf("the kernel lacks CONFIG_NF_TABLES_BRIDGE: %w", failed)
	}
	return errors.Join(err, failed)
}

// portsIn reads the ports that exist from the cache of libcni, whose format is libcni's cachedInfo.
func portsIn(dir, bridge string) (ports []Port, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("reading which ports pods have: %w", err)
	}
	links, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("listing network interfaces: %w", err)
	}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			continue // the pod was deleted meanwhile
		}
		var cached struct {
			Args   map[string]json.RawMessage `json:"capabilityArgs"`
			Result json.RawMessage            `json:"result"`
		}
		if json.Unmarshal(data, &cached) != nil || cached.Result == nil {
			continue // damaged, or of another kind
		}
		var annotations map[string]string
		if text := cached.Args[AnnotationsCapability]; text != nil && json.Unmarshal(text, &annotations) != nil || Exempt(annotations) {
			continue
		}
		p, err := PortOf(cached.Result, bridge)
		if err == nil && slices.ContainsFunc(links, func(l net.Interface) bool { return l.Name == p.Name }) {
			ports = append(ports, p)
		}
	}
	return ports, nil
}

// change makes changes of the table in one transaction.
func change(do func(table) error) error {
	conn, err := nftables.New()
	if err != nil {
		return err
	}
	t, err := newTable(conn)
	if err == nil {
		err = do(t)
	}
	if err != nil {
		return err
	}
	return conn.Flush()
}
