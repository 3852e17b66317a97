package e2e

import (
	"archive/tar"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/slots"
)

// Secrets in the places where people put them. Each is long enough not to be a word of another text.
const (
	plantedToken    = "planted-join-token-7f3a"
	plantedAgents   = "planted-agent-token-1b9c"
	plantedSecret   = "planted-secret-object-5d2e"
	plantedVariable = "planted-variable-8c4f"
	plantedArgument = "planted-argument-2a6b"
	plantedLogin    = "planted-registry-login-9e1d"
	plantedEnv      = "planted-service-env-3c7a"
	plantedMirror   = "planted-mirror-password-6d1f"
	plantedBasic    = "planted-mirror-basic-4e8b"
	plantedIdentity = "planted-mirror-identity-2c9a"
)

const planted = `
apiVersion: v1
kind: Secret
metadata: {name: mine, namespace: default}
stringData: {value: ` + plantedSecret + `}
---
apiVersion: v1
kind: Secret
metadata: {name: login, namespace: default}
type: kubernetes.io/dockerconfigjson
stringData: {.dockerconfigjson: '{"auths":{"r.example.org":{"username":"me","password":"` + plantedLogin + `"}}}'}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: careless, namespace: kube-system}
data: {note: "the value is ` + plantedSecret + ` and the login ` + plantedLogin + `"}
---
apiVersion: v1
kind: Pod
metadata: {name: careless, annotations: {note: "` + plantedSecret + `"}}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: coracle.test/busybox:1
    command: [sh, -c, 'exec sleep 36000', --password=` + plantedArgument + `]
    env:
    - {name: PLAIN, value: ` + plantedVariable + `}
    - {name: REFERRED, valueFrom: {secretKeyRef: {name: mine, key: value}}}
`

// TestSupportBundle makes bundles of a healthy host, of one whose processes hang, and after a power cut. Each has the
// content that a bundle is for, and none has a secret.
func TestSupportBundle(t *testing.T) {
	slots.Take(t)
	h := newHost(t, "solo")
	writeHost(t, h, "/etc/coracle/config.yaml", "agent-token: "+plantedAgents+"\n")
	writeHost(t, h, "/etc/coracle/coracle.env", "CORACLE_TOKEN="+plantedEnv+"\n")
	writeHost(t, h, "/etc/coracle/certs.d/r.example.org/hosts.toml",
		"server = \"https://r.example.org\"\n[host.\"https://r.example.org\".header]\nAuthorization = \"Basic "+base64.StdEncoding.EncodeToString([]byte("me:"+plantedLogin))+"\"\n")
	writeHost(t, h, registriesFile, "configs:\n  a.test: {auth: {username: me, password: "+plantedMirror+"}}\n"+
		"  b.test:\n    auth:\n      auth: "+base64.StdEncoding.EncodeToString([]byte("me:"+plantedBasic))+"\n"+
		"  c.test:\n    auth: {identity_token: \""+plantedIdentity+"\"}\n")
	s := h.Start("--token", plantedToken)
	waitReady(t, h)
	h.Apply(planted)
	h.Kubectl("wait", "--for=condition=Ready", "pod/careless", "--timeout=3m")
	secrets := append(keysOf(t, h), plantedToken, plantedAgents, plantedSecret, plantedVariable, plantedArgument, plantedLogin, plantedEnv,
		plantedMirror, plantedBasic, base64.StdEncoding.EncodeToString([]byte("me:"+plantedBasic)), plantedIdentity)

	t.Run("well", func(t *testing.T) {
		files := bundleOf(t, h.For(t), secrets)
		for name, want := range map[string]string{
			"status.txt": "ready", "log/coracle.log": "coracle is ready", "etcd.json": `"leader"`, "runtime/containers.txt": "careless",
			"cluster/events.txt": "careless", "cluster/objects/pods.json": "coracle.test/busybox:1", "cluster/health/readyz.txt": "readyz check passed",
			"host/processes.txt": "coracle-core control-plane", "host/firewall/ip-kube-proxy.nft": "table ip kube-proxy", "host/sysctls.txt": "net.ipv4.ip_forward = 1",
			"config/etc/coracle/config.yaml": "agent-token: (removed)", "cluster/objects/configmaps.json": "the value is (removed)",
			"remembered/var/lib/coracle/ledger.json": "nft-table", "trace.txt": "kube-apiserver",
		} {
			if !strings.Contains(files[name], want) {
				t.Errorf("%s lacks %q:\n%.500s", name, want, files[name])
			}
		}
	})
	t.Run("processes hang", func(t *testing.T) {
		for _, role := range []string{"control-plane", "node"} {
			pid, err := s.ChildPID(role)
			if err != nil {
				t.Fatal(err)
			}
			mustSignal(t, pid, syscall.SIGSTOP)
			defer mustSignal(t, pid, syscall.SIGCONT)
		}
		files := bundleOf(t, h.For(t), secrets)
		for _, want := range []string{"- cluster: ", "- etcd.json: ", "- runtime/pods.txt: "} {
			if !strings.Contains(files["README.txt"], want) {
				t.Errorf("README.txt lacks %q:\n%s", want, files["README.txt"])
			}
		}
		if !strings.Contains(files["log/coracle.log"], "coracle is ready") || files["state/control-plane.json"] == "" {
			t.Error("the log or the states are missing")
		}
	})
	t.Run("power loss", func(t *testing.T) {
		pid, err := s.ChildPID("control-plane")
		if err != nil {
			t.Fatal(err)
		}
		mustSignal(t, pid, syscall.SIGKILL)
		hosts.Eventually(t, time.Minute, func() error {
			if !strings.Contains(s.Log(), "; restarting") {
				return errors.New("the end of the control plane was not noticed")
			}
			return nil
		})
		time.Sleep(time.Second) // errors are on the disk after 100 ms, other lines after 5 s
		h.Kill()
		h.Boot()
		if kept := h.For(t).Coracle("logs"); !strings.Contains(kept, "; restarting") {
			t.Errorf("the ring lacks the end of the control plane:\n%s", kept)
		}
		files := bundleOf(t, h.For(t), secrets)
		if !strings.Contains(files["log/coracle.log"], "; restarting") || !strings.Contains(files["README.txt"], "- cluster: ") {
			t.Errorf("the log is missing, or the reason for what is:\n%s", files["README.txt"])
		}
	})
}

// bundleOf makes a bundle on the host within its time limit, checks that it has no secret, and returns its files.
func bundleOf(t *testing.T, h *hosts.Host, secrets []string) map[string]string {
	t.Helper()
	const path = "/tmp/bundle.tar.gz"
	began := time.Now()
	h.Coracle("support-bundle", "--output", path)
	t.Logf("made in %s", time.Since(began).Round(100*time.Millisecond))
	if took := time.Since(began); took > 70*time.Second {
		t.Errorf("it took %s", took)
	}
	f, err := os.Open(h.Path(path))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	files := unpackBundle(t, f)
	for name, text := range files {
		for _, secret := range secrets {
			if strings.Contains(text, secret) || strings.Contains(text, base64.StdEncoding.EncodeToString([]byte(secret))) {
				t.Errorf("%s holds a secret, %.30s...", name, secret)
			}
		}
	}
	h.Run("rm", path)
	return files
}

func unpackBundle(t *testing.T, from io.Reader) map[string]string {
	t.Helper()
	plain, err := gzip.NewReader(from)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for r := tar.NewReader(plain); ; {
		header, err := r.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		_, name, _ := strings.Cut(header.Name, "/")
		files[name] = string(text)
	}
}

// keysOf returns every line of every private key on the host.
func keysOf(t *testing.T, h *hosts.Host) (lines []string) {
	t.Helper()
	err := filepath.WalkDir(h.Data(), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || !strings.HasSuffix(path, ".key") && !strings.HasSuffix(path, ".pem") {
			return err
		}
		data, err := os.ReadFile(path)
		private := false
		for line := range strings.Lines(string(data)) {
			if line = strings.TrimSpace(line); strings.HasPrefix(line, "-----") {
				private = strings.HasPrefix(line, "-----BEGIN") && strings.HasSuffix(line, "PRIVATE KEY-----")
			} else if private && len(line) > 20 {
				lines = append(lines, line)
			}
		}
		return err
	})
	if err != nil || len(lines) < 10 {
		t.Fatalf("%d lines of keys, %v", len(lines), err)
	}
	return lines
}

func writeHost(t *testing.T, h *hosts.Host, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(h.Path(path)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(h.Path(path), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func mustSignal(t *testing.T, pid int, signal syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, signal); err != nil {
		t.Error(err)
	}
}
