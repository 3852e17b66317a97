package kubelet

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	clientset "k8s.io/client-go/kubernetes"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	restclient "k8s.io/client-go/rest"
	clientcert "k8s.io/client-go/util/certificate"
	"k8s.io/klog/v2"
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
		if config, err = k.rotating(ctx, config, server, end); err != nil {
			return err
		}
	} else {
		k.Identity.known()
	}
	deps.OnHeartbeatFailure = func() { utilnet.CloseIdleConnectionsFor(config.Transport) }
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

// rotating returns a client configuration with a certificate that is requested from the cluster if there is none, and renewed while the
// kubelet runs.
func (k Kubelet) rotating(ctx context.Context, config *restclient.Config, server *options.KubeletServer, end chan<- error) (*restclient.Config, error) {
	first, own := restclient.CopyConfig(config), config
	if k.BootstrapKubeconfig != "" { // the only files are those of the certificate manager
		own = restclient.AnonymousClientConfig(config)
		own.WrapTransport, own.ContentType = config.WrapTransport, config.ContentType
	}
	config = restclient.AnonymousClientConfig(config)
	config.WrapTransport = first.WrapTransport
	manager, err := certificate.NewKubeletClientCertificateManager(server.CertDirectory, types.NodeName(k.Name),
		nil, nil, own.CertFile, own.KeyFile,
		func(current *tls.Certificate) (clientset.Interface, error) {
			if current == nil || k.BootstrapKubeconfig == "" {
				return clientset.NewForConfig(first)
			}
			return clientset.NewForConfig(config) // its transport is set before the manager starts
		})
	if err != nil {
		return nil, wrapRotation(err)
	}
	has := make(chan struct{})
	if config, err = k.transport(ctx, config, manager, has); err != nil {
		return nil, err
	}
	manager.Start()
	go func() {
		if k.awaitCertificate(ctx, manager.Current) == nil {
			close(has)
			k.Identity.known()
			k.awaitReplaced(ctx, manager.Current, end)
		}
	}()
	return config, nil
}

// transport adds a transport that uses the manager's present certificate. has is closed when there is a certificate.
func (k Kubelet) transport(ctx context.Context, config *restclient.Config, manager clientcert.Manager, has <-chan struct{}) (*restclient.Config, error) {
	// If the certificate stays invalid for this long the process ends, because a restart may help.
	const exitDelay = 5 * time.Minute
	if manager.Current() != nil {
		_, err := certificate.UpdateTransport(klog.FromContext(ctx), wait.NeverStop, config, manager, exitDelay)
		return config, wrapRotation(err)
	}
	rotated := restclient.CopyConfig(config)
	config.TLSClientConfig = restclient.TLSClientConfig{}
	config.Transport = lateTransport{has, sync.OnceValues(func() (http.RoundTripper, error) {
		_, err := certificate.UpdateTransport(klog.FromContext(ctx), wait.NeverStop, rotated, manager, exitDelay)
		return rotated.Transport, wrapRotation(err)
	})}
	return config, nil
}

func wrapRotation(err error) error {
	if err != nil {
		return fmt.Errorf("setting up the rotation of its certificate: %w", err)
	}
	return nil
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
