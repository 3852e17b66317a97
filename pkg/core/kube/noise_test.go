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
