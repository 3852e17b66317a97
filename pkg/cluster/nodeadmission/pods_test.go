package nodeadmission

import (
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/kubernetes/pkg/apis/core"
)

// pod has addresses, separated by spaces.
func pod(addresses string, change func(*core.Pod)) *core.Pod {
	p := &core.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	for ip := range strings.FieldsSeq(addresses) {
		p.Status.PodIPs = append(p.Status.PodIPs, core.PodIP{IP: ip})
	}
	if len(p.Status.PodIPs) > 0 {
		p.Status.PodIP = p.Status.PodIPs[0].IP
	}
	if change != nil {
		change(p)
	}
	return p
}

// writePod returns the error of a node's or another user's write.
func writePod(t *testing.T, p *Plugin, who, namespace string, is, was *core.Pod) error {
	op, sub, old := admission.Create, "", runtime.Object(nil)
	if was != nil {
		op, sub, old = admission.Update, "status", was
	}
	a := admission.NewAttributesRecord(is, old, schema.GroupVersionKind{}, namespace, "web", schema.GroupVersionResource{Version: "v1", Resource: "pods"},
		sub, op, nil, false, &user.DefaultInfo{Name: who})
	return errors.Join(p.Admit(t.Context(), a, nil), p.Validate(t.Context(), a, nil))
}

// TestStaticPods: an agent's static pod is chosen by no Service, unless an administrator permits it in the namespace.
func TestStaticPods(t *testing.T) {
	p := plugin(t)
	for _, c := range []struct {
		who, namespace string
		kept           bool
	}{
		{"system:node:b", "shop", false}, {"system:node:b", "unknown", false}, {"system:node:b", "edge", true},
		{"system:node:server-2", "shop", true}, {"system:node:new-server", "shop", true}, {admin, "shop", true},
	} {
		is := pod("", func(p *core.Pod) {
			p.Name, p.Labels = "web-"+strings.TrimPrefix(c.who, kubeletUser), map[string]string{"app": "web"}
		})
		if err := writePod(t, p, c.who, c.namespace, is, nil); err != nil || (is.Labels["app"] == "web") != c.kept {
			t.Errorf("%s in %s: labels %v, %v", c.who, c.namespace, is.Labels, err)
		}
		want := "kubectl annotate namespace " + c.namespace + " coracle.io/allow-static-pod-labels=true"
		if got := p.told[strings.TrimPrefix(c.who, kubeletUser)+"/pods"].text; strings.Contains(got, want) != (c.namespace == "shop" && !c.kept) {
			t.Errorf("%s in %s is told %q", c.who, c.namespace, got)
		}
	}
}

// TestPodAddresses: a node says only addresses of its own pods.
func TestPodAddresses(t *testing.T) {
	for name, c := range map[string]struct{ who, was, is, want string }{
		"its subnet":          {"system:node:b", "", "10.42.1.7", "10.42.1.7"},
		"its own":             {"system:node:b", "", "192.0.2.3", "192.0.2.3"},
		"another subnet":      {"system:node:b", "10.42.1.7", "10.42.2.7", ""},
		"another node's":      {"system:node:b", "", "192.0.2.20 10.42.1.7", "10.42.1.7"},
		"anywhere":            {"system:node:b", "", "198.51.100.1", ""},
		"before the upgrade":  {"system:node:b", "198.51.100.1", "198.51.100.1", "198.51.100.1"},
		"no Node":             {"system:node:gone", "", "10.42.1.7", ""},
		"a server's":          {"system:node:server-2", "", "198.51.100.1", "198.51.100.1"},
		"an administrator's":  {admin, "", "198.51.100.1", "198.51.100.1"},
		"with another plugin": {"system:node:b", "", "198.51.100.1", "198.51.100.1"},
	} {
		p := plugin(t)
		if name == "with another plugin" {
			p.podNetworks = nil
		}
		is := pod(c.is, nil)
		err := writePod(t, p, c.who, "shop", is, pod(c.was, nil))
		var got []string
		for _, ip := range is.Status.PodIPs {
			got = append(got, ip.IP)
		}
		first, _, _ := strings.Cut(c.want, " ")
		if err != nil || strings.Join(got, " ") != c.want || is.Status.PodIP != first {
			t.Errorf("%s: %v and %s, %v", name, got, is.Status.PodIP, err)
		}
	}
}

// TestFinalizers: a node cannot keep a pod.
func TestFinalizers(t *testing.T) {
	p := plugin(t)
	kept := func(p *core.Pod) { p.Finalizers = []string{"example.com/stay"} }
	for _, c := range []struct {
		who     string
		is, was *core.Pod
		refused bool
	}{
		{kubelet, pod("", kept), pod("", nil), true}, {kubelet, pod("", kept), nil, true}, {kubelet, pod("", nil), pod("", kept), true},
		{kubelet, pod("", kept), pod("", kept), false}, {admin, pod("", kept), pod("", nil), false},
	} {
		if err := writePod(t, p, c.who, "shop", c.is, c.was); (err != nil) != c.refused {
			t.Errorf("%s: %v", c.who, err)
		}
	}
}

// TestStaticPodNames: a node cannot take the name of a pod that is no static pod of its own.
func TestStaticPodNames(t *testing.T) {
	p := plugin(t)
	for name, refused := range map[string]bool{"web-b": false, "web-0": true, "web-server-2": true, "web": true, "": true} {
		is := pod("", func(p *core.Pod) { p.Name, p.GenerateName = name, "web-" })
		if err := writePod(t, p, "system:node:b", "shop", is, nil); (err != nil) != refused {
			t.Errorf("%q: %v", name, err)
		}
	}
}
