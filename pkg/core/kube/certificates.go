package kube

import (
	"time"

	"k8s.io/client-go/transport"
)

// ReloadCertificates makes this process' clients of the API notice soon enough that their certificate was renewed, which happens when a third of its life
// is left. It is called before there are clients. 0 leaves upstream's interval of five minutes, as do lives from an hour on.
func ReloadCertificates(life time.Duration) {
	if life > 0 {
		transport.CertCallbackRefreshDuration = min(transport.CertCallbackRefreshDuration, life/12)
	}
}
