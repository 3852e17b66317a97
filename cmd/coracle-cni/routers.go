package main

import (
	"os"
	"path/filepath"

	"github.com/containernetworking/plugins/pkg/ns"
)

// ignoreRouters makes the interface of a pod neither ask for IPv6 routers nor believe those that announce themselves: the routes of pods are set, an announcement
// could only be that of another pod, and each question reaches all pods of the node. It does what it can: the kernel may have no IPv6, or /proc/sys be read-only.
func ignoreRouters(netns, name string) {
	_ = ns.WithNetNSPath(netns, func(ns.NetNS) error {
		return os.WriteFile(filepath.Join("/proc/sys/net/ipv6/conf", name, "accept_ra"), []byte("0"), 0)
	})
}
