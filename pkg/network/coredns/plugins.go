package coredns

import (
	"fmt"
	"net/http"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin"

	// A plugin registers itself on import, and only what is imported here can be used in a Corefile.
	_ "github.com/coredns/coredns/plugin/acl"
	_ "github.com/coredns/coredns/plugin/any"
	_ "github.com/coredns/coredns/plugin/autopath"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/bufsize"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/cancel"
	_ "github.com/coredns/coredns/plugin/dns64"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/file"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/header"
	_ "github.com/coredns/coredns/plugin/hosts"
	_ "github.com/coredns/coredns/plugin/k8s_external"
	_ "github.com/coredns/coredns/plugin/loadbalance"
	_ "github.com/coredns/coredns/plugin/local"
	_ "github.com/coredns/coredns/plugin/log"
	_ "github.com/coredns/coredns/plugin/metadata"
	_ "github.com/coredns/coredns/plugin/metrics"
	_ "github.com/coredns/coredns/plugin/minimal"
	_ "github.com/coredns/coredns/plugin/nsid"
	_ "github.com/coredns/coredns/plugin/rewrite"
	_ "github.com/coredns/coredns/plugin/template"
	_ "github.com/coredns/coredns/plugin/timeouts"
)

// Directives of coracle. render writes them in the place of upstream's.
const (
	kubernetesDirective = "coracle_kubernetes"  // kubernetes with a client that reaches the API through the parent
	forwardDirective    = "coracle_forward"     // forward with a limit
	noUpstreamDirective = "coracle_no_upstream" // forward without any upstream
)

// directives are what a Corefile may say, in the order in which a query passes them: upstream's order. "kubernetes"
// is in the list so that plugins that look for it find it. "forward" is not: no Corefile gets around the limit.
var directives = []string{
	"metadata", "cancel", "timeouts", "reload", "nsid", "bufsize", "bind", "ready", "health", "prometheus", "errors",
	"log", "local", "dns64", "any", "loadbalance", "rewrite", "autopath", "acl", "cache", "header", "minimal",
	"template", "hosts", "k8s_external", kubernetesDirective, "kubernetes", "file", "loop", noUpstreamDirective, forwardDirective,
}

// own are the directives that this package implements, besides those that need something.
var own = map[string]caddy.SetupFunc{
	noUpstreamDirective: setupNoUpstream,
	"loop":              setupLoop, // upstream's plugin ends the process when it finds a loop
	// Corefiles written for CoreDNS in a pod have these. coracle reloads on events, and probes with queries.
	"reload": ignore,
	"health": ignore,
	"ready":  ignore,
}

// register registers the directives in CoreDNS' process-wide registry. Further calls do nothing. api leads to the API server.
func register(api http.RoundTripper) error {
	if _, err := caddy.DirectiveAction(serverType, kubernetesDirective); err == nil {
		return nil
	}
	dnsserver.Quiet = true // it would print to stdout
	for name, setup := range own {
		plugin.Register(name, setup)
	}
	plugin.Register(kubernetesDirective, setupKubernetes(api))
	forward, err := caddy.DirectiveAction(serverType, "forward")
	if err != nil {
		return fmt.Errorf("choosing CoreDNS plugins: %w", err)
	}
	plugin.Register(forwardDirective, limitForward(forward, &forwarded{free: maxForwarded}))
	if err := dnsserver.SetDirectives(directives); err != nil {
		return fmt.Errorf("choosing CoreDNS plugins: %w", err)
	}
	return nil
}

// ignore accepts a directive with any arguments, and does nothing.
func ignore(*caddy.Controller) error { return nil }
