package translate

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// nginxPrefix is that of the annotations of ingress-nginx. Its documentation and source say what they mean.
const nginxPrefix = "nginx.ingress.kubernetes.io/"

// annotated is what the annotations of an Ingress ask for.
type annotated struct {
	// closed says that the paths of the Ingress are answered with 503: an annotation that keeps somebody out cannot be served.
	closed      bool
	expressions bool // paths are regular expressions
	filters     gateway.Filters
	path        string // that backends see, with ${1} for groups
	protocol    *gateway.BackendProtocol
	retry       *gateway.Retry
	policy      gateway.Policy
	fallback    string // the Service of default-backend

	sslRedirect, forceSSL *bool
	appRoot               string
	aliases               []string
	www, passthrough      bool
	canary                *canary
}

// reader reads annotations. What nobody has taken in the end is not known.
type reader struct {
	t      *translation
	i      *networkingv1.Ingress
	values map[string]string
	annotated
}

// annotations reads what an Ingress asks for.
func (t *translation) annotations(i *networkingv1.Ingress) *annotated {
	r := &reader{t: t, i: i, values: map[string]string{}}
	for name, value := range i.Annotations {
		if short, ok := strings.CutPrefix(name, nginxPrefix); ok {
			r.values[short] = strings.TrimSpace(value)
		}
	}
	if len(r.values) == 0 {
		return &r.annotated
	}
	if r.canaries(); r.canary != nil {
		return &r.annotated // the Ingress for the same path has all other annotations
	}
	for _, group := range []func(*reader){
		(*reader).rewriting, (*reader).redirects, (*reader).hosts, (*reader).proxying, (*reader).retries, (*reader).cors, (*reader).sources,
		(*reader).passwords, (*reader).limits, (*reader).affinity, (*reader).errorPages,
	} {
		group(r)
	}
	for _, name := range slices.Sorted(maps.Keys(r.values)) {
		r.unknown(name, r.values[name])
	}
	return &r.annotated
}

// take returns the value of an annotation.
func (r *reader) take(name string) (value string, ok bool) {
	value, ok = r.values[name]
	delete(r.values, name)
	return value, ok && value != ""
}

// refuse tells people that an annotation has no effect.
func (r *reader) refuse(name, format string, values ...any) {
	r.t.problem(r.i, "AnnotationRefused", "annotation %s%s: %s", nginxPrefix, name, fmt.Sprintf(format, values...))
}

// close tells people that nothing is served because of an annotation.
func (r *reader) close(name, format string, values ...any) {
	r.closed = true
	r.t.problem(r.i, "AnnotationRefused", "annotation %s%s: %s. Without it the Ingress would let in more than it was meant to: its paths are answered with status 503",
		nginxPrefix, name, fmt.Sprintf(format, values...))
}

// truth reads a boolean; nil if there is none.
func (r *reader) truth(name string) *bool {
	text, ok := r.take(name)
	if !ok {
		return nil
	}
	value, err := strconv.ParseBool(text)
	if err != nil {
		r.refuse(name, "%q is not true or false", text)
		return nil
	}
	return &value
}

// is reads a boolean that is false otherwise.
func (r *reader) is(name string) bool {
	value := r.truth(name)
	return value != nil && *value
}

// number reads a number that is not negative. It calls wrong for what is none.
func (r *reader) number(name string, wrong func(name, format string, values ...any)) (value int, ok bool) {
	text, ok := r.take(name)
	if !ok {
		return 0, false
	}
	value, err := strconv.Atoi(text)
	if err != nil || value < 0 || value > maxNumber {
		wrong(name, "%q is not a whole number from 0 to %d", text, maxNumber)
		return 0, false
	}
	return value, true
}

// maxNumber is the largest number of an annotation. As seconds it can be a Duration.
const maxNumber = 1 << 31

// list splits a text at commas.
func list(text string) (out []string) {
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}

// token is what the names of headers and cookies are (RFC 9110, 5.6.2).
func token(text string) bool {
	return regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$").MatchString(text)
}
