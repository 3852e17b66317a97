package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"
	"github.com/fsnotify/fsnotify"

	"github.com/coracle-dev/coracle/pkg/network/podsubnet"
)

// ipamMain is the CNI type "coracle-ipam", the IPAM plugin for bridge. It returns the addresses that type "coracle" leased before it
// called bridge. It has no state, so Del and Check do nothing.
func ipamMain() {
	nothing := func(*skel.CmdArgs) error { return nil }
	skel.PluginMainFuncs(skel.CNIFuncs{Add: ipamAdd, Check: nothing, Del: nothing}, version.All,
		"coracle-ipam: part of the CNI plugin coracle")
}

func ipamAdd(args *skel.CmdArgs) error {
	var c struct {
		CNIVersion string `json:"cniVersion"`
		IPAM       struct {
			Result *current.Result `json:"result"`
		} `json:"ipam"`
	}
	if err := json.Unmarshal(args.StdinData, &c); err != nil {
		return fmt.Errorf("reading network configuration: %w", err)
	}
	if c.IPAM.Result == nil {
		return fmt.Errorf("network configuration has no leased addresses: type coracle-ipam is for type coracle only")
	}
	return types.PrintResult(c.IPAM.Result, c.CNIVersion)
}

// subnetWait is how long an ADD waits for the node's subnet. The kubelet's timeout for a sandbox is two minutes.
const subnetWait = 60 * time.Second

// awaitSubnet reads the node's subnet as soon as the file exists.
func awaitSubnet(path string, limit time.Duration) (podsubnet.Subnet, error) {
	s, err := podsubnet.Read(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return s, err
	}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return s, fmt.Errorf("watching for %s: %w", path, err)
	}
	defer watcher.Close()
	if err := watcher.Add(filepath.Dir(path)); err != nil {
		return s, fmt.Errorf("waiting for the node's pod subnet: watching %s (is coracle running?): %w", filepath.Dir(path), err)
	}
	timeout := time.After(limit)
	for {
		// Read before the first event, too: the file may have been written before the watch.
		if s, err := podsubnet.Read(path); !errors.Is(err, fs.ErrNotExist) {
			return s, err
		}
		select {
		case <-watcher.Events:
		case err := <-watcher.Errors:
			return s, fmt.Errorf("watching for %s: %w", path, err)
		case <-timeout:
			return s, fmt.Errorf("waiting for the node's pod subnet: no %s within %s; "+
				"`coracle status` says what the pod network waits for", path, limit)
		}
	}
}
