package faults

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/coracle-dev/coracle/test/hosts"
)

// renewals tell of each node when its Lease was renewed last, by its own clock. What cannot be read is missing.
func (x *timed) renewals() map[string]string {
	found := map[string]string{}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	leases, err := x.direct[x.Servers[0].Name].CoordinationV1().Leases(corev1.NamespaceNodeLease).List(ctx, metav1.ListOptions{})
	if err != nil {
		return found
	}
	for _, l := range leases.Items {
		found[l.Name] = l.Spec.RenewTime.String()
	}
	return found
}

// pods are the pods of the cluster that must run, by UID.
func (x *timed) pods(ctx context.Context) (map[string]corev1.Pod, error) {
	list, err := x.direct[x.Servers[0].Name].CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	all := map[string]corev1.Pod{}
	for _, p := range list.Items {
		if p.DeletionTimestamp == nil {
			all[string(p.UID)] = p
		}
	}
	return all, nil
}

// podsRun returns an error unless a pod is ready on each node that is none of the former ones.
func (x *timed) podsRun(former map[string]corev1.Pod) error {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	all, err := x.pods(ctx)
	if err != nil {
		return err
	}
	on := map[string]bool{}
	for uid, p := range all {
		_, old := former[uid]
		on[p.Spec.NodeName] = !old && len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].Ready
	}
	for _, h := range x.Hosts() {
		if !on[h.Name] {
			return fmt.Errorf("no pod is ready on %s", h.Name)
		}
	}
	return nil
}

// well waits until each kubelet has been heard of since before, the tokens of all pods are valid, programs can be run in them, and containers
// and pods that end are replaced.
func (x *timed) well(before map[string]string) {
	x.t.Helper()
	x.await("all kubelets are heard of", func() error {
		now := x.renewals()
		for _, h := range x.Hosts() {
			if now[h.Name] == "" || now[h.Name] == before[h.Name] {
				return fmt.Errorf("the kubelet of %s has not been heard of", h.Name)
			}
		}
		return x.podsRun(nil)
	})
	ctx := x.t.Context()
	former, err := x.pods(ctx)
	if err != nil {
		x.t.Fatal(err)
	}
	for _, h := range x.Hosts() {
		x.await("the pods' tokens on "+h.Name+" are valid", func() error { return x.tokens(ctx, h) })
	}
	for _, p := range former {
		x.await("the container on "+p.Spec.NodeName+" was ended", func() error { return x.endContainer(p) })
	}
	x.await("containers that have ended were started again", func() error { return x.restarted(former) })
	if err := x.direct[x.Servers[0].Name].CoreV1().Pods("default").DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		x.t.Fatal(err)
	}
	x.await("pods are replaced", func() error { return x.podsRun(former) })
}

// endContainer ends the container of a pod.
func (x *timed) endContainer(p corev1.Pod) error {
	_, err := x.Servers[0].TryCoracle("kubectl", "exec", p.Name, "--", "kill", "1")
	return err
}

// restarted returns an error unless the containers of all pods were started again since the pods were listed.
func (x *timed) restarted(former map[string]corev1.Pod) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	now, err := x.pods(ctx)
	for uid, p := range former {
		is := now[uid].Status.ContainerStatuses
		if err == nil && (len(is) == 0 || is[0].RestartCount == p.Status.ContainerStatuses[0].RestartCount || !is[0].Ready) {
			err = fmt.Errorf("the container on %s was not started again", p.Spec.NodeName)
		}
	}
	return err
}

// tokens returns an error unless the API accepts the tokens of all pods on a host.
func (x *timed) tokens(ctx context.Context, h *hosts.Host) error {
	files, err := filepath.Glob(h.Path("/var/lib/kubelet/pods/*/volumes/kubernetes.io~projected/*/token"))
	if err == nil && len(files) == 0 {
		err = errors.New("there are no tokens")
	}
	for _, file := range files {
		token, e := os.ReadFile(file)
		if e == nil {
			if e = x.accepted(ctx, string(token)); e != nil {
				_, claims, _ := strings.Cut(string(token), ".")
				claims, _, _ = strings.Cut(claims, ".")
				text, _ := base64.RawURLEncoding.DecodeString(claims)
				e = fmt.Errorf("%w: at %d, of a token that says %s", e, time.Now().Unix(), text)
			}
		}
		err = errors.Join(err, e)
	}
	return err
}

// accepted returns an error unless the API knows whose a token is.
func (x *timed) accepted(ctx context.Context, token string) error {
	config, err := x.Config(x.Servers[0], hosts.OwnAPI)
	if err != nil {
		return err
	}
	config = rest.AnonymousClientConfig(config)
	config.BearerToken = token
	client, err := kubernetes.NewForConfig(config)
	if err == nil {
		_, err = client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	}
	return err
}
