package kube

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/connrotation"
)

// What runs on one server at a time must write nothing after this server has lost the lead: another one leads soon.

// errFenced is the error of a request after the end of the component that sends it.
var errFenced = errors.New("not sent: the component has been stopped")

// Fence makes the clients of config send nothing once ctx is done. It is for code that ends its requests with ctx.
func Fence(ctx context.Context, config *rest.Config) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return fencedTransport{next, ctx} })
}

// FenceConnections gives the clients of config connections of their own, which are closed with all requests on them once ctx is done. No
// others can be opened then. It is for upstream's code, which sends some requests with other contexts, and makes clients from parts of
// config only: its wrappers of the transport are dropped, and a dial function would give each client a connection of its own. So this
// changes the transports that client-go shares between clients with the same TLS settings.
func FenceConnections(ctx context.Context, config *rest.Config) error {
	if config.CAFile != "" && len(config.CAData) == 0 {
		ca, err := os.ReadFile(config.CAFile)
		if err != nil {
			return fmt.Errorf("reading the cluster's CA: %w", err)
		}
		config.CAData = ca
	}
	config.CAData = slices.Concat(config.CAData, []byte("\n# "+rand.Text()+"\n")) // shared with no other client
	tracker := connrotation.NewConnectionTracker()
	var shared []http.RoundTripper
	for _, c := range []*rest.Config{config, rest.AnonymousClientConfig(config)} {
		transport, err := rest.TransportFor(c)
		if err != nil {
			return err
		}
		shared = append(shared, transport)
		for wrapped := true; wrapped; {
			var w utilnet.RoundTripperWrapper
			if w, wrapped = transport.(utilnet.RoundTripperWrapper); wrapped {
				transport = w.WrappedRoundTripper()
			}
		}
		own, ok := transport.(*http.Transport)
		if !ok || own == http.DefaultTransport {
			return fmt.Errorf("a client without connections of its own, but %T", transport)
		}
		dialer := connrotation.NewDialerWithTracker(own.DialContext, tracker) // client-go's own function, which closes connections when the certificate is renewed
		own.DialContext = func(dialing context.Context, network, address string) (net.Conn, error) {
			if ctx.Err() != nil {
				return nil, errFenced
			}
			conn, err := dialer.DialContext(dialing, network, address)
			if err == nil && ctx.Err() != nil {
				conn.Close()
				return nil, errFenced
			}
			return conn, err
		}
	}
	context.AfterFunc(ctx, func() {
		tracker.CloseAll()
		clear(shared) // which client-go forgets when nobody uses them
	})
	return nil
}

// FencedClient is Client with Fence.
func FencedClient(ctx context.Context, kubeconfig string) (*kubernetes.Clientset, error) {
	return client(kubeconfig, func(config *rest.Config) { Fence(ctx, config) })
}

// Client returns a typed client for a kubeconfig file that talks protobuf.
func Client(kubeconfig string) (*kubernetes.Clientset, error) {
	return client(kubeconfig, func(*rest.Config) {})
}

func client(kubeconfig string, change func(*rest.Config)) (*kubernetes.Clientset, error) {
	config, err := Config(kubeconfig)
	if err != nil {
		return nil, err
	}
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	change(config)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client from %s: %w", kubeconfig, err)
	}
	return client, nil
}

// Config reads a kubeconfig file for a client that talks JSON, as those of objects that are defined by CustomResourceDefinitions have to.
func Config(kubeconfig string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", kubeconfig, err)
	}
	config.UserAgent = "coracle"
	config.QPS = -1 // coracle sends few requests, and the API server limits each client itself
	return config, nil
}

type fencedTransport struct {
	http.RoundTripper
	ctx context.Context
}

// RoundTrip implements http.RoundTripper.
func (f fencedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if f.ctx.Err() != nil {
		return nil, errFenced
	}
	return f.RoundTripper.RoundTrip(req)
}

// WrappedRoundTripper lets client-go find the connection below.
func (f fencedTransport) WrappedRoundTripper() http.RoundTripper { return f.RoundTripper }
