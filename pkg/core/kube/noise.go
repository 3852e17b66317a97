package kube

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
)

// noise lists messages that Kubernetes logs as errors or warnings although they belong to every healthy start, or to a machine
// without some privilege, and that no operator can act on. They are logged at debug level. The state of the system shows
// elsewhere: in the Node's conditions and in what the components wait for.
var noise = []struct {
	message string // how the message begins
	err     string // what its error contains; a * stands for any text
	// passing marks a message that is normal for a short time only: when a server starts or stops, and while etcd's leader
	// changes. If it does not cease, it is logged once a minute.
	passing bool
}{
	// The kubelet starts before the node is registered, and looks for it at once.
	{message: "Error getting the current node from lister"},
	{message: "Eviction manager: failed to get summary stats"},
	{message: "Failed to get node when trying to set owner ref to the node lease"},
	{message: "Failed to read data from checkpoint"}, // there is none before the first pod
	{message: "Image garbage collection failed once. Stats initialization may not have completed yet"},
	{message: "Skipping pod synchronization"}, // until the first answer of containerd
	{message: "Unable to register mirror pod because node is not registered yet"},
	{message: "eviction manager: failed to check if we have separate container filesystem"},
	{message: "Error updating node status, will retry", err: "not found"},
	// Its first events and its lease come before the API server has made the namespaces that they go to.
	{message: "Server rejected event (will not retry!)"},
	{message: "Failed to ensure lease exists, will retry", err: `namespaces "kube-node-lease" not found`},
	{message: "Failed to ensure lease exists, will retry", err: `namespaces "kube-system" not found`},
	{message: "Error while syncing ConfigMap", err: `namespaces "kube-system" not found`},
	// Features that are not configured, API versions that were retired, and clean-ups that found nothing.
	{message: "[core] "}, // gRPC about connections to etcd: their users log the errors
	{message: "The manifest file is empty, ignoring"},
	{message: "Skipping API "},
	{message: "Resetting endpoints for master service"},
	{message: "Error removing old endpoints from kubernetes service: no API server IP addresses were listed in storage"}, // the only server, some time after it was stopped
	{message: "Found stale data, removed previous endpoints"},
	// Where swap is on, the kubelet tries whether a kernel before 6.4 knows an option of tmpfs.
	{message: "Mount failed: exit status 32\nMounting command: mount\nMounting arguments:  -t tmpfs -o noswap"},
	// Without CAP_SYS_RESOURCE, as in most containers.
	{message: "Failed to ensure process in container with oom score"},
	{message: "Failed to set rlimit on max file handles"},
	// Controllers that are stopped before they have read what they need, as by a stop right after a start.
	{message: "Unable to sync caches"},
	{message: "Timed out waiting for quota monitor sync", passing: true},
	{message: "Unhandled Error", err: "timed out waiting for dependency graph builder sync", passing: true},
	{err: errFenced.Error()},
	// The API server when it stops: it does not wait for logs that are followed.
	{message: "Failed to shutdown server: context deadline exceeded"},
	// Streams of exec and the like end by being closed, and a kubelet closes its connections when it changes its identity.
	{message: "Error on socket receive", err: "use of closed network connection"},
	{message: "Error proxying data from client to backend", err: "close 1006"},
	{message: "Unable to write event (may retry after sleeping)", err: "use of closed network connection"},
	// The kubelet's manager of a certificate that was replaced, and of which another manager has taken care since.
	{message: "Reached backoff limit, still unable to rotate certs", err: "context canceled"},
	// A client of the API did not wait for the answer. It logs that itself if it matters.
	{message: "Unhandled Error", err: "http: Handler timeout", passing: true},
	{message: "Unhandled Error", err: "body closed by handler", passing: true}, // as clients that close their connections when they get another certificate
	{message: "Post-timeout activity", passing: true},
	{message: "Timeout or abort while handling", passing: true},
	// A request whose time ends while its answer comes, such as one of the probes that wait for an API server. Who has sent it gets the error too.
	{message: "Unexpected error when reading response body", err: "context deadline exceeded", passing: true},
	// While etcd's members elect a leader, each of a hundred watches is tried again and again. etcd logs the election once.
	{message: "watch chan error: etcdserver: no leader", passing: true},
	{message: "failed to sync with latest state: etcdserver: leader changed", passing: true},
	// metrics-server about each request to a kubelet. coracle logs it once for each node.
	{message: "Failed to scrape node"},
	// The kubelet about the usage of a container that was not measured yet.
	{message: "Partial failure issuing cadvisor.ContainerInfoV2", err: "unable to find data in memory cache"},
	{message: "Error getting summary for resourceMetric", err: "unable to find data in memory cache", passing: true},     // asked right after its start
	{message: "Error getting summary for resourceMetric", err: "failed to get node info: node*not found", passing: true}, // asked before its cache has the node
	// The autoscaler, every 15 seconds. The HorizontalPodAutoscaler's conditions and events have it too.
	{message: "Unhandled Error", err: "failed to compute desired number of replicas"},
	// A controller whose cache does not have its own latest write yet. It tries again.
	{err: "is not as new as written version", passing: true},
	// The folder of a local volume is deleted as soon as its claim is.
	{message: "GetDeviceMountPath failed, but unmount operation will proceed"},
	// The kubelet about a pod that was deleted meanwhile: the node may no longer read the pod's objects.
	{err: "no relationship found between node", passing: true},
	{message: "Failed to update status for pod", err: "not found"},
	{message: "ContainerStatus from runtime service failed", err: "code = NotFound"},
	{message: "Housekeeping took longer than expected"}, // on a busy machine
	{message: "failed to read memory cgroup", err: "no such file or directory"},
	// The allocator of pod networks, whose cache does not have its own latest write yet. It tries again.
	{message: "Failed to update node PodCIDR after multiple attempts", err: "node updates may not change podCIDR"},
	{message: "CIDR assignment for node failed", err: "node updates may not change podCIDR"},
	{message: "Error processing node work item", err: "node updates may not change podCIDR"},
	// A Job or ReplicaSet that was deleted while its controller worked on it.
	{message: "Unhandled Error", err: "failed with replicasets.apps*not found", passing: true},
	{message: "Unhandled Error", err: "removing uncounted pods from status: jobs.batch*not found"},
	// Two controllers that write to one object, such as a volume that is being deleted. The one that is late tries again.
	{message: "Unhandled Error", err: "failed with*the object has been modified", passing: true},
	// Requests that are in flight while this server's etcd stops, or while its leader changes. Clients get the error and try again.
	{err: "raft: stopped", passing: true},
	{message: "Unhandled Error", err: "etcdserver: request timed out", passing: true},
	{message: "Unhandled Error", err: "apiserver received an error that is not an metav1.Status: context.deadlineExceededError", passing: true},
	{message: "Unhandled Error", err: "post-timeout activity", passing: true},
	// Somebody asks the kubelet for figures while the node stops: containerd has ended before it.
	{err: "containerd.sock: connect: no such file or directory", passing: true},
	{err: "code = Unavailable desc = error reading from server: EOF", passing: true},
	// kube-proxy looks for leftovers in a table that does not exist yet.
	{message: "Failed to list existing sets"},
}

// The time for which a passing message is normal, the time without it after which it is normal again, and the time between
// two lines about one that is not.
const (
	noiseNormal = 2 * time.Minute
	noiseOver   = time.Minute
	noiseEvery  = time.Minute
)

// noiseFilter counts the passing messages of a process.
type noiseFilter struct {
	mu   sync.Mutex
	seen map[int]passingNoise // by index in noise
}

// passingNoise is when a message first came, came last and was logged last, and how many times it was not logged.
type passingNoise struct {
	first, last, logged time.Time
	times               int
}

// level returns the level at which to log a message that has the given level, and how many times it came without being
// logged. A nil filter takes passing messages for normal.
func (f *noiseFilter) level(given logrus.Level, message string, err error) (level logrus.Level, times int) {
	i, ok := findNoise(message, err)
	switch {
	case !ok:
		return given, 0
	case f == nil || i < 0 || !noise[i].passing:
		return logrus.DebugLevel, 0
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	now, n := time.Now(), f.seen[i]
	if now.Sub(n.last) > noiseOver {
		n = passingNoise{first: now}
	}
	n.last = now
	n.times++
	level = logrus.DebugLevel
	if now.Sub(n.first) > noiseNormal && now.Sub(n.logged) >= noiseEvery {
		level, times = logrus.WarnLevel, n.times
		n.logged, n.times = now, 0
	}
	f.seen[i] = n
	return level, times
}

// findNoise returns the index of a message in noise, or -1 for what was given up because a component stops. ok is false if the
// message is no noise.
func findNoise(message string, err error) (i int, ok bool) {
	text := fmt.Sprint(err)
	if strings.Contains(text, context.Canceled.Error()) || strings.Contains(message, context.Canceled.Error()) {
		return -1, true
	}
	for i, n := range noise {
		before, after, _ := strings.Cut(n.err, "*")
		_, rest, found := strings.Cut(text, before)
		if found && strings.Contains(rest, after) && strings.HasPrefix(message, n.message) {
			return i, true
		}
	}
	return 0, false
}
