package i18n

import "testing"

func TestIsKubectl(t *testing.T) {
	for _, c := range []struct {
		args []string
		want bool
	}{
		{nil, false}, {[]string{"kubectl"}, true}, {[]string{"/usr/bin/kubectl", "get"}, true}, {[]string{"coracle-core", "kubectl", "get"}, true},
		{[]string{"/x/coracle-core", "node", "/run"}, false}, {[]string{"coracle-core", "__complete", "kubectl", "g"}, true},
	} {
		if got := isKubectl(c.args); got != c.want {
			t.Errorf("%q: %t", c.args, got)
		}
	}
}
