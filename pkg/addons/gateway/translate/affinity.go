package translate

import (
	"regexp"
	"strings"
	"time"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// affinity reads which requests go to the same endpoint.
func (r *reader) affinity() {
	kind, _ := r.take("affinity")
	mode, _ := r.take("affinity-mode")
	sticky, _ := r.take("affinity-canary-behavior")
	if kind != "" && kind != "cookie" {
		r.refuse("affinity", "%q is not cookie", kind)
	}
	if mode != "" && mode != "balanced" && mode != "persistent" {
		r.refuse("affinity-mode", "%q is not balanced or persistent", mode)
	}
	if sticky != "" && sticky != "sticky" {
		r.refuse("affinity-canary-behavior", "clients stay with the canary, or without it")
	}
	c := gateway.Cookie{Name: "INGRESSCOOKIE", Path: "/"}
	if name, ok := r.take("session-cookie-name"); ok {
		if token(name) {
			c.Name = name
		} else {
			r.refuse("session-cookie-name", "%q cannot be the name of a cookie", name)
		}
	}
	attribute := func(name string, to *string, like string) {
		value, ok := r.take(name)
		if ok && !regexp.MustCompile(like).MatchString(value) {
			r.refuse(name, "%q cannot be in a cookie", value)
		} else if ok {
			*to = value
		}
	}
	attribute("session-cookie-path", &c.Path, `^/[!#-+\--:<-~]*$`)
	attribute("session-cookie-domain", &c.Domain, `^[A-Za-z0-9.-]+$`)
	attribute("session-cookie-samesite", &c.SameSite, `^(?i:strict|lax|none)$`)
	c.Secure = r.is("session-cookie-secure")
	for _, name := range []string{"session-cookie-expires", "session-cookie-max-age"} {
		if seconds, ok := r.number(name, r.refuse); ok {
			c.MaxAge = time.Duration(seconds) * time.Second
		}
	}
	for _, name := range []string{"session-cookie-change-on-failure", "session-cookie-conditional-samesite-none"} {
		delete(r.values, name) // the cookie says no endpoint; and old browsers that refuse None are gone
	}
	by, hashed := r.take("upstream-hash-by")
	if r.is("upstream-hash-by-subset") {
		r.refuse("upstream-hash-by-subset", "requests are spread over single endpoints")
	}
	delete(r.values, "upstream-hash-by-subset-size")
	if hashed {
		if err := gateway.CheckVariables(by); err != nil {
			r.refuse("upstream-hash-by", "%v", err)
			hashed = false
		}
	}
	switch {
	case kind == "cookie":
		r.policy.Affinity = &gateway.Affinity{Cookie: &c}
	case hashed:
		r.policy.Affinity = &gateway.Affinity{By: by}
	}
}

// canary is an Ingress that takes some of the requests of another one.
type canary struct {
	header, value, pattern, cookie string
	weight, total                  int
}

// canaries reads what a canary takes.
func (r *reader) canaries() {
	if !r.is("canary") {
		for name := range r.values {
			if strings.HasPrefix(name, "canary-") {
				delete(r.values, name)
			}
		}
		return
	}
	c := &canary{total: 100}
	r.canary = c
	name := func(of string) string {
		text, ok := r.take(of)
		if ok && !token(text) {
			r.refuse(of, "%q is not a name", text)
			return ""
		}
		return text
	}
	c.header, c.cookie = name("canary-by-header"), name("canary-by-cookie")
	c.value, _ = r.take("canary-by-header-value")
	c.pattern, _ = r.take("canary-by-header-pattern")
	if err := r.t.check(r.i, "header "+c.header, c.pattern, somewhere(c.pattern)); err != nil {
		r.refuse("canary-by-header-pattern", "%v", err)
		c.header = "" // or every request with the header would be the canary's
	}
	if total, ok := r.number("canary-weight-total", r.refuse); ok && total > 0 {
		c.total = total
	}
	weight, _ := r.number("canary-weight", r.refuse)
	c.weight = min(weight, c.total)
}

// somewhere returns the expression for texts of which a part matches.
func somewhere(pattern string) string { return `(?s:.*)(?:` + pattern + `)(?s:.*)` }
