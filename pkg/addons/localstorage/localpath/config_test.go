package localpath

import (
	"slices"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for name, c := range map[string]struct{ json, err string }{
		"k3s's":            {`{"nodePathMap":[{"node":"DEFAULT_PATH_FOR_NON_LISTED_NODES","paths":["/var/lib/rancher/k3s/storage"]}]}`, ""},
		"paths in objects": {`{"nodePathMap":[{"node":"a","paths":[{"path":"/a","maxCapacity":"1Gi"},"/b"]}]}`, ""},
		"shared":           {`{"sharedFileSystemPath":"/nfs"}`, ""},
		"commands":         {`{"cmdTimeoutSeconds":30,"setupCommand":"/x","nodePathMap":[]}`, ""},
		"classes":          {`{"storageClassConfigs":{"fast":{"sharedFileSystemPath":"/nfs"}}}`, ""},
		"not JSON":         {`nodePathMap:`, "reading the paths of local volumes: invalid character"},
		"more":             {`{} {}`, "behind the closing brace"},
		"typing error":     {`{"nodePathMaps":[]}`, `unknown field "nodePathMaps"`},
		"relative":         {`{"nodePathMap":[{"node":"a","paths":["data"]}]}`, `node a: path "data" is not an absolute path`},
		"root":             {`{"nodePathMap":[{"node":"a","paths":["/x/.."]}]}`, `path "/x/.." is not`},
		"path twice":       {`{"nodePathMap":[{"node":"a","paths":["/a","/a/"]}]}`, "node a has path /a twice"},
		"node twice":       {`{"nodePathMap":[{"node":"a","paths":[]},{"node":"a","paths":[]}]}`, "node a twice"},
		"no node":          {`{"nodePathMap":[{"paths":["/a"]}]}`, "names no node"},
		"both":             {`{"sharedFileSystemPath":"/a","nodePathMap":[{"node":"a","paths":["/b"]}]}`, "exclude each other"},
		"bad class":        {`{"storageClassConfigs":{"fast":{"sharedFileSystemPath":"nfs"}}}`, "class fast: path"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse([]byte(c.json))
			if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Errorf("got %v, want %q", err, c.err)
			}
		})
	}
}

func TestPlaces(t *testing.T) {
	c, err := Parse([]byte(`{
		"nodePathMap": [
			{"node": "DEFAULT_PATH_FOR_NON_LISTED_NODES", "paths": ["/default"]},
			{"node": "two", "paths": ["/a/", {"path": "/b"}]},
			{"node": "none", "paths": []}],
		"setupCommand": "x",
		"storageClassConfigs": {
			"shared": {"sharedFileSystemPath": "/nfs"},
			"fast": {"nodePathMap": [{"node": "two", "paths": ["/nvme"]}]}}}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct{ node, class, want, err string }{
		{"one", "local-path", "/default", ""},
		{"two", "local-path", "/a /b", ""},
		{"none", "local-path", "", "node none has no path"},
		{"one", "shared", "", "sharedFileSystemPath in the ConfigMap"},
		{"two", "fast", "/nvme", ""},
		{"one", "fast", "", "node one is not in nodePathMap"},
	} {
		paths, err := c.Places(x.node, x.class)
		got := strings.Join(paths, " ")
		if got != x.want || (x.err == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), x.err) {
			t.Errorf("%s, %s: %q %v, want %q %q", x.node, x.class, got, err, x.want, x.err)
		}
	}
	if got := c.Bases("two"); !slices.Equal(got, []string{"/a", "/b", "/nvme"}) {
		t.Errorf("bases: %v", got)
	}
}

func TestFolder(t *testing.T) {
	names := Names{PVName: "pvc-1", PVC: Claim{Name: "data", Namespace: "shop", UID: "1", Labels: map[string]string{"app": "db"}}}
	for name, c := range map[string]struct {
		pattern string
		unsafe  bool
		want    string
		err     string
	}{
		"default":         {"", false, "pvc-1_shop_data", ""},
		"claim":           {"{{ .PVC.Namespace }}/{{ .PVC.Name }}", false, "shop/data", ""},
		"below it":        {"{{ .PVC.Namespace }}/{{.PVC.Name}}/{{.PVName}}", false, "shop/data/pvc-1", ""},
		"label":           {"{{ .PVC.Namespace }}/{{.PVC.Name}}/{{ .PVC.Labels.app }}", false, "shop/data/db", ""},
		"no such label":   {"{{ .PVC.Namespace }}/{{.PVC.Name}}/{{ .PVC.Labels.x }}", false, "", "no entry for key"},
		"another's":       {"{{ .PVC.Labels.app }}", false, "", "does not begin with shop/data/"},
		"prefix of other": {"shop/database", false, "", "does not begin with shop/data/"},
		"unsafe":          {"{{ .PVC.Labels.app }}", true, "db", ""},
		"up":              {"../../etc", true, "", "a path below the node's directory"},
		"up, claim first": {"shop/data/../../../etc", true, "", "a path below"},
		"absolute":        {"/etc", true, "", "a path below"},
		"nothing":         {"{{ if false }}x{{ end }}", true, "", "a path below"},
		"taken":           {".deleted-pvc-1", true, "", "are taken"},
		"template":        {"{{ .PVC", false, "", "reading pathPattern"},
		"no such field":   {"{{ .PVC.Status }}", false, "", "filling in pathPattern"},
		"long":            {strings.Repeat("x", 256), true, "", "255 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Folder(c.pattern, names, c.unsafe)
			if got != c.want || (c.err == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("got %q %v, want %q %q", got, err, c.want, c.err)
			}
		})
	}
	names.PVC.Name = strings.Repeat("n", 253)
	if got, _ := Folder("", names, false); len(got) != 255 || !strings.HasPrefix(got, "pvc-1_shop_n") {
		t.Errorf("a long name gives %d bytes: %s", len(got), got)
	}
}
