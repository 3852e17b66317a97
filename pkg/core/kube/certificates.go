package kube

import (
	"time"

	"k8s.io/client-go/transport"
)

// refresh is how often clients look whether their certificate was replaced. When a former authority is dropped, connections that use its certificates
// are refused; upstream's five minutes would be long then.
const refresh = 30 * time.Second

// ReloadCertificates makes this process' clients of the API notice soon enough that their certificate was renewed, which happens when a third of its life
// is left, or replaced. It is called before there are clients. life is how long certificates are valid, 0 for the default.
func ReloadCertificates(life time.Duration) {
	every := refresh
	if life > 0 {
		every = min(every, life/12)
	}
	transport.CertCallbackRefreshDuration = min(transport.CertCallbackRefreshDuration, every)
}
