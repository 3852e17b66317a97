package apiserver

import (
	"context"
	"fmt"
	"net/http"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	genericserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/kubernetes"
)

// Guard checks the requests of nodes.
type Guard interface {
	// Run works until ctx is done, with a client that has all rights.
	Run(ctx context.Context, client kubernetes.Interface)
	// Handler is called before authentication.
	Handler(next http.Handler) http.Handler
	Authenticator(next authenticator.Request) authenticator.Request
}

// addGuard makes the guard part of a server, the outermost of the chain: the handlers of the others are not called.
func addGuard(g Guard, generic *genericserver.Config) {
	if g == nil {
		return
	}
	generic.Authentication.Authenticator = g.Authenticator(generic.Authentication.Authenticator)
	build := generic.BuildHandlerChainFunc
	generic.BuildHandlerChainFunc = func(handler http.Handler, c *genericserver.Config) http.Handler { return g.Handler(build(handler, c)) }
}

// runGuard starts the guard with the server.
func runGuard(g Guard, server *genericserver.GenericAPIServer) error {
	if g == nil {
		return nil
	}
	return server.AddPostStartHook("coracle-node-guard", func(hook genericserver.PostStartHookContext) error {
		client, err := kubernetes.NewForConfig(hook.LoopbackClientConfig)
		if err != nil {
			return fmt.Errorf("making the client of the node guard: %w", err)
		}
		go g.Run(hook, client)
		return nil
	})
}
