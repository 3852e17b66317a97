package vm

import (
	"strconv"
	"strings"
	"testing"
	"time"

	imageutils "k8s.io/kubernetes/test/utils/image"
)

// wireGuardSteps are tried with two nodes in namespaces of one machine, whose kernel has the module.
func wireGuardSteps() []step {
	return []step{
		{"boot", (*story).boot, false},
		{"coracle up", (*story).up, false},
		{"pods on two nodes", (*story).twoPods, false},
		{"traffic is encrypted", (*story).encrypted, false},
		{"coracle down", (*story).down, false},
	}
}

func (s *story) up(t *testing.T) {
	s.m.Write("/tmp/config.yaml", "flannel-backend: wireguard-native\n")
	s.m.Sh(`mkdir -p /opt/bin; ln -s "$1" /opt/bin/coracle; ln -s "$1" /opt/bin/kubectl`, Bin)
	began := time.Now()
	t.Log(s.m.Sh(`coracle up --nodes 2 --config /tmp/config.yaml --image "$1"/agnhost.tar --wait "$2" 2>&1`, Images, s.m.Within(2*readyWithin).String()))
	s.report.Version = s.m.Sh(commit)
	s.facts["install to Ready"] = time.Since(began).Round(time.Second).String()
}

// twoPods starts a pod on each node.
func (s *story) twoPods(t *testing.T) {
	s.m.Sh(`for node in local-server-1 local-agent-1; do
	kubectl run on-$node --image="$1" --overrides='{"spec": {"nodeName": "'$node'"}}' -- netexec
done
kubectl wait --for=condition=Ready pod --all --timeout="$2"`, imageutils.GetE2EImage(imageutils.Agnhost), s.m.Within(podsWithin).String())
}

// sent is how many bytes have left the server's node by its WireGuard interface.
func (s *story) sent(t *testing.T) int {
	t.Helper()
	out := s.m.Run("coracle", "up", "exec", "local", "local-server-1", "--", "sh", "-c", "ip -d link show flannel-wg | grep -o wireguard; cat /sys/class/net/flannel-wg/statistics/tx_bytes")
	kind, bytes, _ := strings.Cut(out, "\n")
	n, err := strconv.Atoi(strings.TrimSpace(bytes))
	if kind != "wireguard" || err != nil {
		t.Fatalf("the interface is %q", out)
	}
	return n
}

func (s *story) encrypted(t *testing.T) {
	before := s.sent(t)
	s.eventually(t, `ip=$(kubectl get pod on-local-agent-1 -o jsonpath='{.status.podIP}'); kubectl exec on-local-server-1 -- probe get http://$ip:8080/hostname | grep on-local-agent-1`)
	if now := s.sent(t); now-before < 200 {
		t.Errorf("only %d bytes went through WireGuard", now-before)
	}
}

func (s *story) down(*testing.T) { s.m.Run("coracle", "down") }
