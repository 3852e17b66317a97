package gateway

import (
	"maps"
	"slices"
)

// Share is what a server gives the gateway of an agent.
type Share struct {
	// Version is coracle's, of the server. Another version may read the rest in another way, and serve what this one refuses.
	Version   string    `json:"version"`
	Config    Config    `json:"config"`
	Endpoints Endpoints `json:"endpoints"`
}

// WithoutAddresses returns what of a configuration is served at the node's own addresses: without listeners that have addresses of theirs, which servers
// announce, without what only those serve, and without the certificates and keys that nothing else uses.
func WithoutAddresses(c Config, all Endpoints) (Config, Endpoints) {
	listeners, sources, keys := map[string]bool{}, map[string]bool{}, map[string]bool{}
	c.Listeners = slices.DeleteFunc(slices.Clone(c.Listeners), func(l Listener) bool { return len(l.Addresses) > 0 })
	for _, l := range c.Listeners {
		listeners[l.Name] = true
		for _, of := range l.Certificates {
			for _, source := range of {
				sources[source] = true
			}
		}
	}
	served := func(names []string) []string {
		return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !listeners[name] })
	}
	use := func(b Backend) {
		keys[b.Endpoints] = true
		if b.TLS != nil {
			sources[b.TLS.Certificate] = true
		}
	}
	policies := map[string]Policy{}
	routes, streams := c.Routes, c.Streams
	c.Routes, c.Streams = nil, nil
	for _, r := range routes {
		if r.Listeners = served(r.Listeners); len(r.Listeners) == 0 {
			continue
		}
		c.Routes = append(c.Routes, r)
		for _, b := range r.Backends {
			use(b)
		}
		for _, m := range r.Mirrors {
			use(m.Backend)
		}
		if p, ok := c.Policies[r.Policy]; ok {
			policies[r.Policy] = p
		}
	}
	for _, s := range streams {
		if s.Listeners = served(s.Listeners); len(s.Listeners) > 0 {
			c.Streams = append(c.Streams, s)
			for _, b := range s.Backends {
				use(b)
			}
		}
	}
	for _, p := range policies {
		if p.Errors != nil {
			use(p.Errors.Backend)
		}
	}
	c.Policies = policies
	c.Certificates = slices.DeleteFunc(slices.Clone(c.Certificates), func(one Certificate) bool { return !sources[one.Source] })
	endpoints := maps.Clone(all)
	maps.DeleteFunc(endpoints, func(key string, _ []string) bool { return !keys[key] })
	return c, endpoints
}
