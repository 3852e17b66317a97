package endpoint

import (
	"errors"
	"strings"
	"testing"
	"time"

	logtest "github.com/sirupsen/logrus/hooks/test"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/coracle-dev/coracle/pkg/core/config"
)

func TestTokenIsASecretAndBack(t *testing.T) {
	for _, want := range []Token{
		{ID: "abcdef", Secret: "0123456789abcdef", Role: config.Agent},
		{ID: "abcdef", Secret: "0123456789abcdef", Role: config.Server, Replace: true, Description: "the cellar",
			Expires: time.Now().Add(time.Hour).UTC().Truncate(time.Second), From: "server-1"},
	} {
		got, ok := TokenOf(want.Object())
		if !ok || got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	other := Token{ID: "abcdef", Secret: "0123456789abcdef", Role: config.Agent}.Object()
	other.Data["auth-extra-groups"] = []byte("system:bootstrappers:kubeadm:default-node-token")
	if got, ok := TokenOf(other); ok {
		t.Errorf("somebody else's token is %+v", got)
	}
}

// TestExpired is as Kubernetes decides whether a token is valid: one with a time that cannot be read is not.
func TestExpired(t *testing.T) {
	for text, want := range map[string]bool{
		"": false, time.Now().Add(time.Hour).Format(time.RFC3339): false, time.Now().Add(-time.Hour).Format(time.RFC3339): true, "tomorrow": true,
	} {
		s := Token{ID: "abcdef", Secret: "0123456789abcdef", Role: config.Agent}.Object()
		s.Data["expiration"] = []byte(text)
		if got, ok := TokenOf(s); !ok || got.Expired() != want {
			t.Errorf("with %q it has expired: %v", text, !want)
		}
	}
}

// TestStartedWith goes through the life of a token that a server is started with.
func TestStartedWith(t *testing.T) {
	client := fake.NewClientset()
	log, logged := logtest.NewNullLogger()
	secrets := func() string {
		t.Helper()
		all, err := Tokens(t.Context(), client)
		if err != nil {
			t.Fatal(err)
		}
		var texts []string
		for _, tok := range all {
			texts = append(texts, tok.ID+"."+tok.Secret+"@"+tok.From)
		}
		return strings.Join(texts, " ")
	}
	start := func(server, want string, tokens ...Token) {
		t.Helper()
		logged.Reset()
		if err := StartedWith(t.Context(), client, server, tokens, log); err != nil {
			t.Fatal(err)
		}
		if got := secrets(); got != want {
			t.Errorf("there are %s, want %s", got, want)
		}
	}
	plain := Token{ID: "aaaaaa", Secret: "1111111111111111", Role: config.Server}
	start("server-1", "aaaaaa.1111111111111111@server-1", plain)
	start("server-1", "aaaaaa.1111111111111111@server-1", plain)
	if err := Create(t.Context(), client, Token{ID: "bbbbbb", Secret: "2222222222222222", Role: config.Agent}); err != nil {
		t.Fatal(err)
	}
	start("server-2", "aaaaaa.1111111111111111@server-1 bbbbbb.2222222222222222@")

	rotated, err := Rotate(t.Context(), client, "aaaaaa", "3333333333333333")
	if err != nil || rotated.Secret != "3333333333333333" || rotated.Role != config.Server {
		t.Fatalf("%+v, %v", rotated, err)
	}
	start("server-1", "aaaaaa.3333333333333333@server-1 bbbbbb.2222222222222222@", plain)
	if entry := logged.LastEntry(); entry == nil || !strings.Contains(entry.Message, "was rotated") {
		t.Errorf("nobody is told: %v", entry)
	}
	plain.Secret = "3333333333333333"
	start("server-1", "aaaaaa.3333333333333333@server-1 bbbbbb.2222222222222222@", plain)
	if logged.LastEntry() != nil {
		t.Errorf("it says %s", logged.LastEntry().Message)
	}
	start("server-1", "bbbbbb.2222222222222222@")

	if err := Remove(t.Context(), client, "bbbbbb"); err != nil {
		t.Error(err)
	}
	for _, err := range []error{Remove(t.Context(), client, "bbbbbb"), rotate(t, client, "bbbbbb")} {
		if !errors.Is(err, ErrNoToken) {
			t.Errorf("got %v", err)
		}
	}
}

func rotate(t *testing.T, client *fake.Clientset, id string) error {
	_, err := Rotate(t.Context(), client, id, "4444444444444444")
	return err
}
