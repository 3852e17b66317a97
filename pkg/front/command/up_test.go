package command

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/pkg/localcluster"
	"github.com/coracle-dev/coracle/test/golden"
)

func TestFillIn(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p := localcluster.Plan{Servers: 3, Images: []string{file}}
	if err := fillIn(&p); err != nil || p.Name != "local" || p.Nodes != 3 {
		t.Errorf("%+v: %v", p, err)
	}
	for want, p := range map[string]localcluster.Plan{
		"--image: ":     {Servers: 1, Images: []string{file + "x"}},
		"--config: ":    {Servers: 1, Config: file + "x"},
		"cannot hold 3": {Servers: 3, Nodes: 2},
	} {
		if err := fillIn(&p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", p, err, want)
		}
	}
}

func twoClusters(now time.Time) []localcluster.Record {
	node := func(name, role string, last byte) localcluster.Node {
		return localcluster.Node{Name: name, Role: role, IP: netip.AddrFrom4([4]byte{10, 222, 0, last})}
	}
	return []localcluster.Record{
		{
			Name: "local", State: localcluster.Running, Created: now.Add(-90 * time.Second), Network: netip.MustParsePrefix("10.222.0.0/24"),
			Nodes: []localcluster.Node{node("local-server-1", localcluster.Server, 11), node("local-agent-1", localcluster.Agent, 12)},
		},
		{
			Name: "ha", State: localcluster.Dead, Created: now.Add(-50 * time.Hour), Network: netip.MustParsePrefix("10.222.1.0/24"),
			Nodes: []localcluster.Node{node("ha-server-1", localcluster.Server, 11), node("ha-server-2", localcluster.Server, 12), node("ha-server-3", localcluster.Server, 13)},
		},
	}
}

func TestUpTexts(t *testing.T) {
	now := time.Now()
	var list strings.Builder
	if err := listText(&list, twoClusters(now), now); err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "testdata/up-list.golden", list.String())

	s := localcluster.Store{Dir: "/clusters"}
	own := twoClusters(now)[1]
	own.OtherNetwork = true
	golden.Check(t, "testdata/up-welcome.golden", upText(s, twoClusters(now)[0], true, 4*time.Second)+upText(s, own, false, 9*time.Second))
}
