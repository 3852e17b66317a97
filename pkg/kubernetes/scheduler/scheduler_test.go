package scheduler

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"

	"github.com/coracle-dev/coracle/test/golden"
)

func TestFlags(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
	}{
		"plain": {nil},
		"args":  {[]string{"kube-api-qps=100", "secure-port=10259"}},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := Scheduler{Kubeconfig: "/var/lib/coracle/server/etc/scheduler.kubeconfig", Args: c.args}.flags()
			if err != nil {
				t.Fatal(err)
			}
			golden.Check(t, "testdata/"+name+".golden", f.String())
			if err := f.Parse("kube-scheduler", *options.NewOptions().Flags); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestMergeConfig(t *testing.T) {
	const head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
	for name, c := range map[string]struct{ user, want, err string }{
		"no connection": {user: head + "podInitialBackoffSeconds: 2\n",
			want: "clientConnection:\n  burst: 1000\n  kubeconfig: /k\n  qps: 1000\nenableProfiling: false\n"},
		"other settings of the connection": {user: head + "clientConnection:\n  qps: 100\n",
			want: "clientConnection:\n  burst: 1000\n  kubeconfig: /k\n  qps: 100\n"},
		"own kubeconfig": {user: head + "clientConnection:\n  kubeconfig: /mine\n",
			want: "clientConnection:\n  burst: 1000\n  kubeconfig: /mine\n  qps: 1000\n"},
		"profiles": {user: head + "enableProfiling: true\n", want: "enableProfiling: true\n"},
		"empty":    {user: "", err: "is empty"},
		"not yaml": {user: "a: [", err: "reading the scheduler configuration "},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := Scheduler{Kubeconfig: "/k", Config: filepath.Join(dir, "user.yaml"), Effective: filepath.Join(dir, "made", "effective.yaml")}
			if err := os.WriteFile(s.Config, []byte(c.user), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := s.flags()
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("got %v, want %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(s.Effective)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(got), c.want) {
				t.Errorf("got\n%swant in it\n%s", got, c.want)
			}
		})
	}
}
