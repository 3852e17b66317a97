package faults

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/verdicts"
)

// single is a server with a few pods.
type single struct {
	*arena
	host     *hosts.Host
	replicas int // the number of pods on the server
}

// few is the number of pods that most tests need.
const few = 3

// newSingle installs a server; prepare is called for it after each boot. Its pods are created when it returns, and may not run yet.
func newSingle(t *testing.T, plan hosts.Plan, prepare func(*hosts.Host)) *single {
	s := &single{arena: newArenaOf(t, plan, prepare), replicas: few}
	s.host = s.Servers[0]
	s.deploy("")
	return s
}

// deploy creates the pods, with more of their spec.
func (s *single) deploy(spec string) {
	s.t.Helper()
	s.host.Apply(fmt.Sprintf(`{apiVersion: apps/v1, kind: Deployment, metadata: {name: app}, spec: {replicas: %d, selector: {matchLabels: {app: app}}, template: {
		metadata: {labels: {app: app}}, spec: {%s terminationGracePeriodSeconds: 0, containers: [{name: app, image: "coracle.test/busybox:1", command: [sleep, "99999"]}]}}}}`, s.replicas, spec))
}

// well waits until the pods run again, and just their addresses are leased.
func (s *single) well() {
	s.t.Helper()
	s.await("all pods run", s.podsRun)
}

// podsRun is nil if all pods run, and just their addresses are leased.
func (s *single) podsRun() error {
	pods, err := s.pods()
	if err != nil {
		return err
	}
	leased, err := s.leases()
	if err != nil {
		return err
	}
	var wanted []string
	for _, p := range pods {
		if len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].Ready && p.Status.PodIP != "" {
			wanted = append(wanted, p.Status.PodIP)
		}
	}
	slices.Sort(wanted)
	if len(wanted) != s.replicas || !slices.Equal(wanted, leased) {
		return fmt.Errorf("%d of %d pods are ready, with the addresses %v; leased are %v", len(wanted), s.replicas, wanted, leased)
	}
	// What the API says may be of before a power cut.
	if out, _ := s.host.Try("pgrep", "-c", "-x", "sleep"); strings.TrimSpace(out) != strconv.Itoa(s.replicas) {
		return fmt.Errorf("%d pods are ready, and of their processes these run: %s", s.replicas, out)
	}
	return nil
}

func (s *single) pods() ([]corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	api := s.direct[s.host.Name]
	if api == nil {
		return nil, errors.New("no client")
	}
	list, err := api.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// containers are the containers of the pods, with how often each was restarted.
func (s *single) containers() (out []string) {
	s.t.Helper()
	hosts.Eventually(s.t, askTimeout, func() error {
		pods, err := s.pods()
		out = nil
		for _, p := range pods {
			for _, c := range p.Status.ContainerStatuses {
				out = append(out, fmt.Sprintf("%s %s, %d restarts", p.Name, c.ContainerID, c.RestartCount))
			}
		}
		return err
	})
	slices.Sort(out)
	return out
}

// leases are the addresses that are leased to pods.
func (s *single) leases() (found []string, err error) {
	err = filepath.WalkDir(s.host.Data("node", "cni"), func(path string, d fs.DirEntry, err error) error {
		if _, not := netip.ParseAddr(filepath.Base(path)); err == nil && not == nil && !d.IsDir() {
			found = append(found, filepath.Base(path))
		}
		return err
	})
	slices.Sort(found)
	return found, err
}

// pause waits for a random part of a duration, so that the fault comes at any moment.
func pause(random *rand.Rand, most time.Duration) {
	<-time.After(time.Duration(random.Int64N(int64(most))))
}

// skipUnlessLong leaves a test to `make faults`, which takes the time.
func skipUnlessLong(t *testing.T) {
	t.Helper()
	if !verdicts.Long() {
		t.Skip("CORACLE_FAULT_RECORDS is not set: `make faults` runs it")
	}
}
