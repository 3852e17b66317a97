package authorization

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/coracle-dev/coracle/test/extensions/cluster"
)

// TestAuthorization plays who may do what by each authorizer, on a cluster of two nodes.
func TestAuthorization(t *testing.T) {
	config := t.TempDir()
	if err := os.CopyFS(config, os.DirFS("coracle")); err != nil {
		t.Fatal(err)
	}
	c := cluster.Start(t, "authorization", cluster.Options{Nodes: 2, Config: config, Images: []string{"busybox"}, Manifests: []string{"roles.yaml"}})
	i, err := NewIssuer()
	if err != nil {
		t.Fatal(err)
	}
	people := publish(t, c, i, config)
	t.Run("tokens", func(t *testing.T) { tokens(t, c, i) })
	c.Run(t, "people", people.play)
	c.Run(t, "nodes", nodes)
	c.Run(t, "certificates of pods", podCertificates)
}

// people has a token of each person.
type people map[string]string

// publish serves issuer and webhook, and writes their addresses to the files that the API server watches.
func publish(t *testing.T, c *cluster.Cluster, i *Issuer, config string) people {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /authorize", closingTime)
	mux.Handle("/", i)
	e := c.Serve(t, mux)
	i.URL = fmt.Sprintf("https://%s:%d", e.Host, e.Port)
	authority, err := json.Marshal(string(e.CABundle))
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range []struct{ file, from, to string }{
		{"webhook.yaml", "server: https://closing-time.example.org", fmt.Sprintf("certificate-authority-data: %s, server: %s", base64.StdEncoding.EncodeToString(e.CABundle), i.URL)},
		{"authorization.yaml", "name: closing-time", "name: closing-time-served"}, // the API server reads the kubeconfig again with this file
		{"authentication.yaml", "url: https://issuer.example.org", fmt.Sprintf("url: %s\n      certificateAuthority: %s", i.URL, authority)},
	} {
		path := filepath.Join(config, change.file)
		data, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(data), change.from) {
			t.Fatalf("%s does not contain %q (%v)", path, change.from, err)
		}
		if err := os.WriteFile(path, []byte(strings.Replace(string(data), change.from, change.to, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	all := people{}
	for name, team := range map[string]string{"ann": "developers", "sue": "support", "ada": "auditors"} {
		all[name] = token(t, i, jose.RS256, Person{name + "@example.org", true, []string{team}}, "coracle", time.Hour)
	}
	began := time.Now()
	cluster.Eventually(t, func() error { return who(t, c, all["ann"], "oidc:ann@example.org") })
	t.Logf("the API server knows the issuer after %.1f s", time.Since(began).Seconds())
	return all
}

// closingTime is the webhook: nobody deletes what is called "kept".
func closingTime(w http.ResponseWriter, r *http.Request) {
	var review authorization.SubjectAccessReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if review.Spec.ResourceAttributes.Name == "kept" {
		review.Status = authorization.SubjectAccessReviewStatus{Denied: true, Reason: "we are closed"}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review)
}

func token(t *testing.T, i *Issuer, alg jose.SignatureAlgorithm, p Person, audience string, life time.Duration) string {
	t.Helper()
	text, err := i.Token(alg, p, audience, time.Now().Add(life))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// as is a client with a token and nothing else.
func as(c *cluster.Cluster, token string) *kubernetes.Clientset {
	config := rest.AnonymousClientConfig(c.RESTConfig)
	config.BearerToken = token
	return kubernetes.NewForConfigOrDie(config)
}

// who asks the API server whose token this is.
func who(t *testing.T, c *cluster.Cluster, token, want string) error {
	review, err := as(c, token).AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authentication.SelfSubjectReview{}, metav1.CreateOptions{})
	if err == nil && review.Status.UserInfo.Username != want {
		err = fmt.Errorf("the token is that of %q, not of %q", review.Status.UserInfo.Username, want)
	}
	return err
}

// tokens shows which tokens are accepted.
func tokens(t *testing.T, c *cluster.Cluster, i *Issuer) {
	ann := Person{"ann@example.org", true, []string{"developers"}}
	for _, alg := range []jose.SignatureAlgorithm{jose.RS256, jose.ES256} {
		if err := who(t, c, token(t, i, alg, ann, "coracle", time.Hour), "oidc:ann@example.org"); err != nil {
			t.Errorf("signed with %s: %v", alg, err)
		}
	}
	other, err := NewIssuer()
	if err != nil {
		t.Fatal(err)
	}
	other.URL = i.URL
	for name, text := range map[string]string{
		"for another audience":    token(t, i, jose.RS256, ann, "elsewhere", time.Hour),
		"expired":                 token(t, i, jose.RS256, ann, "coracle", -time.Minute),
		"address not verified":    token(t, i, jose.RS256, Person{"ann@example.org", false, nil}, "coracle", time.Hour),
		"closed account":          token(t, i, jose.RS256, Person{"ann@example.com", true, nil}, "coracle", time.Hour),
		"signed by somebody else": token(t, other, jose.RS256, ann, "coracle", time.Hour),
		"none":                    "",
	} {
		if err := who(t, c, text, ""); err == nil || !strings.Contains(err.Error(), "nauthorized") && !strings.Contains(err.Error(), "forbidden") {
			t.Errorf("token %q: %v", name, err)
		}
	}
}

// play plays the page's commands as each person.
func (p people) play(t *testing.T, s cluster.Space) {
	file := filepath.Join(t.TempDir(), "kubeconfig")
	data, err := os.ReadFile(s.Kubeconfig)
	if err := errors.Join(err, os.WriteFile(file, data, 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"set-context", "--current", "--namespace", s.Namespace, "--user="}, {"unset", "users"}} {
		if out, err := s.Try(t, "kubectl", append([]string{"config", "--kubeconfig", file}, args...)...); err != nil {
			t.Fatal(err, out)
		}
	}
	for heading, name := range map[string]string{"What RBAC and the webhook say": "ann", "What the policy file says": "ada", "Standing in for somebody": "sue"} {
		s.Kubectl(t, "create", "configmap", "kept")
		s.Play(t, heading, "TOKEN="+p[name], "USERS="+file)
		s.Kubectl(t, "delete", "configmap", "kept")
	}
}
