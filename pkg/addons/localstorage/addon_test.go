package localstorage

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/coracle-dev/coracle/manifests"
	"github.com/coracle-dev/coracle/pkg/addons/localstorage/localpath"
	"github.com/coracle-dev/coracle/pkg/core/config"
)

func TestReport(t *testing.T) {
	r := Addon().Report
	if got := r.Lines(json.RawMessage(`{"volumes":0}`)); got != nil {
		t.Errorf("without volumes the lines are %q", got)
	}
	raw := json.RawMessage(`{"volumes":2,"quota":{"/v":"not enforced: ext4 without project quotas"},"left":["/v/pvc-1"]}`)
	want := []string{"2 on this node", "sizes in /v: not enforced: ext4 without project quotas", "/v/pvc-1 belongs to a volume that the cluster does not know any more"}
	if got := r.Lines(raw); !slices.Equal(got, want) {
		t.Errorf("lines are %q, want %q", got, want)
	}
	if problems, _ := r.Judge(raw); len(problems) != 1 || problems[0].Fails || !strings.Contains(problems[0].Text, "/v/pvc-1 holds data") {
		t.Errorf("judged %+v", problems)
	}
	problems, fine := r.Judge(json.RawMessage(`{"volumes":3,"quota":{"/v":"enforced (xfs)"}}`))
	if len(problems) != 0 || fine != "3 volumes on this node; sizes in /v: enforced (xfs)" {
		t.Errorf("judged %+v, %q", problems, fine)
	}
}

// TestManifest: the path comes as JSON inside of YAML, whatever is in it.
func TestManifest(t *testing.T) {
	network := config.Network{Domain: "cluster.local", Backend: config.VXLAN, DNS: []netip.Addr{netip.MustParseAddr("10.43.0.10")}}
	files, err := manifests.Render(config.Config{Network: network, API: config.API{LocalStorage: `/srv/"my" disk`}},
		manifests.File{Name: "local-storage.yaml", Data: manifest})
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(files, func(f manifests.File) bool { return f.Name == "local-storage.yaml" })
	for doc := range strings.SplitSeq(string(files[i].Data), "\n---\n") {
		var object struct{ Data map[string]string }
		if err := yaml.Unmarshal([]byte(doc), &object); err != nil {
			t.Fatal(err)
		}
		text, ok := object.Data[localpath.ConfigKey]
		if !ok {
			continue
		}
		paths, err := localpath.Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if places, err := paths.Places("any", "local-path"); err != nil || len(places) != 1 || places[0] != `/srv/"my" disk` {
			t.Errorf("places are %v, %v", places, err)
		}
		return
	}
	t.Error("there is no configuration")
}
