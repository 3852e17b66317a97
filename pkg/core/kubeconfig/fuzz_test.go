package kubeconfig

import "testing"

// FuzzMerge merges a kubeconfig into another one, renames and removes. Whatever the files are, the result can be read again.
func FuzzMerge(f *testing.F) {
	one, err := Encode(Access{Name: "one", Server: "https://192.0.2.1:6443", CA: Source{File: "/ca"}, Cert: Source{Data: []byte("c")}, Key: Source{File: "/k"}})
	if err != nil {
		f.Fatal(err)
	}
	for _, text := range []string{
		string(one), "", "# only a comment\n", "null", "clusters: [&a {name: one, cluster: {server: x}}, *a]\nusers: ~\n",
		"x: &x {name: two}\ncontexts: [*x]\ncurrent-context: *x\n", `{"kind":"Config","clusters":[{"name":"one","cluster":null}],"current-context":1}`,
		"kind: Config\n<<: {clusters: []}\n", "clusters: []\n---\nusers: []\n", "- 1\n", "{clusters: , users: , current-context: }", "? {a: b}\n: c\nusers: [{name: one}, {name: one}]\n",
	} {
		f.Add(text, string(one), "one")
		f.Add(string(one), text, "two")
	}
	f.Fuzz(func(t *testing.T, text, other, name string) {
		ours, err := Parse([]byte(text))
		if err != nil {
			return
		}
		theirs, err := Parse([]byte(other))
		if err != nil {
			return
		}
		if theirs.Rename(name) == nil {
			theirs.SetServer("https://192.0.2.2:6443")
		}
		ours.Conflict(theirs)
		ours.Merge(theirs, true)
		ours.Remove(name, ours.CurrentContext())
		ours.Empty()
		out, err := ours.Encode()
		if err != nil {
			return
		}
		if _, err := Parse(out); err != nil {
			t.Errorf("it cannot be read any more: %v\n%s", err, out)
		}
	})
}
