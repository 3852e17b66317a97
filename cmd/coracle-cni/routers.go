package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/containernetworking/plugins/pkg/ns"
)

// ignoreRouters makes the interface of a pod neither ask for IPv6 routers nor believe those that announce themselves: the routes of pods are set, an announcement
// could only be that of another pod, and each question reaches all pods of the node. It does nothing where the kernel has no IPv6.
func ignoreRouters(netns, name string) error {
	err := ns.WithNetNSPath(netns, func(ns.NetNS) error {
		return os.WriteFile(filepath.Join("/proc/sys/net/ipv6/conf", name, "accept_ra"), []byte("0"), 0)
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("making the pod ignore routers: %w", err)
	}
	return nil
}
