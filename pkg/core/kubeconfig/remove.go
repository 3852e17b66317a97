package kubeconfig

import (
	"slices"

	"go.yaml.in/yaml/v3"
)

// CurrentContext is the name of the context that clients use by default; "" if there is none.
func (f *File) CurrentContext() string { return text(f.root(), currentContext) }

// Remove takes the context, the cluster and the user of a name out. If the context was current, the fallback becomes
// so if it exists, else none is.
func (f *File) Remove(name, fallback string) {
	for _, l := range lists {
		list := value(f.root(), l.key)
		if list == nil {
			continue
		}
		list.Content = slices.DeleteFunc(list.Content, func(entry *yaml.Node) bool { return text(entry, "name") == name })
	}
	if f.CurrentContext() != name {
		return
	}
	if f.entry("contexts", fallback) == nil {
		fallback = ""
	}
	f.setText(f.root(), currentContext, fallback)
}

// Empty reports whether the file has no cluster, user or context.
func (f *File) Empty() bool {
	for _, l := range lists {
		if len(f.entries(l.key)) > 0 {
			return false
		}
	}
	return true
}
