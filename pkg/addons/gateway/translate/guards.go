package translate

import (
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// What ingress-nginx allows without the annotations that say it.
const (
	corsMethods = "GET, PUT, POST, DELETE, PATCH, OPTIONS"
	corsHeaders = "DNT,Keep-Alive,User-Agent,X-Requested-With,If-Modified-Since,Cache-Control,Content-Type,Range,Authorization"
	corsMaxAge  = 1728000 // seconds
)

// cors reads which other origins' pages may read answers.
func (r *reader) cors() {
	enabled := r.is("enable-cors")
	credentials := r.truth("cors-allow-credentials")
	age, aged := r.number("cors-max-age", r.refuse)
	names := func(name, otherwise string) []string {
		text, ok := r.take(name)
		if !ok {
			return list(otherwise)
		}
		out := list(text)
		if slices.ContainsFunc(out, func(s string) bool { return !token(s) }) {
			r.refuse(name, "%q has what cannot be a name", text)
			return list(otherwise)
		}
		return out
	}
	c := gateway.CORS{
		Credentials: credentials == nil || *credentials, MaxAge: corsMaxAge * time.Second,
		Methods: names("cors-allow-methods", corsMethods), Headers: names("cors-allow-headers", corsHeaders), ExposeHeaders: names("cors-expose-headers", ""),
	}
	if aged {
		c.MaxAge = time.Duration(age) * time.Second
	}
	origins, given := r.take("cors-allow-origin")
	if !given {
		origins = "*"
	}
	for _, origin := range list(origins) {
		if !regexp.MustCompile(`^([a-z]+://(\*\.)?[A-Za-z0-9.-]+(:[0-9]+)?|\*)$`).MatchString(origin) {
			r.refuse("cors-allow-origin", "%q is not an origin such as https://example.com", origin)
			continue
		}
		c.Origins = append(c.Origins, origin)
	}
	if slices.Contains(c.Origins, "*") { // browsers send no credentials then; origins that are repeated to them would change that
		c.Origins, c.Credentials = []string{"*"}, false
	}
	if enabled && len(c.Origins) > 0 {
		r.filters.CORS = &c
	}
}

// sources reads which clients are let in.
func (r *reader) sources() {
	allowed, allow := r.networks("allowlist-source-range")
	former, more := r.networks("whitelist-source-range")
	denied, deny := r.networks("denylist-source-range")
	if allow || more || deny {
		r.policy.Clients = &gateway.Clients{Allow: append(allowed, former...), Deny: denied}
	}
}

// networks reads networks and addresses. Nothing is served if one is none.
func (r *reader) networks(name string) (out []netip.Prefix, ok bool) {
	text, ok := r.take(name)
	if !ok {
		return nil, false
	}
	for _, part := range list(text) {
		network, err := Network(part)
		if err != nil {
			r.close(name, "%q is not a network such as 192.0.2.0/24", part)
			return nil, false
		}
		out = append(out, network)
	}
	if len(out) == 0 {
		r.close(name, "it has no network")
	}
	return out, true
}

// Network reads a network or an address.
func Network(text string) (netip.Prefix, error) {
	if address, err := netip.ParseAddr(text); err == nil && address.Zone() == "" {
		return netip.PrefixFrom(address.Unmap(), address.Unmap().BitLen()), nil
	}
	n, err := netip.ParsePrefix(text)
	return n.Masked(), err
}

// passwords reads who has to give a password.
func (r *reader) passwords() {
	kind, ok := r.take("auth-type")
	name, _ := r.take("auth-secret")
	form, formed := r.take("auth-secret-type")
	realm, _ := r.take("auth-realm")
	if !ok {
		return
	}
	if kind != "basic" {
		r.close("auth-type", "%q is not basic", kind)
		return
	}
	if formed && form != "auth-file" && form != "auth-map" {
		r.close("auth-secret-type", "%q is not auth-file or auth-map", form)
		return
	}
	key := SecretKey(r.i.Namespace, name)
	if key.Namespace != r.i.Namespace || !IsSecretName(key.Name) {
		r.close("auth-secret", "%q is not the name of a Secret in namespace %s", name, r.i.Namespace)
		return
	}
	hashes, err := r.t.passwords.Hashes(key, form == "auth-map")
	if err != nil {
		r.close("auth-secret", "%v", err)
		return
	}
	r.policy.Users = &gateway.BasicAuth{Realm: strings.Map(printable, realm), Hashes: hashes}
}

// SecretKey returns the key of a Secret that is given as NAME or NAMESPACE/NAME.
func SecretKey(namespace, name string) types.NamespacedName {
	if before, after, ok := strings.Cut(name, "/"); ok {
		return types.NamespacedName{Namespace: before, Name: after}
	}
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// printable drops what cannot be in the header that names a realm.
func printable(c rune) rune {
	if c < ' ' || c > '~' || c == '"' || c == '\\' {
		return -1
	}
	return c
}

// burstMultiplier is how many times a limit may come at once in ingress-nginx.
const burstMultiplier = 5

// limits reads how much a client may ask for.
func (r *reader) limits() {
	var l gateway.Limits
	multiplier, ok := r.number("limit-burst-multiplier", r.refuse)
	if !ok {
		multiplier = burstMultiplier
	}
	for _, rate := range []struct {
		name string
		per  time.Duration
	}{{"limit-rps", time.Second}, {"limit-rpm", time.Minute}} {
		if n, _ := r.number(rate.name, r.close); n > 0 {
			l.Rates = append(l.Rates, gateway.Rate{Requests: n, Per: rate.per, Burst: n * min(multiplier, maxBurst)})
		}
	}
	l.Concurrent, _ = r.number("limit-connections", r.close)
	for _, name := range []string{"limit-whitelist", "limit-allowlist"} {
		if except, ok := r.networks(name); ok {
			l.Except = append(l.Except, except...)
		}
	}
	if len(l.Rates) > 0 || l.Concurrent > 0 {
		r.policy.Limits = &l
	}
}

// maxBurst bounds the multiplier of a burst.
const maxBurst = 1000

// errorPages reads which answers another Service gives.
func (r *reader) errorPages() {
	r.fallback, _ = r.take("default-backend")
	codes, ok := r.take("custom-http-errors")
	if !ok {
		return
	}
	if r.fallback == "" {
		r.refuse("custom-http-errors", "there is no page for errors here: name the Service that has one with default-backend")
		return
	}
	pages := &gateway.ErrorPages{}
	for _, text := range list(codes) {
		var code int
		if len(text) == 3 {
			for _, digit := range text {
				code = code*10 + int(digit-'0')
			}
		}
		if code < http.StatusMultipleChoices || code > 599 {
			r.refuse("custom-http-errors", "%q is not a status from 300 to 599", text)
			continue
		}
		pages.Codes = append(pages.Codes, code)
	}
	r.policy.Errors = pages
}
