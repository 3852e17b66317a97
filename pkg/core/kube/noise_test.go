package kube

import (
	"errors"
	"fmt"
	"testing"
)

func TestNoise(t *testing.T) {
	for _, c := range []struct {
		message, err string
		want         bool
	}{
		{"Failed to scrape node", "connection refused", true},
		{"Partial failure issuing cadvisor.ContainerInfoV2", `partial failures: ["/x": RecentStats: unable to find data in memory cache]`, true},
		{"Partial failure issuing cadvisor.ContainerInfoV2", "cgroups are broken", false},
		{"Unhandled Error", "failed to compute desired number of replicas based on listed metrics for Deployment/default/web", true},
		{"Unhandled Error", `sync "default/web" failed with read version: 383 is not as new as written version: 385`, true},
		{"Error syncing StatefulSet, requeuing", `read version: 1 is not as new as written version: 2 for group resource statefulsets.apps`, true},
		{"Failed to get status for pod", `pods "client" is forbidden: node: no relationship found between node 'a' and this object`, true},
		{"Failed to get status for pod", `pods "client" is forbidden: User "system:node:a" cannot get resource "pods"`, false},
		{"ContainerStatus from runtime service failed", "rpc error: code = NotFound desc = not found", true},
		{"ContainerStatus from runtime service failed", "rpc error: code = Unavailable desc = connection refused", false},
		{"Unhandled Error", "apiserver received an error that is not an metav1.Status: rpc error: code = Unknown desc = raft: stopped", true},
		{"Unhandled Error", "apiserver received an error that is not an metav1.Status: the disk is on fire", false},
		{"Unhandled Error", "the disk is on fire", false},
		{"anything", fmt.Sprint("asking: ", "context canceled"), true},
		{"anything", "", false},
	} {
		var err error
		if c.err != "" {
			err = errors.New(c.err)
		}
		if got := isNoise(c.message, err); got != c.want {
			t.Errorf("%s: %v: noise is %t, want %t", c.message, err, got, c.want)
		}
	}
}
