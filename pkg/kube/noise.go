package kube

import "strings"

// noise are messages that Kubernetes logs as errors although they belong to every healthy start, or to a machine
// without some privilege, and that no operator can act on. They are logged at debug level. What they are about shows
// where it matters: in the Node's conditions and in what the parts wait for.
var noise = []string{
	// The kubelet starts before the node is registered, and looks for it at once.
	"Error getting the current node from lister",
	"Eviction manager: failed to get summary stats",
	"Failed to get node when trying to set owner ref to the node lease",
	"Failed to read data from checkpoint", // there is none before the first pod
	"Image garbage collection failed once. Stats initialization may not have completed yet",
	"Skipping pod synchronization", // until containerd has been asked how it is
	"Unable to register mirror pod because node is not registered yet",
	"eviction manager: failed to check if we have separate container filesystem",
	// Its first events come before the API server has made the namespace that they go to.
	"Server rejected event (will not retry!)",
	// Without CAP_SYS_RESOURCE, as in most containers.
	"Failed to ensure process in container with oom score",
	"Failed to set rlimit on max file handles",
	// kube-proxy looks for what an earlier one left in a table that is not there yet.
	"Failed to list existing sets",
}

// isNoise reports whether an error message is for nobody.
func isNoise(msg string) bool {
	for _, prefix := range noise {
		if strings.HasPrefix(msg, prefix) {
			return true
		}
	}
	return false
}
