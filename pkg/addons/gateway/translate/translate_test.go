package translate

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
	"github.com/coracle-dev/coracle/test/golden"
)

// objects reads a file of testdata.
func objects(t *testing.T, name string) (o Objects) {
	t.Helper()
	data, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(string(data), "\n---\n") {
		raw, err := yaml.ToJSON([]byte(document))
		if err != nil {
			t.Fatal(err)
		}
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode(raw, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		switch object := object.(type) {
		case *networkingv1.IngressClass:
			o.Classes = append(o.Classes, object)
		case *networkingv1.Ingress:
			o.Ingresses = append(o.Ingresses, object)
		case *corev1.Service:
			o.Services = append(o.Services, object)
		case *discoveryv1.EndpointSlice:
			o.Slices = append(o.Slices, object)
		default:
			t.Fatalf("%T", object)
		}
	}
	return o
}

// check compares what comes of objects, in whatever order they are listed, with a golden file.
func check(t *testing.T, name string, o Objects) {
	t.Helper()
	var first string
	for range 2 {
		if o.Orders != nil {
			o.Orders = NewOrders()
		}
		result := Ingresses(o)
		text, err := json.MarshalIndent(map[string]any{"config": result.Config, "endpoints": result.Endpoints}, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		out := string(text) + "\n"
		for _, w := range o.Orders.List() {
			out += fmt.Sprintf("wanted: %s for %s, by", w.Secret, w.Hosts)
			for _, o := range w.Owners {
				out += fmt.Sprintf(" %s %s/%s", o.Kind, o.Namespace, o.Name)
			}
			out += "\n"
		}
		for _, p := range result.Problems {
			out += fmt.Sprintf("%s/%s: %s: %s\n", p.Ingress.Namespace, p.Ingress.Name, p.Reason, p.Message)
		}
		if first != "" && out != first {
			t.Errorf("another order of the objects gives another result:\n%s\n%s", first, out)
		}
		first = out
		slices.Reverse(o.Ingresses)
		slices.Reverse(o.Services)
		slices.Reverse(o.Slices)
	}
	golden.Check(t, "testdata/"+name+".golden.txt", first)
}

func TestIngresses(t *testing.T) {
	check(t, "ingresses", objects(t, "ingresses.yaml"))
}

func TestTLS(t *testing.T) {
	o := objects(t, "tls.yaml")
	o.Node = []netip.Addr{netip.MustParseAddr("192.0.2.1")}
	o.Certificates = map[types.NamespacedName]Certificate{
		{Namespace: "shop", Name: "shop"}:    issued(t, "shop", "shop.test"),
		{Namespace: "evil", Name: "of-shop"}: issued(t, "of-shop", "shop.test"),
		{Namespace: "evil", Name: "wild"}:    issued(t, "wild", "*.evil.test"),
		{Namespace: "evil", Name: "garbage"}: CertificateOf(&corev1.Secret{Data: map[string][]byte{corev1.TLSCertKey: []byte("garbage")}}),
	}
	check(t, "tls", o)
}

// TestACME: certificates are asked for by annotations, for one's own hosts, and never for a Secret that others have made.
func TestACME(t *testing.T) {
	o := objects(t, "acme.yaml")
	mine := issued(t, "mine", "renewed.test")
	mine.Issuer = "https://acme.test"
	o.Orders, o.Certificates = NewOrders(), map[types.NamespacedName]Certificate{{Namespace: "shop", Name: "mine"}: mine, {Namespace: "shop", Name: "by-hand"}: issued(t, "by-hand", "by-hand.test")}
	check(t, "acme", o)
	without := o
	without.Orders = nil
	if told := fmt.Sprint(Ingresses(without).Problems); !strings.Contains(told, "there is no Secret shop/shop, and the servers have no --acme-email") {
		t.Error(told)
	}
	Ingresses(o)
	config := gateway.Config{Listeners: []gateway.Listener{{Name: "secure", Port: PortHTTPS, Protocol: gateway.HTTPS}}}
	for _, held := range []bool{true, false, false} {
		o.Services, o.Node = nil, []netip.Addr{netip.MustParseAddr("192.0.2.1")}
		if held {
			o.Services = objects(t, "tls.yaml").Services
		}
		if ListenForChallenges(o, &config); (len(config.Listeners) == 2) == held {
			t.Errorf("port 80 is a Service's: %v, and the listeners are %+v", held, config.Listeners)
		}
	}
}

// TestOrdersOfOthers: a host belongs to the namespace with the oldest object for it, of whatever kind the objects are, or else to that of a wildcard above it, one label or any number.
func TestOrdersOfOthers(t *testing.T) {
	first := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	o := NewOrders()
	for i, c := range []struct{ host, namespace string }{{"shop.test", "shop"}, {"shop.test", "evil"}, {"*.infra.test", "infra"}, {"a.infra.test", "evil"}, {"b.c.infra.test", "evil"}, {"old.later.test", "shop"}, {"*.later.test", "evil"}, {".deep.test", "infra"}} {
		o.Claim(c.host, c.namespace, first.Add(time.Duration(i)*time.Hour))
	}
	for host, owner := range map[string]string{"shop.test": "shop", "a.infra.test": "infra", "c.infra.test": "infra", "b.c.infra.test": "evil", "old.later.test": "shop", "x.later.test": "evil", "x.deep.test": "infra", "x.y.deep.test": "infra"} {
		for _, namespace := range []string{"shop", "infra", "evil"} {
			refused := o.Add(corev1.ObjectReference{UID: types.UID(namespace)}, nil, types.NamespacedName{Namespace: namespace, Name: host}, Certificate{}, []string{host})
			if (len(refused) == 0) != (namespace == owner) {
				t.Errorf("%s for namespace %s: %s", host, namespace, refused)
			}
		}
	}
	if all := o.List(); len(all) != 8 {
		t.Errorf("%+v", all)
	}
}

// TestPassedHosts: no certificate is asked for a host whose backend terminates TLS, by whichever Ingress of the namespace. Another namespace cannot say so.
func TestPassedHosts(t *testing.T) {
	pass := map[string]string{nginxPrefix + "ssl-passthrough": "true"}
	o := Objects{Classes: []*networkingv1.IngressClass{{ObjectMeta: metav1.ObjectMeta{Name: Class}, Spec: networkingv1.IngressClassSpec{Controller: Controller}}}, Orders: NewOrders()}
	for age, c := range []struct {
		namespace, name, host string
		annotations           map[string]string
	}{
		{"shop", "passed", "passed.test", map[string]string{AnnotationACME: "true"}}, {"shop", "web", "web.test", map[string]string{AnnotationACME: "true"}},
		{"shop", "passing", "passed.test", pass}, {"evil", "passing", "web.test", pass},
	} {
		class, kind := Class, networkingv1.PathTypePrefix
		o.Ingresses = append(o.Ingresses, &networkingv1.Ingress{
			ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: c.name, Annotations: c.annotations, CreationTimestamp: metav1.Unix(int64(age), 0)},
			Spec: networkingv1.IngressSpec{IngressClassName: &class, TLS: []networkingv1.IngressTLS{{Hosts: []string{c.host}, SecretName: c.name}}, Rules: []networkingv1.IngressRule{{
				Host: c.host, IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{{Path: "/", PathType: &kind}}}},
			}}},
		})
	}
	result := Ingresses(o)
	if all := o.Orders.List(); len(all) != 1 || all[0].Secret.Name != "web" {
		t.Errorf("wanted are %+v", all)
	}
	if told := fmt.Sprint(result.Problems); !strings.Contains(told, "host passed.test has ssl-passthrough") {
		t.Error(told)
	}
}

// TestUnused: without an Ingress of our classes there is nothing to listen on.
func TestUnused(t *testing.T) {
	o := objects(t, "ingresses.yaml")
	o.Classes = o.Classes[1:]
	if result := Ingresses(o); len(result.Config.Listeners) != 0 || len(result.Served) != 0 {
		t.Errorf("%+v", result)
	}
}

// issued reads a certificate for a host, and replaces its text, which is another one each time.
func issued(t *testing.T, text, host string) Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{host}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	c := CertificateOf(&corev1.Secret{Data: map[string][]byte{
		corev1.TLSCertKey:       pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		corev1.TLSPrivateKeyKey: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
	}})
	if c.Problem != "" {
		t.Fatal(c.Problem)
	}
	c.Chain, c.Key = "the chain of "+text, "the key of "+text
	return c
}
