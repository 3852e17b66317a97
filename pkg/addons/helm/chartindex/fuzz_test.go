package chartindex

import (
	"net/url"
	"testing"
)

// FuzzIndex reads an index as fromRepository does: the versions, one of them, and its address.
func FuzzIndex(f *testing.F) {
	for _, text := range []string{
		"entries: {web: [{version: 1.2.3, urls: [web-1.2.3.tgz], digest: abc}, {version: 2.0.0-rc.1}]}",
		`{"entries":{"web":[{"version":"v1","urls":["https://a/b?c=d","oci://e/f"]}]}}`,
		"a: &a [*a]\nentries: *a\n", "entries: {web: [~, {urls: ~}]}", "x: &x {version: 1}\nentries: {web: [*x, *x]}", "entries: 1", "\x00",
	} {
		f.Add([]byte(text), "web", "^1", "https://charts.example.org/stable")
	}
	f.Fuzz(func(t *testing.T, data []byte, name, want, repo string) {
		base, err := url.Parse(repo)
		if err != nil || base.Host == "" || base.Scheme == "" {
			return
		}
		all, err := Parse(data)
		if err != nil {
			return
		}
		var versions []string
		for _, e := range all[name] {
			versions = append(versions, e.Version)
			for _, at := range e.URLs {
				if u, err := Resolve(base, at); err == nil && !u.IsAbs() {
					t.Errorf("%q of %q is %q", at, repo, u)
				}
			}
		}
		if i, err := Pick(versions, want); err == nil && (i < 0 || i >= len(versions)) {
			t.Errorf("%q of %q is number %d", want, versions, i)
		}
	})
}
