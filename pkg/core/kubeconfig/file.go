package kubeconfig

import (
	"errors"
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"
)

// File is a kubeconfig. It keeps comments and fields that this package does not know.
type File struct {
	doc yaml.Node
}

// The lists of named entries in a kubeconfig, each with the key of an entry's body.
var lists = []struct{ key, body string }{{"clusters", "cluster"}, {"users", "user"}, {"contexts", "context"}}

const currentContext = "current-context"

// Parse reads a kubeconfig in YAML or JSON. Empty data is an empty one.
func Parse(data []byte) (*File, error) {
	f := &File{}
	if err := yaml.Unmarshal(data, &f.doc); err != nil {
		return nil, err
	}
	if f.doc.Kind == 0 || len(f.doc.Content) == 1 && f.doc.Content[0].Tag == "!!null" {
		f.doc = yaml.Node{Kind: yaml.DocumentNode, Content: []*yaml.Node{{Kind: yaml.MappingNode, Tag: "!!map"}}}
		f.setText(f.root(), "apiVersion", "v1")
		f.setText(f.root(), "kind", "Config")
	}
	if f.root().Kind != yaml.MappingNode {
		return nil, errors.New("it is not a kubeconfig")
	}
	if kind := text(f.root(), "kind"); kind != "" && kind != "Config" {
		return nil, fmt.Errorf("it is not a kubeconfig but a %s", kind)
	}
	for _, l := range lists {
		if n := value(f.root(), l.key); n != nil && n.Tag != "!!null" && n.Kind != yaml.SequenceNode {
			return nil, fmt.Errorf("%s is not a list (line %d)", l.key, n.Line)
		}
	}
	return f, nil
}

// Encode returns the file's content. It fails if an anchor of YAML was in an entry that is gone.
func (f *File) Encode() ([]byte, error) {
	data, err := encodeYAML(spellNulls(&f.doc, false))
	if err == nil {
		err = yaml.Unmarshal(data, &yaml.Node{})
	}
	if err != nil {
		return nil, fmt.Errorf("writing a kubeconfig: %w", err)
	}
	return data, nil
}

// Rename gives the context, the cluster and the user of a file that has one of each another name.
func (f *File) Rename(name string) error {
	for _, l := range lists {
		entries := f.entries(l.key)
		if len(entries) != 1 {
			return fmt.Errorf("it has %d %s where one was expected", len(entries), l.key)
		}
		f.setText(entries[0], "name", name)
	}
	context := value(f.entries("contexts")[0], "context")
	if context == nil || context.Kind != yaml.MappingNode {
		return errors.New("its context is empty")
	}
	f.setText(context, "cluster", name)
	f.setText(context, "user", name)
	f.setText(f.root(), currentContext, name)
	return nil
}

// SetServer makes every cluster of the file be reached under a URL.
func (f *File) SetServer(url string) {
	for _, entry := range f.entries("clusters") {
		if body := value(entry, "cluster"); body != nil && body.Kind == yaml.MappingNode {
			f.setText(body, "server", url)
		}
	}
}

// Conflict returns the cluster of f that is lost if from is merged: it has the name of a cluster of from, but neither
// the URL nor the certificate authority. It returns "" if there is none.
func (f *File) Conflict(from *File) string {
	for _, theirs := range from.entries("clusters") {
		ours := f.entry("clusters", text(theirs, "name"))
		if ours == nil {
			continue
		}
		a, b := value(ours, "cluster"), value(theirs, "cluster")
		sameURL := text(a, "server") == text(b, "server")
		sameCA := text(a, "certificate-authority-data") == text(b, "certificate-authority-data")
		if !sameURL && !sameCA {
			return fmt.Sprintf("%s at %s", text(theirs, "name"), text(a, "server"))
		}
	}
	return ""
}

// Merge adds from's clusters, users and contexts, in place of those with the same names. If use is true, or f has no current
// context, from's current context becomes f's.
func (f *File) Merge(from *File, use bool) {
	for _, l := range lists {
		for _, theirs := range from.entries(l.key) {
			if ours := f.entry(l.key, text(theirs, "name")); ours != nil {
				*ours = *theirs
				continue
			}
			list := f.list(l.key)
			list.Content = append(list.Content, theirs)
		}
	}
	if use || text(f.root(), currentContext) == "" {
		f.setText(f.root(), currentContext, text(from.root(), currentContext))
	}
}

func (f *File) root() *yaml.Node { return f.doc.Content[0] }

// entries returns a list's entries that are mappings; nil if there is no list.
func (f *File) entries(key string) []*yaml.Node {
	list := value(f.root(), key)
	if list == nil {
		return nil
	}
	var entries []*yaml.Node
	for _, entry := range list.Content {
		if entry.Kind == yaml.MappingNode {
			entries = append(entries, entry)
		}
	}
	return entries
}

func (f *File) entry(key, name string) *yaml.Node {
	for _, entry := range f.entries(key) {
		if text(entry, "name") == name {
			return entry
		}
	}
	return nil
}

// list returns a list, and creates it if it is missing. An empty [] becomes a list with a line for each entry.
func (f *File) list(key string) *yaml.Node {
	list := value(f.root(), key)
	if list == nil {
		list = &yaml.Node{}
		f.root().Content = append(f.root().Content, scalar(key), list)
	}
	if len(list.Content) == 0 {
		*list = yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", HeadComment: list.HeadComment, LineComment: list.LineComment}
	}
	return list
}

// value returns the value of a key in a mapping, or nil.
func value(mapping *yaml.Node, key string) *yaml.Node {
	if mapping == nil || mapping.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			return mapping.Content[i+1]
		}
	}
	return nil
}

func text(mapping *yaml.Node, key string) string {
	if n := value(mapping, key); n != nil && n.Kind == yaml.ScalarNode && n.Tag != "!!null" {
		return n.Value
	}
	return ""
}

func (f *File) setText(mapping *yaml.Node, key, to string) {
	if n := value(mapping, key); n != nil {
		*n = *scalar(to)
		return
	}
	mapping.Content = append(mapping.Content, scalar(key), scalar(to))
}

func scalar(s string) *yaml.Node {
	n := &yaml.Node{}
	n.SetString(s)
	return n
}

// CurrentContext is the name of the context that clients use by default; "" if there is none.
func (f *File) CurrentContext() string { return text(f.root(), currentContext) }

// Remove removes the context, the cluster and the user of a name. If the context was the current one, fallback becomes
// the current one if it exists.
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
	return len(f.entries("clusters"))+len(f.entries("users"))+len(f.entries("contexts")) == 0
}
