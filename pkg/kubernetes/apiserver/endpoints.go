package apiserver

import (
	"net"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/kubernetes/pkg/controlplane/reconcilers"
)

// identityRenewal is how often an API server renews its Lease apiserver-…, which lasts for an hour. Upstream renews it every ten seconds
// (pkg/controlplane/apiserver, IdentityLeaseRenewIntervalPeriod), which was half of what an idle server wrote.
const identityRenewal = 20 * time.Minute

// seldomBeat is how often the only API server of a cluster writes that it is there, and mends the endpoints of the Service kubernetes.
const seldomBeat = time.Minute

// seldom is the reconciler of the Service kubernetes for a server that may be the only one: then nobody reads upstream's sign of life, which is three
// entries in etcd's log every ten seconds, because each has a lease of its own.
type seldom struct {
	reconcilers.EndpointReconciler
	alone func() bool

	mu   sync.Mutex
	last time.Time // of a sign of life; zero for none
}

// ReconcileEndpoints implements EndpointReconciler. It is called every ten seconds.
func (s *seldom) ReconcileEndpoints(service string, ip net.IP, ports []corev1.EndpointPort, reconcilePorts bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.last.IsZero() && time.Since(s.last) < seldomBeat && s.alone() {
		return nil
	}
	err := s.EndpointReconciler.ReconcileEndpoints(service, ip, ports, reconcilePorts)
	if err == nil {
		s.last = time.Now()
	}
	return err
}

// RemoveEndpoints implements EndpointReconciler. At the end of a server that was alone the sign of life may have ended already.
func (s *seldom) RemoveEndpoints(service string, ip net.IP, ports []corev1.EndpointPort) error {
	err := s.EndpointReconciler.RemoveEndpoints(service, ip, ports)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.last.IsZero() && storage.IsNotFound(err) {
		return nil
	}
	return err
}
