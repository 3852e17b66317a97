package kubelet

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	clientset "k8s.io/client-go/kubernetes"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	restclient "k8s.io/client-go/rest"
	"k8s.io/kubernetes/cmd/kubelet/app/options"
	"k8s.io/kubernetes/pkg/kubelet"
	"k8s.io/kubernetes/pkg/kubelet/certificate"
)

// clients makes the kubelet's API clients as upstream's command does, with four differences: requests wait until the API server serves
// this node, rotation begins with the certificate that was issued before the first start, a restarted kubelet's first report of the
// Node's status waits for its CSINode, and what a new pod needs is asked for again. end gets an error if the kubelet must start again because of its certificate.
func (k Kubelet) clients(ctx context.Context, server *options.KubeletServer, deps *kubelet.Dependencies, end chan<- error) error {
	config, err := k.access()
	if err != nil {
		return err
	}
	config.ContentType = server.ContentType
	config.QPS, config.Burst = float32(server.KubeAPIQPS), int(server.KubeAPIBurst)
	config.Wrap(newCSINode().reports)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return early{next} })
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return gate{next, k.APIReady, k.UnknownKey, func() { k.forgetCertificate(end) }}
	})
	if server.RotateCertificates {
		if config, err = k.rotating(ctx, config, server); err != nil {
			return err
		}
	} else {
		k.Identity.known()
	}
	transport, err := restclient.TransportFor(config)
	if err != nil {
		return fmt.Errorf("making its transport: %w", err)
	}
	deps.OnHeartbeatFailure = func() { utilnet.CloseIdleConnectionsFor(transport) }
	if deps.KubeClient, err = clientset.NewForConfig(config); err != nil {
		return fmt.Errorf("making its client: %w", err)
	}
	events := restclient.CopyConfig(config)
	events.QPS, events.Burst = float32(server.EventRecordQPS), int(server.EventBurst)
	if server.EventRecordQPS == 0 {
		events.QPS = -1
	}
	if deps.EventClient, err = corev1.NewForConfig(events); err != nil {
		return fmt.Errorf("making its client for events: %w", err)
	}
	heartbeat := restclient.CopyConfig(config)
	heartbeat.QPS = -1
	heartbeat.Timeout = min(server.NodeStatusUpdateFrequency.Duration, time.Duration(server.NodeLeaseDurationSeconds)*time.Second)
	if deps.HeartbeatClient, err = clientset.NewForConfig(heartbeat); err != nil {
		return fmt.Errorf("making its client for heartbeats: %w", err)
	}
	return nil
}

// rotating returns a client configuration with a certificate that is requested from the cluster if there is none, and renewed or replaced while the
// kubelet runs. Clients read it, and the authorities, from their files again.
func (k Kubelet) rotating(ctx context.Context, config *restclient.Config, server *options.KubeletServer) (*restclient.Config, error) {
	first := restclient.CopyConfig(config)
	if k.BootstrapKubeconfig != "" {
		config = restclient.AnonymousClientConfig(first)
		config.WrapTransport = first.WrapTransport
		config.CertFile = filepath.Join(k.PKI, currentCert)
		config.KeyFile = config.CertFile
	}
	manager, err := certificate.NewKubeletClientCertificateManager(server.CertDirectory, types.NodeName(k.Name), nil, nil, "", "",
		func(current *tls.Certificate) (clientset.Interface, error) {
			if current == nil {
				return clientset.NewForConfig(first)
			}
			return clientset.NewForConfig(config) // its transport is set before the manager starts
		})
	if err != nil {
		return nil, fmt.Errorf("setting up the rotation of its certificate: %w", err)
	}
	certificates, ok := manager.(renewer)
	if !ok {
		return nil, errors.New("it was built without the changes of scripts/bundle/overlay: build it with scripts/build")
	}
	has := make(chan struct{})
	if manager.Current() == nil {
		issued := restclient.CopyConfig(config)
		issued.WrapTransport, config.TLSClientConfig = nil, restclient.TLSClientConfig{}
		config.Transport = lateTransport{has, sync.OnceValues(func() (http.RoundTripper, error) { return restclient.TransportFor(issued) })}
	}
	manager.Start()
	go k.followReplaced(ctx, certificates)
	go func() {
		if k.awaitCertificate(ctx, manager.Current) == nil {
			close(has)
			k.Identity.known()
		}
	}()
	return config, nil
}

// gate is a transport whose requests wait until it is open. It calls refused at answers with the reason.
type gate struct {
	next    http.RoundTripper
	open    <-chan struct{}
	reason  string
	refused func()
}

func (g gate) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-g.open:
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	answer, err := g.next.RoundTrip(r)
	if err != nil || answer.StatusCode != http.StatusUnauthorized || g.reason == "" {
		return answer, err
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, 64<<10))
	answer.Body.Close()
	if err != nil {
		return nil, err
	}
	answer.Body = io.NopCloser(bytes.NewReader(body))
	var status metav1.Status
	if json.Unmarshal(body, &status) == nil && string(status.Reason) == g.reason {
		g.refused()
	}
	return answer, nil
}

// WrappedRoundTripper returns the transport for client-go, which closes its idle connections.
func (g gate) WrappedRoundTripper() http.RoundTripper { return g.next }

// healthy returns a probe of the kubelet's health endpoint. It always succeeds if the user disabled the endpoint.
func healthy(server *options.KubeletServer) func(context.Context) error {
	if server.HealthzPort == 0 {
		return func(context.Context) error { return nil }
	}
	url := "http://" + net.JoinHostPort(server.HealthzBindAddress, strconv.Itoa(int(server.HealthzPort))) + "/healthz"
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("%s says %s", url, response.Status)
		}
		return nil
	}
}
