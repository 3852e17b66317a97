package overlay

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestWritePatched: the sources are there also where nothing has downloaded the module before, as on a machine that builds for the first time.
func TestWritePatched(t *testing.T) {
	runc := patches["runc"]
	module, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	download := exec.Command("go", "mod", "download", runc.module)
	download.Dir = module
	if out, err := download.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cache, err := exec.Command("go", "env", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOPROXY", "file://"+filepath.Join(strings.TrimSpace(string(cache)), "cache", "download"))
	t.Setenv("GOMODCACHE", t.TempDir())
	t.Setenv("GOFLAGS", "-modcacherw") // or the directory cannot be removed
	out := t.TempDir()
	if err := WritePatched("runc", module, out); err != nil {
		t.Fatal(err)
	}
	for _, c := range runc.changes {
		if data, err := os.ReadFile(filepath.Join(out, "runc", c.file)); err != nil || !strings.Contains(string(data), c.new) {
			t.Errorf("%s is not changed: %v", c.file, err)
		}
	}
}

// TestChange: a text that upstream has changed or has more than once is an error that names the file.
func TestChange(t *testing.T) {
	c := change{file: "a/b.go", old: "old()\n", new: "new()\n"}
	if got, err := c.apply([]byte("x\nold()\ny\n")); err != nil || string(got) != "x\nnew()\ny\n" {
		t.Errorf("%q, %v", got, err)
	}
	for _, text := range []string{"x\n", "old()\nold()\n"} {
		if _, err := c.apply([]byte(text)); err == nil || !strings.Contains(err.Error(), "a/b.go") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestPatched runs our tests of changed modules, upstream's of fifo, and those of the gateway with the Caddy that is linked.
func TestPatched(t *testing.T) {
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	if err := WritePatched("apiserver,client-go,controller-manager,fifo,kubernetes,caddy,cadvisor,cgroups,jsonschema,controller-runtime,quic-go,knftables,yaml", root, out); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"cgroups/fs", "jsonschema", "knftables", "quic-go/http3"} { // they want what is not read, the Internet, flow tables, and modules of tests
		upstream, err := filepath.Glob(filepath.Join(out, dir, "*_test.go"))
		if err != nil || len(upstream) == 0 {
			t.Fatalf("upstream's tests of %s are %q, %v", dir, upstream, err)
		}
		for _, file := range upstream {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		}
	}
	for dir, file := range map[string]string{
		"apiserver/pkg/server/options":                  "files/apiserver/options_test.go.txt",
		"apiserver/pkg/storage/cacher":                  "files/apiserver/cacher_test.go.txt",
		"apiserver/pkg/storage/storagebackend/factory":  "files/apiserver/factory_test.go.txt",
		"controller-manager/pkg/clientbuilder":          "files/controller-manager/clientbuilder_test.go.txt",
		"controller-runtime/pkg/client/apiutil":         "files/controller-runtime/apiutil_test.go.txt",
		"jsonschema":                                    "files/jsonschema/jsonschema_test.go.txt",
		"cadvisor/manager":                              "files/cadvisor/manager_test.go.txt",
		"cgroups/fs":                                    "files/cgroups/fs_test.go.txt",
		"fifo":                                          "files/fifo/fifo_test.go.txt",
		"kubernetes/pkg/kubelet/certificate":            "files/kubernetes/certificate_test.go.txt",
		"kubernetes/pkg/kubelet/client":                 "files/kubernetes/client_test.go.txt",
		"kubernetes/pkg/kubelet/images":                 "files/kubernetes/images_test.go.txt",
		"kubernetes/pkg/kubelet/logs":                   "files/kubernetes/logs_test.go.txt",
		"kubernetes/pkg/kubelet/pleg":                   "files/kubernetes/pleg_test.go.txt",
		"kubernetes/pkg/proxy/iptables":                 "files/kubernetes/iptables_test.go.txt",
		"knftables":                                     "files/knftables/nftables_test.go.txt",
		"yaml":                                          "files/yaml/yaml_test.go.txt",
		"quic-go/http3":                                 "files/quic-go/http3_test.go.txt",
		"kubernetes/pkg/kubelet/volumemanager/ondemand": "files/kubernetes/ondemand_test.go.txt",
	} {
		data, err := files.ReadFile(file)
		if err == nil {
			err = os.WriteFile(filepath.Join(out, dir, "coracle_test.go"), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	tags, err := os.ReadFile(filepath.Join(root, "scripts/tags"))
	if err != nil {
		t.Fatal(err)
	}
	// With the settings of scripts/build, which has compiled most of it.
	test := exec.Command("go", "test", "-trimpath", "-tags", strings.TrimSpace(string(tags)), "-count=1", "-timeout=1m", "-modfile", filepath.Join(out, "go.mod"), patches["fifo"].module,
		"k8s.io/kubernetes/pkg/kubelet/certificate", "k8s.io/kubernetes/pkg/kubelet/client", "k8s.io/kubernetes/pkg/kubelet/images", "k8s.io/kubernetes/pkg/kubelet/logs", "k8s.io/kubernetes/pkg/kubelet/pleg", "k8s.io/kubernetes/pkg/kubelet/volumemanager/ondemand",
		"k8s.io/kubernetes/pkg/proxy/iptables",
		"./pkg/network/gateway/dataplane", "./pkg/network/gateway/http3", patches["quic-go"].module+"/http3", "github.com/google/cadvisor/lib/manager", "github.com/opencontainers/cgroups/fs",
		patches["jsonschema"].module, patches["knftables"].module, patches["yaml"].module, "k8s.io/apiserver/pkg/server/options", "k8s.io/apiserver/pkg/storage/cacher", "k8s.io/controller-manager/pkg/clientbuilder", "k8s.io/apiserver/pkg/storage/storagebackend/factory", "sigs.k8s.io/controller-runtime/pkg/client/apiutil")
	test.Dir = root
	if out, err := test.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
