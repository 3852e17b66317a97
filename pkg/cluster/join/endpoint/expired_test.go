package endpoint

import (
	"net/http"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-dev/coracle/pkg/cluster/join"
)

// TestRenewsExpired: a certificate that expired a month ago is renewed for the key that has the node name, and for no other.
func TestRenewsExpired(t *testing.T) {
	c := newCluster(t, nodeAt("a", "192.0.2.7"), nodeAt("unclaimed", "192.0.2.8"))
	expired := func(node string) who { return who{node: node, ago: 30 * 24 * time.Hour} }
	mine, thief := newMachine(t, "a"), newMachine(t, "a")
	if err := c.Client.CoreV1().Nodes().Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.want(t, agentToken, mine, join.PathAgent, 200, "")
	c.want(t, expired("a"), mine, join.PathAgent, 200, `"cert"`)
	if code, body := c.ask(t, expired("a"), mine, http.MethodGet, join.PathCluster, nil); code != 200 { // authentication refuses it before
		t.Error(code, body)
	}
	c.want(t, expired("a"), thief, join.PathAgent, 403, "is another machine's now") // a certificate of the CA, with another key

	recorded := *mine // what mine sent, over a connection of somebody with another key
	recorded.key = thief.key
	c.want(t, expired("a"), &recorded, join.PathAgent, 403, "for the key that it has")
	other := newMachine(t, "b")
	c.want(t, expired("a"), other, join.PathAgent, 403, "cannot have a certificate for node b")

	lost := newMachine(t, "unclaimed")
	c.want(t, who{node: "unclaimed"}, lost, join.PathAgent, 200, "") // as after a restore of an old backup
	if err := c.claims().leases().Delete(t.Context(), ClaimPrefix+"unclaimed", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.want(t, expired("unclaimed"), lost, join.PathAgent, 403, "join again with a token")

	if err := c.claims().Revoke(t.Context(), "a", mustIdentity(t, c, "a")); err != nil {
		t.Fatal(err)
	}
	c.want(t, expired("a"), mine, join.PathAgent, 403, join.ReasonRemoved)
	c.want(t, agentToken, thief, join.PathAgent, 200, "") // the next machine with the name
	c.want(t, expired("a"), mine, join.PathAgent, 403, join.ReasonRemoved)
	c.want(t, expired("a"), thief, join.PathAgent, 200, "")
}

func mustIdentity(t *testing.T, c *cluster, node string) string {
	t.Helper()
	key, err := c.claims().Holder(t.Context(), node)
	if err != nil || key == "" {
		t.Fatal(key, err)
	}
	return key
}
