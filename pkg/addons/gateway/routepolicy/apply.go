package routepolicy

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-dev/coracle/pkg/addons/gateway/translate"
	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// The reasons of the condition Accepted, as the Gateway API has them (PolicyReasonAccepted and others).
const (
	accepted       = "Accepted"
	invalid        = "Invalid"
	conflicted     = "Conflicted"
	targetNotFound = "TargetNotFound"
)

// Secrets returns the Secrets with passwords that policies name.
func Secrets(policies []*RoutePolicy) map[types.NamespacedName]bool {
	out := map[types.NamespacedName]bool{}
	for _, p := range policies {
		if p.Spec.BasicAuth != nil && translate.IsSecretName(p.Spec.BasicAuth.SecretRef.Name) {
			out[types.NamespacedName{Namespace: p.Namespace, Name: p.Spec.BasicAuth.SecretRef.Name}] = true
		}
	}
	return out
}

// Apply gives the routes and streams of a configuration their policies, and returns the status of each policy, without the times of its conditions, in the
// order of the policies' age.
func Apply(config *gateway.Config, policies []*RoutePolicy, secrets translate.Passwords) (sorted []*RoutePolicy, statuses []Status) {
	sorted = slices.Clone(policies)
	slices.SortFunc(sorted, translate.Older)
	routes := map[string][]*gateway.Route{}
	for i := range config.Routes {
		r := &config.Routes[i]
		routes[r.Source] = append(routes[r.Source], r)
	}
	streams := map[string][]*gateway.Stream{}
	for i := range config.Streams {
		s := &config.Streams[i]
		streams[s.Source] = append(streams[s.Source], s)
	}
	holders := map[string]*RoutePolicy{}
	for _, p := range sorted {
		compiled, err := compile(p, secrets)
		var status Status
		for _, ref := range p.Spec.TargetRefs {
			source := ref.Kind + " " + p.Namespace + "/" + ref.Name
			reason, message := accepted, ""
			switch holder := holders[source]; {
			case holder == p: // named twice
				continue
			case holder != nil:
				reason, message = conflicted, fmt.Sprintf("%s has the older RoutePolicy %s already", source, holder.Name)
			case err != nil:
				reason, message = invalid, fmt.Sprintf("%s: until it is right, %s is answered with status 503", strings.ReplaceAll(err.Error(), "\n", "; "), source)
				closeAll(routes[source])
				for _, stream := range streams[source] {
					stream.Backends = nil
				}
			case len(routes[source]) == 0:
				reason, message = targetNotFound, "the gateway serves nothing of "+source
			default:
				name := Kind + " " + p.Namespace + "/" + p.Name
				for _, r := range routes[source] {
					join(config, r, name, compiled)
				}
				for _, stream := range streams[source] {
					stream.Clients = first(compiled.Clients, stream.Clients)
					if stream.Close(compiled) {
						message = "TLS of " + strings.Join(stream.Hosts, ", ") + " goes to the backend as it is, where no passwords or limits hold: connections are closed"
					}
				}
			}
			if reason != conflicted {
				holders[source] = p
			}
			state := metav1.ConditionTrue
			if reason != accepted {
				state = metav1.ConditionFalse
			}
			status.Ancestors = append(status.Ancestors, Ancestor{
				AncestorRef: AncestorRef{TargetRef: ref, Namespace: p.Namespace}, ControllerName: translate.Controller,
				Conditions: []metav1.Condition{{Type: accepted, Status: state, Reason: reason, Message: message, ObservedGeneration: p.Generation}},
			})
		}
		statuses = append(statuses, status)
	}
	return sorted, statuses
}

// closeAll has routes answered with 503.
func closeAll(routes []*gateway.Route) {
	for _, r := range routes {
		r.Backends, r.Filters, r.Policy, r.Unserved = nil, gateway.Filters{}, "", http.StatusServiceUnavailable
	}
}

// join gives a route a policy. What its Ingress's annotations ask for stays in force where the policy says nothing.
func join(config *gateway.Config, r *gateway.Route, name string, p gateway.Policy) {
	if config.Policies == nil {
		config.Policies = map[string]gateway.Policy{}
	}
	if r.Policy != "" {
		of := config.Policies[r.Policy]
		name += " with those of " + r.Policy
		p.Redirect, p.Errors = of.Redirect, of.Errors
		p.Clients, p.Users, p.Limits = first(p.Clients, of.Clients), first(p.Users, of.Users), first(p.Limits, of.Limits)
		p.Affinity, p.MaxBody, p.Stall = first(p.Affinity, of.Affinity), cmp.Or(p.MaxBody, of.MaxBody), cmp.Or(p.Stall, of.Stall)
	}
	r.Policy = name
	config.Policies[name] = p
}

func first[T any](a, b *T) *T {
	if a != nil {
		return a
	}
	return b
}

// compile reads what a policy asks for.
func compile(p *RoutePolicy, secrets translate.Passwords) (out gateway.Policy, err error) {
	if p.Unreadable != "" {
		return out, fmt.Errorf("the policy cannot be read: %s", p.Unreadable)
	}
	var errs []error
	networks := func(texts []string) (list []netip.Prefix) {
		for _, text := range texts {
			n, err := translate.Network(text)
			if err != nil {
				errs = append(errs, fmt.Errorf("%q is not a network such as 192.0.2.0/24", text))
			}
			list = append(list, n)
		}
		return list
	}
	if c := p.Spec.Clients; c != nil {
		out.Clients = &gateway.Clients{Allow: networks(c.Allow), Deny: networks(c.Deny)}
	}
	if a := p.Spec.BasicAuth; a != nil {
		key := types.NamespacedName{Namespace: p.Namespace, Name: a.SecretRef.Name}
		if hashes, err := secrets.Hashes(key, false); err != nil {
			errs = append(errs, err)
		} else {
			out.Users = &gateway.BasicAuth{Realm: a.Realm, Hashes: hashes}
		}
	}
	if l := p.Spec.RateLimit; l != nil {
		out.Limits = &gateway.Limits{Concurrent: l.Concurrent, Except: networks(l.Except)}
		for _, rate := range l.Rates {
			per := map[string]time.Duration{"Second": time.Second, "Minute": time.Minute, "Hour": time.Hour}[rate.Per]
			if per == 0 || rate.Requests <= 0 {
				errs = append(errs, fmt.Errorf("%d requests per %q is not a rate", rate.Requests, rate.Per))
			}
			out.Limits.Rates = append(out.Limits.Rates, gateway.Rate{Requests: rate.Requests, Per: per, Burst: rate.Burst})
		}
	}
	if size := p.Spec.MaxBodySize; size != nil {
		if out.MaxBody = size.Value(); size.Sign() <= 0 || size.CmpInt64(math.MaxInt64) > 0 {
			errs = append(errs, fmt.Errorf("%q is not a size such as 8Mi", size))
		}
	}
	duration := func(text string) time.Duration {
		d, err := time.ParseDuration(cmp.Or(text, "0s"))
		if err != nil {
			errs = append(errs, fmt.Errorf("%q is not a duration such as 30s", text))
		}
		return d
	}
	out.Stall = duration(p.Spec.StallTimeout)
	if s := p.Spec.SessionAffinity; s != nil {
		c := s.Cookie
		out.Affinity = &gateway.Affinity{Cookie: &gateway.Cookie{
			Name: c.Name, Path: cmp.Or(c.Path, "/"), MaxAge: duration(c.MaxAge), SameSite: c.SameSite, Secure: c.Secure,
		}}
	}
	return out, errors.Join(errs...)
}
