package config

import "fmt"

// otherWords maps k3s's names of services to coracle's, where they differ.
var otherWords = map[string]string{"coredns": "dns"}

// notBrought lists services of k3s that coracle does not have. Configuration files for k3s may disable them.
var notBrought = map[string]string{
	"traefik": "coracle brings no ingress controller, so there is none to leave out; docs/addons.md says how to have one",
}

// translate merges all settings that disable services into one list. It returns remarks that need no action.
func (r raw) translate() (remarks []string) {
	list := r["disable"]
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
		{r["disable-helm-controller"], "helm-controller"}, {r["disable-kube-proxy"], "kube-proxy"}, {r["disable-network-policy"], "network-policy"},
	} {
		if on := single.asked.one(); isTrue(on.text) {
			items = append(items, item{single.service, on.origin})
			list.layer = max(list.layer, single.asked.layer)
		}
	}
	list.items = items
	return remarks
}
