package dashboard

import (
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// subresources are those that the page uses. What pods and Services answer, behind "proxy", would share the page's origin and
// could do all that the page may; "token" and "approval" make credentials. They are not in the list, as is what upstream adds.
var subresources = map[string][]string{
	"pods":         {"log", "exec", "eviction", "status"},
	"nodes":        {"status"},
	"deployments":  {"scale", "status"},
	"statefulsets": {"scale", "status"},
	"replicasets":  {"scale", "status"},
}

// asks are resources that are created only to be told something: they change nothing.
var asks = []string{"selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews"}

// segment is a part of a path: names of Kubernetes, and nothing that is encoded.
var segment = regexp.MustCompile(`^[A-Za-z0-9._:@~-]+$`)

// call is a request to the API.
type call struct{ group, resource, name, subresource string }

// parse returns what a path of the API is about; ok is false for a path that is not passed on. Lists of groups and resources
// have no resource.
func parse(u *url.URL) (c call, ok bool) {
	path := u.EscapedPath()
	if path == "/version" {
		return call{}, true
	}
	parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
	for _, part := range parts {
		if !segment.MatchString(part) || part == "." || part == ".." {
			return call{}, false
		}
	}
	switch {
	case parts[0] == "api":
		parts = parts[1:]
	case parts[0] == "apis" && len(parts) > 1:
		c.group, parts = parts[1], parts[2:]
	case parts[0] == "apis":
		parts = nil
	default:
		return call{}, false
	}
	if len(parts) <= 1 {
		return c, true
	}
	parts = parts[1:] // the version
	if parts[0] == "namespaces" && len(parts) > 2 {
		if parts[2] == "status" || parts[2] == "finalize" {
			return call{}, false // subresources of the namespace, not resources in it
		}
		parts = parts[2:]
	}
	c.resource = parts[0]
	switch len(parts) {
	case 1:
	case 2:
		c.name = parts[1]
	case 3:
		c.name, c.subresource = parts[1], parts[2]
	default:
		return call{}, false
	}
	// "watch" and "proxy" were prefixes of paths once, and watch still is one.
	refused := []string{"watch", "proxy", "redirect"}
	if slices.Contains(refused, c.resource) {
		return call{}, false
	}
	return c, c.subresource == "" || slices.Contains(subresources[c.resource], c.subresource)
}

// filter passes on what the page may ask of the API.
func (s *Server) filter(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, ok := parse(r.URL)
		ask := r.Method == http.MethodPost && slices.Contains(asks, c.resource) && strings.HasSuffix(c.group, ".k8s.io") && c.name == ""
		read := r.Method == http.MethodGet && c.subresource != "exec"
		switch {
		case !ok:
			refuse(w, http.StatusForbidden, "The dashboard does not pass on calls of this path: use 'coracle kubectl'.")
		case c.resource == "secrets" && c.group == "":
			refuse(w, http.StatusForbidden, "The dashboard does not show Secrets, so that they stay out of the browser: use 'coracle kubectl get secrets'.")
		case s.ReadOnly && !read && !ask:
			refuse(w, http.StatusForbidden, "This dashboard only shows: start it with --read-only=false to change something.")
		case !slices.Contains([]string{"GET", "POST", "PUT", "PATCH", "DELETE"}, r.Method):
			refuse(w, http.StatusMethodNotAllowed, r.Method+" is not a method of the API.")
		default:
			next.ServeHTTP(w, r)
		}
	})
}
