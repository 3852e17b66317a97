package kube

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
)

func TestNoise(t *testing.T) {
	for _, c := range []struct {
		message, err string
		want         bool
	}{
		{"Failed to scrape node", "connection refused", true},
		{"Partial failure issuing cadvisor.ContainerInfoV2", `partial failures: ["/x": RecentStats: unable to find data in memory cache]`, true},
		{"Partial failure issuing cadvisor.ContainerInfoV2", "cgroups are broken", false},
		{"Error getting summary for resourceMetric prometheus endpoint", `failed to get container info for "/": partial failures: ["/": RecentStats: unable to find data in memory cache]`, true},
		{"Error getting summary for resourceMetric prometheus endpoint", "cgroups are broken", false},
		{"Unhandled Error", "failed to compute desired number of replicas based on listed metrics for Deployment/default/web", true},
		{"Unhandled Error", `sync "default/web" failed with read version: 383 is not as new as written version: 385`, true},
		{"Error syncing StatefulSet, requeuing", `read version: 1 is not as new as written version: 2 for group resource statefulsets.apps`, true},
		{"Failed to get status for pod", `pods "client" is forbidden: node: no relationship found between node 'a' and this object`, true},
		{"Failed to get status for pod", `pods "client" is forbidden: User "system:node:a" cannot get resource "pods"`, false},
		{"ContainerStatus from runtime service failed", "rpc error: code = NotFound desc = not found", true},
		{"ContainerStatus from runtime service failed", "rpc error: code = Unavailable desc = connection refused", false},
		{"Unhandled Error", "apiserver received an error that is not an metav1.Status: rpc error: code = Unknown desc = raft: stopped", true},
		{"ListContainers with filter from runtime service failed", `rpc error: code = Unavailable desc = connection error: desc = "transport: Error while dialing: dial unix /run/coracle/containerd/containerd.sock: connect: no such file or directory"`, true},
		{"Unhandled Error", "apiserver received an error that is not an metav1.Status: the disk is on fire", false},
		{"Unhandled Error", "the disk is on fire", false},
		{"Unhandled Error", `sync "default/web-1" failed with replicasets.apps "web-1" not found`, true},
		{"Failed to ensure lease exists, will retry", `namespaces "kube-node-lease" not found`, true},
		{"Unhandled Error", `sync "default/web-1" failed with replicasets.apps "web-1" is forbidden: no`, false},
		{"Unhandled Error", `syncing job: removing uncounted pods from status: jobs.batch "a" not found`, true},
		{"Unhandled Error", `syncing job: removing uncounted pods from status: jobs.batch "a" is forbidden: no`, false},
		{"Unhandled Error", `PV pvc-1 failed with : Operation cannot be fulfilled on persistentvolumes "pvc-1": the object has been modified; please apply your changes`, true},
		{"Unhandled Error", `PV pvc-1 failed with : the disk is on fire`, false},
		{"Failed to ensure lease exists, will retry", `namespaces "kube-public" not found`, false},
		{"Failed to ensure lease exists, will retry", "connection refused", false},
		{"Error removing old endpoints from kubernetes service: no API server IP addresses were listed in storage, refusing to erase all endpoints for the kubernetes Service", "", true},
		{"Error removing old endpoints from kubernetes service: the disk is on fire", "", false},
		{"Unable to sync caches", "", true},
		{"Unhandled Error", "timed out waiting for dependency graph builder sync during GC sync", true},
		{"Mount failed: exit status 32\nMounting command: mount\nMounting arguments:  -t tmpfs -o noswap tmpfs /x/tmpfs-noswap-test-1\nOutput: bad option", "", true},
		{"Mount failed: exit status 32\nMounting command: mount\nMounting arguments:  -t tmpfs tmpfs /x\nOutput: bad option", "", false},
		{"Unexpected error when reading response body", "context deadline exceeded", true},
		{"Unexpected error when reading response body", "unexpected EOF", false},
		{"Error getting summary for resourceMetric prometheus endpoint", `failed to get node info: node "solo" not found`, true},
		{"anything", fmt.Sprint("asking: ", "context canceled"), true},
		{"anything", "", false},
	} {
		var err error
		if c.err != "" {
			err = errors.New(c.err)
		}
		if _, got := findNoise(c.message, err); got != c.want {
			t.Errorf("%s: %v: noise is %t, want %t", c.message, err, got, c.want)
		}
	}
}

// TestNoiseThatLasts: what is normal while etcd stops or elects a leader is logged with its count if it does not cease.
func TestNoiseThatLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &noiseFilter{seen: map[int]passingNoise{}}
		err := errors.New("rpc error: code = Unknown desc = raft: stopped")
		count := func(d time.Duration) (lines, times int) {
			for range d / time.Second {
				level, n := f.level(logrus.ErrorLevel, "Unhandled Error", err)
				if level == logrus.WarnLevel {
					lines++
				}
				times += n
				time.Sleep(time.Second)
			}
			return lines, times
		}
		if lines, _ := count(noiseNormal); lines != 0 {
			t.Errorf("%d lines in a time in which it is normal", lines)
		}
		if lines, times := count(5 * time.Minute); lines != 5 || times < 300 {
			t.Errorf("%d lines that count %d messages in five more minutes", lines, times)
		}
		time.Sleep(2 * noiseOver)
		if lines, _ := count(noiseNormal); lines != 0 {
			t.Errorf("%d lines the next time", lines)
		}
		if level, _ := f.level(logrus.ErrorLevel, "Skipping API x", nil); level != logrus.DebugLevel {
			t.Errorf("what is always normal is logged as %s", level)
		}
	})
}
