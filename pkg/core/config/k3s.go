package config

import "fmt"

// otherWords are k3s's words for services of ours that it calls otherwise.
var otherWords = map[string]string{"coredns": "dns"}

// notBrought are services that k3s can leave out and that coracle does not have: files made for k3s name them.
var notBrought = map[string]string{
	"runtimes": "coracle makes no RuntimeClasses, so there are none to leave out",
	"traefik":  "coracle brings no ingress controller, so there is none to leave out; docs/addons.md says how to have one",
}

// translate makes one list of all the ways in which k3s lets people leave out services. What it returns is for people to
// know, and nothing to mend.
func (r *raw) translate() (remarks []string) {
	list := &r.disable
	var items []item
	for _, it := range list.items {
		if why := notBrought[it.text]; why != "" {
			remarks = append(remarks, fmt.Sprintf("%s: %s: %s", it.label(list.setting), it.text, why))
			continue
		}
		if ours := otherWords[it.text]; ours != "" {
			it.text = ours
		}
		items = append(items, it)
	}
	for _, single := range []struct {
		asked   *value
		service string
	}{
		{&r.noHelmController, "helm-controller"}, {&r.noKubeProxy, "kube-proxy"}, {&r.noNetworkPolicy, "network-policy"},
	} {
		if on := single.asked.one(); isTrue(on.text) {
			items = append(items, item{single.service, on.origin})
			list.layer = max(list.layer, single.asked.layer)
		}
	}
	list.items = items
	return remarks
}
