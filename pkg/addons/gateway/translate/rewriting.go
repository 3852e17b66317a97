package translate

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// rewriting reads how backends see requests.
func (r *reader) rewriting() {
	r.expressions = r.is("use-regex")
	prefix, prefixed := r.take("x-forwarded-prefix")
	if target, ok := r.take("rewrite-target"); ok {
		r.expressions = true
		path, err := groups(target)
		if err != nil {
			r.close("rewrite-target", "%v", err)
		}
		r.path = path
		if prefixed && plain(prefix) {
			r.filters.RequestHeaders = &gateway.Headers{Set: []gateway.Header{{Name: "X-Forwarded-Prefix", Value: prefix}}}
		} else if prefixed {
			r.refuse("x-forwarded-prefix", "%q is not a path", prefix)
		}
	}
	if host, ok := r.take("upstream-vhost"); ok {
		if len(validation.IsDNS1123Subdomain(strings.ToLower(host))) > 0 {
			r.refuse("upstream-vhost", "%q is not the name of a host", host)
		} else {
			r.filters.Rewrite = &gateway.Rewrite{Host: host}
		}
	}
	if root, ok := r.take("app-root"); ok {
		if u, err := url.ParseRequestURI(root); err != nil || u.IsAbs() || !strings.HasPrefix(root, "/") || !plain(root) {
			r.refuse("app-root", "%q is not an absolute path", root)
		} else {
			r.appRoot = root
		}
	}
	if name, ok := r.take("backend-protocol"); ok {
		protocols := map[string]gateway.BackendProtocol{
			"HTTP": gateway.ToHTTP, "AUTO_HTTP": gateway.ToHTTP, "HTTPS": gateway.ToHTTPS, "GRPC": gateway.ToH2C, "GRPCS": gateway.ToHTTPS,
		}
		if protocol, known := protocols[strings.ToUpper(name)]; known {
			r.protocol = &protocol
		} else {
			r.close("backend-protocol", "%q is not HTTP, HTTPS, GRPC or GRPCS", name)
		}
	}
}

// plain reports whether a text can be a path or a prefix in a header.
func plain(text string) bool { return regexp.MustCompile(`^[!-~]+$`).MatchString(text) }

// groups returns a target of nginx, with $1 to $9, as a text for regexp.Expand.
func groups(target string) (string, error) {
	if !regexp.MustCompile(`^[A-Za-z0-9/._~:$%@+,=&-]*$`).MatchString(target) {
		return "", fmt.Errorf("%q is not a path", target)
	}
	out := regexp.MustCompile(`\$([1-9])`).ReplaceAllString(target, "\x00$1\x01")
	if strings.Contains(out, "$") {
		return "", fmt.Errorf("%q has a variable that is not one of $1 to $9, the groups of the path", target)
	}
	return "/" + strings.TrimPrefix(strings.NewReplacer("\x00", "${", "\x01", "}").Replace(out), "/"), nil
}

// expression returns the path of an Ingress with use-regex as ingress-nginx takes it: the beginning of a path, whatever its case.
func expression(path string) string { return `(?i:` + path + `)(?s:.*)` }

// check returns why an expression that somebody has written for something of requests, or what is made of it, cannot be served.
func (t *translation) check(i *networkingv1.Ingress, of, written, made string) error {
	if err := gateway.CheckExpression(written); err != nil {
		return err
	}
	return t.expressions.Check(i.Namespace, of, made)
}

// literal returns the expression for a prefix.
func literal(path string) string {
	return `(?:` + regexp.QuoteMeta(strings.TrimRight(path, "/")) + `)(?s:/.*)?`
}

// beginning returns the expression for all that an expression which does not compile may have meant.
func beginning(path string) string {
	if end := strings.IndexAny(path, `^$[](){}*+?|\.`); end >= 0 {
		if strings.ContainsAny(path[end:], "|") {
			end = 0
		} else if strings.ContainsAny(path[end:end+1], "*?{") {
			end = max(0, end-1) // the character before is optional
		}
		path = path[:end]
	}
	return `(?i:` + regexp.QuoteMeta(path[:min(len(path), longestBeginning)]) + `)(?s:.*)`
}

// longestBeginning bounds the expression of a path that is none, in bytes.
const longestBeginning = 1000

// redirects reads what is answered with another URL.
func (r *reader) redirects() {
	r.sslRedirect, r.forceSSL = r.truth("ssl-redirect"), r.truth("force-ssl-redirect")
	r.www = r.is("from-to-www-redirect")
	for _, kind := range []struct {
		name   string
		status int
	}{{"temporal-redirect", http.StatusFound}, {"permanent-redirect", http.StatusMovedPermanently}} {
		status, coded := r.number(kind.name+"-code", r.refuse)
		to, ok := r.take(kind.name)
		if !ok || r.policy.Redirect != nil {
			continue
		}
		if coded && (status < 300 || status > 308) {
			r.refuse(kind.name+"-code", "%d is not the status of a redirect: %d is used", status, kind.status)
			status = 0
		}
		if err := redirectURL(to); err != nil {
			r.close(kind.name, "%v", err)
			continue
		}
		r.policy.Redirect = &gateway.PolicyRedirect{URL: to, Status: cmp.Or(status, kind.status)}
	}
}

func redirectURL(text string) error {
	if err := gateway.CheckVariables(text); err != nil {
		return err
	}
	if !plain(text) || !regexp.MustCompile(`^(https?|\$scheme)://`).MatchString(text) {
		return fmt.Errorf("%q is not a URL that begins with http:// or https://", text)
	}
	return nil
}

// hosts reads further hosts.
func (r *reader) hosts() {
	if text, ok := r.take("server-alias"); ok {
		for _, host := range list(strings.ToLower(text)) {
			if len(validation.IsDNS1123Subdomain(host)) > 0 && len(validation.IsWildcardDNS1123Subdomain(host)) > 0 {
				r.refuse("server-alias", "%q is not the name of a host", host)
				continue
			}
			r.aliases = append(r.aliases, host)
		}
	}
	r.passthrough = r.is("ssl-passthrough")
}

// retries reads when a request is sent again.
func (r *reader) retries() {
	tries, some := r.number("proxy-next-upstream-tries", r.refuse)
	if _, ok := r.number("proxy-next-upstream-timeout", r.refuse); ok {
		r.refuse("proxy-next-upstream-timeout", "the time of all tries is not bounded apart from proxy-read-timeout")
	}
	when, ok := r.take("proxy-next-upstream")
	if !ok {
		return
	}
	retry := &gateway.Retry{Idempotent: true, Attempts: 2}
	if some && tries > 0 {
		retry.Attempts = min(tries, maxTries) - 1
	}
	for word := range strings.FieldsSeq(when) {
		switch word {
		case "error", "timeout", "invalid_header", "off":
		case "non_idempotent":
			retry.Idempotent = false
		case "http_500", "http_502", "http_503", "http_504", "http_403", "http_404", "http_429":
			var code int
			_, _ = fmt.Sscanf(word, "http_%d", &code)
			retry.Codes = append(retry.Codes, code)
		default:
			r.refuse("proxy-next-upstream", "%q is not known", word)
		}
	}
	if len(retry.Codes) > 0 && retry.Attempts > 0 {
		r.retry = retry
	}
}

// maxTries bounds how often one request is sent to backends.
const maxTries = 10

// proxying reads the bounds of requests.
func (r *reader) proxying() {
	if text, ok := r.take("proxy-body-size"); ok {
		size, err := bytesOf(text)
		if err != nil {
			r.close("proxy-body-size", "%v", err)
		}
		r.policy.MaxBody = size
	}
	_, _ = r.number("proxy-connect-timeout", r.refuse) // an address that does not answer in 3 seconds is left for another one
	for _, name := range []string{"proxy-read-timeout", "proxy-send-timeout"} {
		text, _ := r.take(name)
		if text == "" {
			continue
		}
		seconds, err := time.ParseDuration(strings.TrimSuffix(text, "s") + "s")
		if err != nil || seconds <= 0 || seconds > 366*24*time.Hour {
			r.refuse(name, "%q is not a number of seconds", text)
			continue
		}
		r.policy.Stall = max(r.policy.Stall, seconds)
	}
}

// bytesOf reads a size of nginx: a number with k, m or g, or without for bytes.
func bytesOf(text string) (int64, error) {
	var size int64
	unit := ""
	if match := regexp.MustCompile(`^([0-9]{1,9})([bBkKmMgG]?)$`).FindStringSubmatch(text); match != nil {
		_, _ = fmt.Sscan(match[1], &size)
		unit = strings.ToLower(match[2])
		return size * map[string]int64{"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}[unit], nil
	}
	return 0, fmt.Errorf("%q is not a size such as 8m", text)
}
