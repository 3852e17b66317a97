package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-dev/coracle/test/hosts"
)

// storedSecrets returns what the first bytes of all Secrets in etcd say of their encryption, with how many there are of each.
func storedSecrets(t *testing.T, c *hosts.Cluster, h *hosts.Host) map[string]int {
	t.Helper()
	all := map[string]int{}
	err := c.Etcd(h, func(ctx context.Context, client *clientv3.Client, _ string) error {
		got, err := client.Get(ctx, "/registry/secrets/", clientv3.WithPrefix())
		for _, kv := range got.Kvs {
			mark := "plain"
			if strings.HasPrefix(string(kv.Value), "k8s:enc:") {
				mark = strings.Join(strings.SplitN(string(kv.Value), ":", 6)[:5], ":")
			}
			all[mark]++
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// secretsLoad writes and reads Secrets through all servers until it is stopped: what one server has written another one reads.
type secretsLoad struct {
	stop   context.CancelFunc
	wg     sync.WaitGroup
	mu     sync.Mutex
	asked  int
	failed []string
}

func startSecretsLoad(t *testing.T, c *hosts.Cluster, servers ...*hosts.Host) *secretsLoad {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &secretsLoad{stop: cancel}
	for i, h := range servers {
		write, err := c.Client(h, hosts.OwnAPI)
		if err != nil {
			t.Fatal(err)
		}
		read, err := c.Client(servers[(i+1)%len(servers)], hosts.OwnAPI)
		if err != nil {
			t.Fatal(err)
		}
		l.wg.Go(func() {
			tick := time.NewTicker(75 * time.Millisecond)
			defer tick.Stop()
			for n := 0; ctx.Err() == nil; n++ {
				name := fmt.Sprintf("load-%d-%d", i, n%20)
				secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string][]byte{"n": fmt.Appendf(nil, "%d", n)}}
				var err error
				if n < 20 {
					_, err = write.CoreV1().Secrets("default").Create(ctx, secret, metav1.CreateOptions{})
				} else {
					_, err = write.CoreV1().Secrets("default").Update(ctx, secret, metav1.UpdateOptions{})
				}
				l.note(ctx, err)
				got, err := read.CoreV1().Secrets("default").Get(ctx, name, metav1.GetOptions{})
				if err == nil && string(got.Data["n"]) != fmt.Sprint(n) {
					err = fmt.Errorf("%s has %s instead of %d", name, got.Data["n"], n)
				}
				l.note(ctx, err)
				<-tick.C
			}
		})
	}
	return l
}

func (l *secretsLoad) note(ctx context.Context, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked++
	if err != nil && ctx.Err() == nil {
		l.failed = append(l.failed, err.Error())
	}
}

func (l *secretsLoad) end(t *testing.T) {
	t.Helper()
	l.stop()
	l.wg.Wait()
	t.Logf("%d requests for Secrets, %d failed", l.asked, len(l.failed))
	for _, err := range l.failed[:min(5, len(l.failed))] {
		t.Error(err)
	}
}

// testSecretsKeys changes the keys with which Secrets are encrypted while all servers write and read some.
func testSecretsKeys(t *testing.T, c *hosts.Cluster) {
	first, second, third := c.Servers[0], c.Servers[1], c.Servers[2]
	first.Kubectl("create", "secret", "generic", "treasure", "--from-literal=word=hidden word")
	defer first.Kubectl("delete", "secrets", "--all")
	if got := storedSecrets(t, c, second); got["k8s:enc:secretbox:v1:key1"] == 0 || len(got) != 1 {
		t.Fatalf("a new cluster's Secrets are %v", got)
	}
	load := startSecretsLoad(t, c, c.Servers...)
	began := time.Now()
	for _, step := range []string{"prepare", "rotate", "reencrypt"} {
		t.Logf("%s: %s", step, second.Coracle("secrets-encrypt", step))
	}
	t.Logf("rotated after %.1f s", time.Since(began).Seconds())
	if got := storedSecrets(t, c, third); got["k8s:enc:secretbox:v1:key2"] == 0 || len(got) != 1 {
		t.Errorf("after the keys were rotated Secrets are %v", got)
	}

	t.Log(third.Coracle("secrets-encrypt", "disable"))
	if got := storedSecrets(t, c, first); len(got) != 1 || got["plain"] == 0 {
		t.Errorf("after encryption was disabled Secrets are %v", got)
	}
	if out := first.Coracle("secrets-encrypt", "status"); !strings.Contains(out, "Encryption Status: Disabled") || !strings.Contains(out, "All hashes match") {
		t.Error(out)
	}
	t.Log(first.Coracle("secrets-encrypt", "enable"))
	if out := first.Coracle("secrets-encrypt", "status"); !strings.Contains(out, "Encryption Status: Enabled\nCurrent Rotation Stage: reencrypt_finished\nServer Encryption Hashes: All hashes match") {
		t.Error(out)
	}
	load.end(t)
	killedChange(t, c, first)
	for _, h := range c.Servers {
		for _, line := range c.Running(h).Errors() {
			if strings.Contains(line, "encrypt") {
				t.Errorf("%s: %s", h.Name, line)
			}
		}
	}
	removedKeys(t, c, first)
}

// removedKeys removes the keys from etcd: servers put them back, and no Secret is lost.
func removedKeys(t *testing.T, c *hosts.Cluster, h *hosts.Host) {
	const record = "/registry/coracle.io/encryption"
	err := c.Etcd(h, func(ctx context.Context, client *clientv3.Client, _ string) error {
		_, err := client.Delete(ctx, record)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	hosts.Eventually(t, time.Minute, func() error {
		return c.Etcd(h, func(ctx context.Context, client *clientv3.Client, _ string) error {
			got, err := client.Get(ctx, record)
			if err == nil && len(got.Kvs) == 0 {
				err = errors.New("the keys are still gone")
			}
			return err
		})
	})
	h.Kubectl("create", "secret", "generic", "later", "--from-literal=word=another")
	if got := storedSecrets(t, c, h); len(got) != 1 || got["plain"] != 0 {
		t.Errorf("after the keys were put back Secrets are %v", got)
	}
	for _, h := range c.Servers {
		if got := h.Kubectl("get", "secret", "treasure", "-o", "jsonpath={.data.word}"); got != "aGlkZGVuIHdvcmQ=" {
			t.Errorf("after the keys were put back %s reads %q", h.Name, got)
		}
	}
}

// killedChange kills a change of the keys. Two operators on other servers repeat it at once: each ends it, or is told who is at it, and can repeat it.
func killedChange(t *testing.T, c *hosts.Cluster, h *hosts.Host) {
	const after = 1500 * time.Millisecond
	killed, err := h.KillCoracle(after, "secrets-encrypt", "rotate-keys")
	t.Logf("killed after %s: %t, %v", after, killed, err)
	if !killed && err != nil {
		t.Fatal(err)
	}
	c.Unlock(h)
	var both sync.WaitGroup
	for _, operator := range c.Servers[1:] {
		both.Go(func() {
			attempts := 0
			hosts.Eventually(t, time.Minute, func() error {
				_, err := operator.TryCoracle("secrets-encrypt", "rotate-keys")
				attempts++
				if err != nil && !lockedBy.MatchString(err.Error()) {
					t.Errorf("%s: %v", operator.Name, err)
				}
				return err
			})
			t.Logf("%s has changed the keys at attempt %d", operator.Name, attempts)
		})
	}
	both.Wait()
	if got := storedSecrets(t, c, h); len(got) != 1 || got["plain"] != 0 {
		t.Errorf("after a change was killed and repeated Secrets are %v", got)
	}
	if got := h.Kubectl("get", "secret", "treasure", "-o", "jsonpath={.data.word}"); got != "aGlkZGVuIHdvcmQ=" {
		t.Errorf("after a killed change a Secret is %q", got)
	}
}

// lockedBy is what is said while another command changes the keys.
var lockedBy = regexp.MustCompile(`the encryption keys are being changed by process [0-9]+ on server-[123], since [0-9:]+: wait for it`)

// passphraseFlag has a server seal the keys of Secrets with a passphrase.
const passphraseFlag = "--secrets-encryption-passphrase-file=/etc/coracle/passphrase"

// withPassphrase prepares servers for it.
func withPassphrase(t *testing.T) func(*hosts.Host) []string {
	return func(h *hosts.Host) []string {
		if !strings.HasPrefix(h.Name, "server") {
			return nil
		}
		if err := os.WriteFile(h.Path("/etc/coracle/passphrase"), []byte("the word of the house\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return []string{passphraseFlag}
	}
}

// createTreasure creates a Secret, which checkTreasure reads.
func createTreasure(h *hosts.Host) {
	h.Kubectl("create", "secret", "generic", "treasure", "--from-literal=word=hidden word")
}

func checkTreasure(t *testing.T, h *hosts.Host) {
	t.Helper()
	if got := h.Kubectl("get", "secret", "treasure", "-o", "jsonpath={.data.word}"); got != "aGlkZGVuIHdvcmQ=" {
		t.Errorf("a Secret is %q", got)
	}
}

// testPassphrase seals the keys with a passphrase: a server that lacks it, or has another one, says so, and its API does not start; what it has
// on its disk does not open the Secrets.
func testPassphrase(t *testing.T, h *hosts.Host, s *hosts.Server) *hosts.Server {
	file := func(name, text string) string {
		path := "/etc/coracle/" + name
		if err := os.WriteFile(h.Path(path), []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return "--secrets-encryption-passphrase-file=" + path
	}
	right, wrong := file("right", "the word of the house"), file("wrong", "the word of a thief")
	restart := func(args ...string) {
		t.Helper()
		if err := s.Stop(); err != nil {
			t.Fatal(err)
		}
		s = h.Start(args...)
	}
	readable := func(sealed bool) {
		t.Helper()
		waitReady(t, h)
		checkTreasure(t, h)
		if out := h.Coracle("secrets-encrypt", "status"); strings.Contains(out, "Keys Sealed With: cluster CA, passphrase") != sealed {
			t.Error(out)
		}
	}
	refused := func(want string, args ...string) {
		t.Helper()
		restart(args...)
		hosts.Eventually(t, time.Minute, func() error {
			if !strings.Contains(s.Log(), want) {
				return fmt.Errorf("it does not say %q", want)
			}
			return nil
		})
		if _, err := h.Try("kubectl", "get", "secrets", "--request-timeout=1s"); err == nil {
			t.Error("the API serves Secrets")
		}
	}
	createTreasure(h)
	defer func() { h.Kubectl("delete", "secret", "treasure") }()
	if out, err := h.TryCoracle("secrets-encrypt", "seal"); err == nil || !strings.Contains(err.Error(), "there is no passphrase") {
		t.Errorf("%v: %s", err, out)
	}
	restart(right)
	readable(false)
	if out := h.Coracle("secrets-encrypt", "seal"); !strings.Contains(out, "all servers can read with the new key") || !strings.Contains(out, "Secrets were written with") {
		t.Errorf("the key is not replaced: %s", out)
	}
	readable(true)
	refused("the cluster's encryption keys are sealed with a passphrase: name a file with it")
	refused("the cluster's encryption keys are sealed with another passphrase than that in ", wrong)
	restart(right)
	readable(true)
	t.Log(h.Coracle("secrets-encrypt", "rotate-keys"))
	readable(true)
	t.Log(h.Coracle("secrets-encrypt", "unseal"))
	restart()
	readable(false)
	return s
}
