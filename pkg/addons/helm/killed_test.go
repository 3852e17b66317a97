package helm

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"

	"helm.sh/helm/v4/pkg/release/common"
	"k8s.io/client-go/rest"

	"github.com/coracle-dev/coracle/test/chartfile"
)

// onAPI is a bench whose clients reach a fake API server.
func onAPI(t *testing.T, api *fakeAPI) *bench {
	t.Helper()
	b := newBench(nil)
	var err error
	if b.clients, err = newClients(&rest.Config{Host: api.URL}); err != nil {
		t.Fatal(err)
	}
	b.limits = patient
	return b
}

// bring does what a reconciliation does for a chart with this hash.
func (b *bench) bring(ctx context.Context, ch *chart, hash string) error {
	w := desired{hash: hash, source: source{spec: ch.Spec}}
	var err error
	if w.history, err = b.clients.history(ctx, ch); err != nil {
		return err
	}
	return b.carryOut(ctx, ch, w, w.step(ch.Status))
}

// TestKilledAtAnyWrite ends an action at each of its writes, as a lost lease does. The next reconciliation must finish it.
func TestKilledAtAnyWrite(t *testing.T) {
	archive := chartfile.Pack(t, "web", map[string]string{
		"Chart.yaml":          "apiVersion: v2\nname: web\nversion: 1.0.0\n",
		"templates/one.yaml":  "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\n",
		"templates/other.yml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: other}\n",
	})
	for _, tt := range []struct {
		name   string
		before []string // hashes that are deployed first
		do     func(ctx context.Context, b *bench, ch *chart) error
		want   common.Status // of the newest revision
	}{
		{"install", nil, func(ctx context.Context, b *bench, ch *chart) error { return b.bring(ctx, ch, "now") },
			common.StatusDeployed},
		{"upgrade", []string{"old"}, func(ctx context.Context, b *bench, ch *chart) error { return b.bring(ctx, ch, "now") },
			common.StatusDeployed},
		{"uninstall", []string{"old"}, func(ctx context.Context, b *bench, ch *chart) error {
			history, err := b.clients.history(ctx, ch)
			if err == nil && len(history) > 0 {
				_, err = b.runOnRelease(ctx, request{Chart: ch, Step: uninstall, Newest: newestOf(history).version})
			}
			return err
		}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			last := false // the action succeeded although it was killed, which only its last write allows
			for n, killed := 1, true; killed; n++ {
				api := newAPI(t)
				b, ch := onAPI(t, api), inlineChart(archive)
				for _, hash := range tt.before {
					if err := b.bring(t.Context(), ch, hash); err != nil {
						t.Fatal(err)
					}
				}
				ctx, kill := context.WithCancel(t.Context())
				defer kill()
				var writes atomic.Int64
				api.onWrite = func() {
					if writes.Add(1) == int64(n) {
						kill()
					}
				}
				err := tt.do(ctx, b, ch)
				if killed = ctx.Err() != nil; err != nil && !killed {
					t.Fatalf("write %d: %v", n, err)
				}
				if killed && last {
					t.Fatalf("the action wrote on after write %d, at which it was killed", n-1)
				}
				last = err == nil
				api.onWrite = nil
				found, err := b.clients.history(t.Context(), ch)
				if err != nil {
					t.Fatal(err)
				}
				if err := tt.do(t.Context(), onAPI(t, api), ch); err != nil {
					t.Fatalf("write %d, history was %v: %v", n, found, err)
				}
				history, err := b.clients.history(t.Context(), ch)
				if err != nil {
					t.Fatal(err)
				}
				unfinished := func(r revision) bool { return r.status.IsPending() || r.status == common.StatusUninstalling }
				if newestOf(history).status != tt.want || slices.ContainsFunc(history, unfinished) {
					t.Errorf("write %d: history was %v, is %v", n, found, history)
				}
				if names := api.names("configmaps"); (len(names) == 2) != (tt.want != "") {
					t.Errorf("write %d: objects are %v", n, names)
				}
			}
		})
	}
}
