package apiserver

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/kubernetes/pkg/controlplane/reconcilers"
)

// beats counts the signs of life of an API server.
type beats struct {
	reconcilers.EndpointReconciler
	n int
}

func (b *beats) ReconcileEndpoints(string, net.IP, []corev1.EndpointPort, bool) error {
	b.n++
	return nil
}

func (*beats) RemoveEndpoints(string, net.IP, []corev1.EndpointPort) error {
	return storage.NewKeyNotFoundError("/masterleases/192.0.2.1", 0)
}

// TestSeldom: a server that is alone gives a sign of life once a minute, and every ten seconds from the moment on when it is not alone.
func TestSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, alone := &beats{}, true
		s := &seldom{EndpointReconciler: b, alone: func() bool { return alone }}
		if err := s.RemoveEndpoints("kubernetes", nil, nil); !storage.IsNotFound(err) {
			t.Errorf("at the start: %v", err)
		}
		run := func(d time.Duration) {
			for range d / (10 * time.Second) {
				if err := s.ReconcileEndpoints("kubernetes", nil, nil, false); err != nil {
					t.Error(err)
				}
				time.Sleep(10 * time.Second)
			}
		}
		if run(5 * time.Minute); b.n != 5 {
			t.Errorf("%d in five minutes alone", b.n)
		}
		alone = false
		if run(time.Minute); b.n != 11 {
			t.Errorf("%d in the minute after another server came", b.n-5)
		}
		if err := s.RemoveEndpoints("kubernetes", nil, nil); err != nil {
			t.Errorf("at the end: %v", err)
		}
	})
}
