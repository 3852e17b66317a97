package translate

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// users is a file of htpasswd: both have the password "secret".
const users = "ann:$2y$05$6ik1CbsZYmGG5OHBO6bWTehb3PDDQMyBfyPo25SOfboIlPE2cEIpS\nbob:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n"

func withUsers(o Objects) Objects {
	o.OtherClasses = []string{"nginx"}
	o.Passwords.Secrets = map[types.NamespacedName]*corev1.Secret{{Namespace: "shop", Name: "users"}: {Data: map[string][]byte{"auth": []byte(users)}}}
	return o
}

func TestAnnotations(t *testing.T) {
	check(t, "annotations", withUsers(objects(t, "annotations.yaml")))
}

// TestClosed: an Ingress with an annotation that would keep somebody out is not served without it.
func TestClosed(t *testing.T) {
	for _, annotation := range []string{
		"auth-url=https://auth.test/", "auth-signin=https://auth.test/", "auth-tls-secret=shop/ca", "proxy-ssl-verify=on", "enable-modsecurity=true",
		"whitelist-source-range=10.0.0.0/33", "denylist-source-range=nobody", "allowlist-source-range=,", "limit-rps=many", "limit-connections=-1", "limit-whitelist=all",
		"proxy-body-size=much", "auth-type=digest", "auth-type=basic", "auth-type=basic auth-secret=missing", "auth-type=basic auth-secret=other/users",
		"auth-type=basic auth-secret=users auth-secret-type=auth-map", "rewrite-target=/$request_uri", "rewrite-target=/{file.x}", "backend-protocol=FCGI",
		"permanent-redirect=javascript:alert(1)", "permanent-redirect=https://x$pid",
		"server-snippet=deny_all;", "configuration-snippet=proxy_set_header_X-User_'';", "configuration-snippet=add_header_a_b;return_403;", "location-snippet=add_header_a_\"}\";",
		"global-rate-limit=5",
	} {
		t.Run(annotation, func(t *testing.T) {
			o := withUsers(objects(t, "annotations.yaml"))
			o.Ingresses = []*networkingv1.Ingress{o.Ingresses[0].DeepCopy()}
			o.Ingresses[0].Annotations = map[string]string{}
			for one := range strings.FieldsSeq(annotation) {
				name, value, _ := strings.Cut(one, "=")
				if strings.HasSuffix(name, "-snippet") {
					value = strings.ReplaceAll(value, "_", " ")
					value = strings.NewReplacer("add header", "add_header", "proxy set header", "proxy_set_header").Replace(value)
				}
				o.Ingresses[0].Annotations[nginxPrefix+name] = value
			}
			result := Ingresses(o)
			for _, r := range result.Config.Routes {
				if len(r.Backends) > 0 {
					t.Errorf("served: %+v", r)
				}
			}
			if len(result.Problems) != 2 || result.Problems[0].Reason != "AnnotationRefused" || !strings.Contains(result.Problems[0].Message, "503") { // the other one is the certificate
				t.Errorf("problems: %+v", result.Problems)
			}
		})
	}
}

// TestCanaryAlone: what a canary's own namespace does not have cannot be taken from another one.
func TestCanaryAlone(t *testing.T) {
	o := withUsers(objects(t, "annotations.yaml"))
	for _, i := range o.Ingresses {
		if i.Name == "f-canary" {
			i.Namespace, i.CreationTimestamp = "evil", metav1.Time{}
		}
	}
	for _, r := range Ingresses(o).Config.Routes {
		if r.Host == "app.test" && (len(r.Backends) > 1 || len(r.Headers) > 0) {
			t.Errorf("%+v", r)
		}
	}
}

// TestLargeExpressions: an expression that would take the memory of all servers is not served, and what it may have meant is closed.
func TestLargeExpressions(t *testing.T) {
	huge := "/a" + strings.Repeat("(b{1000}c{1000})", 3000)
	for name, annotations := range map[string]map[string]string{
		"path": {nginxPrefix + "use-regex": "true", nginxPrefix + "app-root": "/app"},
		"rest": {nginxPrefix + "canary": "true", nginxPrefix + "canary-by-header": "X-Canary", nginxPrefix + "canary-by-header-pattern": huge},
	} {
		t.Run(name, func(t *testing.T) {
			o := withUsers(objects(t, "annotations.yaml"))
			main := o.Ingresses[0].DeepCopy()
			main.Annotations, main.Spec.TLS = nil, nil
			attack := main.DeepCopy()
			attack.Name, attack.Annotations = "attack", annotations
			if name == "path" {
				attack.Spec.Rules[0].Host, attack.Spec.Rules[0].HTTP.Paths = "attack.test", attack.Spec.Rules[0].HTTP.Paths[:1]
				attack.Spec.Rules[0].HTTP.Paths[0].Path = huge
			}
			o.Ingresses = []*networkingv1.Ingress{main, attack}
			result := Ingresses(o)
			for _, r := range result.Config.Routes {
				for _, v := range append(slices.Clone(r.Headers), gateway.Value{Value: r.Path, Expression: r.Kind == gateway.Expression}) {
					if v.Expression && gateway.CheckExpression(v.Value) != nil {
						t.Errorf("it is in the configuration: %.100s", v.Value)
					}
				}
				if r.Host == "attack.test" && (len(r.Backends) > 0 || r.Unserved != 503) {
					t.Errorf("served: %+v", r)
				}
			}
			if len(result.Problems) == 0 || !strings.Contains(result.Problems[0].Message, "the regular expression is longer") || len(result.Problems[0].Message) > maxMessage+10 {
				t.Errorf("problems: %.2000v", result.Problems)
			}
		})
	}
}

// TestManyLonelyCanaries: however many of its paths nobody serves, people are told the same of a canary each time.
func TestManyLonelyCanaries(t *testing.T) {
	o := withUsers(objects(t, "annotations.yaml"))
	canary := o.Ingresses[0].DeepCopy()
	canary.Annotations, canary.Spec.TLS = map[string]string{nginxPrefix + "canary": "true"}, nil
	path := canary.Spec.Rules[0].HTTP.Paths[0]
	canary.Spec.Rules = canary.Spec.Rules[:1]
	canary.Spec.Rules[0].HTTP.Paths = nil
	for n := range 50 {
		path.Path = fmt.Sprintf("/%d", n)
		canary.Spec.Rules[0].HTTP.Paths = append(canary.Spec.Rules[0].HTTP.Paths, path)
	}
	o.Ingresses = []*networkingv1.Ingress{canary}
	for range 20 {
		if problems := Ingresses(o).Problems; len(problems) != 1 || !strings.Contains(problems[0].Message, "path /0 of") {
			t.Fatalf("%.300v", problems[0].Message)
		}
	}
}
