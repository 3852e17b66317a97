package gateway

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ktesting "k8s.io/client-go/testing"

	"github.com/coracle-dev/coracle/pkg/addons/gateway/translate"
)

// TestOthersSecrets: a namespace with any number of Secrets of its own where certificates would go has nothing written down, and keeps nobody waiting.
func TestOthersSecrets(t *testing.T) {
	c := newCertificates(t)
	var wanted []translate.Wanted
	for i := range 300 {
		name := fmt.Sprintf("taken-%d", i)
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "evil", Name: name}, Type: corev1.SecretType(strings.Repeat("x", 2000))}
		if err := c.client.Tracker().Add(secret); err != nil {
			t.Fatal(err)
		}
		wanted = append(wanted, want("evil", name, name+".test"))
	}
	written := 0
	c.client.PrependReactor("*", "secrets", func(action ktesting.Action) (bool, runtime.Object, error) {
		if verb := action.GetVerb(); verb != "get" && verb != "delete" {
			written++
		}
		return false, nil, nil
	})
	w := c.leader()
	again := c.run(t, w, wanted...)
	if written != 0 || len(w.ledger.book.Hosts) != 0 {
		t.Errorf("%d writes, and %d hosts in the book", written, len(w.ledger.book.Hosts))
	}
	if wait := time.Until(again); wait < 30*time.Second || wait > time.Minute {
		t.Errorf("it looks again after %s", wait)
	}
	if why := w.blocked["evil/taken-0"].why; len(why) > 500 {
		t.Errorf("%d bytes of text are kept", len(why))
	}
	late := 0
	for _, one := range w.blocked {
		if time.Until(one.until) > 10*time.Minute {
			late++
		}
	}
	if late < 50 {
		t.Errorf("%d of %d wait for long", late, len(w.blocked))
	}
	for secret, one := range w.blocked { // all are to be looked at again
		one.until = time.Time{}
		w.blocked[secret] = one
	}
	web := want("shop", "web", "a.test")
	next, _, err := w.next(t.Context(), append(wanted, web), w.candidates(append(wanted, web)))
	if err != nil || next != len(wanted) {
		t.Errorf("number %d comes first, %v", next, err)
	}
	if one := w.blocked["evil/taken-0"]; !one.until.IsZero() {
		t.Error("it was looked at before another namespace's certificate")
	}
	c.run(t, w, append(wanted, web)...)
	c.stored(t, web)
	if c.run(t, w, want("shop", "more", "b.test")); len(w.blocked) != 0 {
		t.Errorf("%d are kept that nobody wants", len(w.blocked))
	}
}
