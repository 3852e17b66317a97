package translate

import (
	"regexp"
	"strings"
)

// needless are annotations that change how ingress-nginx works, and not what it serves.
func needless(name string) bool {
	switch name {
	case "client-body-buffer-size", "connection-proxy-header", "disable-proxy-intercept-errors", "enable-access-log", "enable-rewrite-log", "enable-opentelemetry",
		"http2-push-preload", "load-balance", "opentelemetry-operation-name", "opentelemetry-trust-incoming-span", "preserve-trailing-slash", "proxy-buffering", "proxy-buffer-size", "proxy-buffers-number",
		"proxy-busy-buffers-size", "proxy-http-version", "proxy-max-temp-file-size", "proxy-request-buffering", "relative-redirects", "service-upstream", "ssl-prefer-server-ciphers",
		"use-port-in-redirects", "proxy-ssl-server-name", "proxy-ssl-ciphers", "proxy-ssl-protocols":
		return true
	}
	return false
}

// guards are annotations without which more would be let in, and what to use in their place.
func guards(name string) (instead string, is bool) {
	switch {
	case name == "enable-global-auth":
		return "", false
	case strings.HasPrefix(name, "auth-tls"):
		return "certificates of clients are for a Gateway: spec.tls.frontend.default.validation", true
	case strings.HasPrefix(name, "auth-"):
		return "the gateway asks no other service who may enter: put one such as oauth2-proxy in front of the backend, as the Ingress's Service", true
	case strings.HasPrefix(name, "proxy-ssl-"):
		return "backends' certificates are for a BackendTLSPolicy, with an HTTPRoute", true
	case strings.Contains(name, "modsecurity"), strings.Contains(name, "owasp"):
		return "there is no ModSecurity here: put a firewall for applications in front of the backend", true
	case strings.HasPrefix(name, "global-rate-limit"):
		return "use limit-rps or limit-rpm, which each server counts for itself", true
	case name == "ssl-ciphers":
		return "the ciphers are those that Go considers secure", true
	}
	return "", false
}

// instead says what to use in the place of other annotations.
func instead(name string) string {
	switch name {
	case "mirror-target", "mirror-request-body", "mirror-host":
		return "use the filter RequestMirror of an HTTPRoute"
	case "limit-rate", "limit-rate-after":
		return "the speed of answers cannot be limited; limit-rps and limit-connections limit requests"
	case "custom-headers":
		return "use the filter ResponseHeaderModifier of an HTTPRoute"
	case "fastcgi-index", "fastcgi-params-configmap":
		return "the gateway does not speak FastCGI: put a web server in front of the program, in its pod"
	case "satisfy":
		return "a client needs both the address and the password"
	case "proxy-redirect-from", "proxy-redirect-to", "proxy-cookie-domain", "proxy-cookie-path":
		return "the backend has to write these for the host that clients see"
	}
	return "it is not one of those that the gateway knows: docs/from-ingress-nginx.md lists them"
}

// unknown tells people what to use in the place of an annotation that nobody has taken.
func (r *reader) unknown(name, value string) {
	delete(r.values, name)
	switch text, guard := guards(name); {
	case needless(name):
	case name == "satisfy" && value == "all":
	case strings.HasSuffix(name, "-snippet"):
		const use = "snippets of nginx's configuration are not read: use other annotations, a RoutePolicy, or filters of an HTTPRoute"
		if harmless(value) {
			r.refuse(name, use)
		} else {
			r.close(name, use)
		}
	case name == "proxy-ssl-verify" && value == "off", strings.HasPrefix(name, "enable-") && value == "false":
	case guard:
		r.close(name, "%s", text)
	default:
		r.refuse(name, "%s", instead(name))
	}
}

// harmless reports whether a snippet has only directives without which nobody is let in and nothing is shown: those that add headers to answers,
// of compression and of logs.
func harmless(snippet string) bool {
	directive := regexp.MustCompile(`^(more_set_headers|add_header|expires|gunzip|gzip\w*|access_log|error_log|etag|charset)\s[^{}]*$`)
	comments := regexp.MustCompile(`(?m)^\s*#.*$`)
	for one := range strings.SplitSeq(comments.ReplaceAllString(snippet, ""), ";") {
		if one = strings.TrimSpace(one); one != "" && !directive.MatchString(one) {
			return false
		}
	}
	return true
}
