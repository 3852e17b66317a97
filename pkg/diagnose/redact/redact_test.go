package redact

import (
	"encoding/base64"
	"reflect"
	"slices"
	"strings"
	"testing"
)

const pem = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIPfoobarfoobarfoobarfoobar\nAAAA\n-----END EC PRIVATE KEY-----\n"

func TestRules(t *testing.T) {
	pin := strings.Repeat("0f", 32)
	for _, c := range []struct{ name, in, want string }{
		{"nothing", "2026-11-21T10:44:00.123Z INFO  kubelet: ready took=12ms", ""},
		{"pem", "a\n" + pem + "b", "a\n(removed)\nb"},
		{"pem on one line", strings.ReplaceAll("x "+pem, "\n", `\n`), `x (removed)\n`},
		{"secret like a path", "etcd-s3-secret-key: /AbC+dEf0123456789", "etcd-s3-secret-key: (removed)"},
		{"argument like a path", "server --token=/AbC+dEf0123456789 --v=2", "server --token=(removed) --v=2"},
		{"password in brackets", "password: (hunter2", "password: (removed)"},
		{"path", "signing-key: /etc/keys/one", ""},
		{"torn pem", "-----BEGIN PRIVATE KEY-----\nMIIEv", "(removed)"},
		{"certificate", "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----", ""},
		{"key in base64", "client-key-data: " + base64.StdEncoding.EncodeToString([]byte(pem)), "client-key-data: (removed)"},
		{"certificate in base64", "certificate-authority-data: " + base64.StdEncoding.EncodeToString([]byte("-----BEGIN CERTIFICATE-----\nMIIBdjCC\n")), ""},
		{"web token", "got eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrdWJlcm5ldGVz.c2lnbmF0dXJl now", "got (removed) now"},
		{"join token", "CORACLE C1" + pin + "::abcdef.0123456789abcdef", "CORACLE C1" + pin + "::(removed)"},
		{"bootstrap token", `using "abc123.0123456789abcdef"`, `using "(removed)"`},
		{"host name", "events.somethingelsehere", ""},
		{"bearer", "Bearer 0123456789abcdef", "Bearer (removed)"},
		{"header", `"Authorization": ["Basic dXNlcjpwYXNz"]`, `"Authorization": ["Basic (removed)"]`},
		{"address", "https://me:hunter2@example.org/x", "https://me:(removed)@example.org/x"},
		{"registry", `{"auths":{"r":{"auth":"dXNlcjpwYXNz"}}}`, `{"auths":{"r":{"auth":"(removed)"}}}`},
		{"registry in a string", `"{\"auths\":{\"r\":{\"auth\":\"dXNlcjpwYXNz\"}}}"`, `"{\"auths\":{\"r\":{\"auth\":\"(removed)\"}}}"`},
		{"registry in YAML", "auth:\n  auth: 'bWU6aHVudGVyNCE='\nx: {auth: {auth: bWU6aHVudGVyNCE=}}\nauth: kubernetes", "auth:\n  auth: '(removed)'\nx: {auth: {auth: (removed)}}\nauth: kubernetes"},
		{"registry in TOML", "[x.auth]\n  auth = 'bWU6aHVudGVyNCE='\ny = {auth=\"bWU6aHVudGVyNCE=\"}", "[x.auth]\n  auth = '(removed)'\ny = {auth=\"(removed)\"}"},
		{"yaml", "password: hunter2\nuser: me", "password: (removed)\nuser: me"},
		{"yaml with blanks", "  password: correct horse\n  - token: a b # c\npasswords:\n", "  password: (removed)\n  - token: (removed)\npasswords:\n"},
		{"log with blanks", "12:00 INFO token: not there", "12:00 INFO token: (removed) there"},
		{"json", `{"dbPassword": "hun\"ter2", "n": 1}`, `{"dbPassword": "(removed)", "n": 1}`},
		{"json in a string", `"{\"password\":\"hunter2\"}"`, `"{\"password\":\"(removed)\"}"`},
		{"flag", "--token=hunter2 --token-file=/etc/t", "--token=(removed) --token-file=/etc/t"},
		{"environment", "MYSQL_ROOT_PASSWORD=hunter2", "MYSQL_ROOT_PASSWORD=(removed)"},
		{"references", `"secretName": "web-tls", "automountServiceAccountToken": true, "tokenExpirationSeconds": 3607`, ""},
		{"words of logs", `secret "web" not found controller="token-cleaner"`, ""},
		{"path", "key: /etc/x, private-key-file: a.pem", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.want == "" {
				c.want = c.in
			}
			if got := new(Redactor).String(c.in); got != c.want {
				t.Errorf("%q\nbecame %q\nwant   %q", c.in, got, c.want)
			}
			if again := new(Redactor).String(c.want); again != c.want {
				t.Errorf("%q became %q the second time", c.want, again)
			}
		})
	}
}

// TestValue: secrets in decoded configuration go by the names of their fields, also in lists and below headers, and nothing else does.
func TestValue(t *testing.T) {
	in := map[string]any{
		"apiKeys": []any{"one", "two"}, "staticPodURLHeader": map[string]any{"X": []any{"three"}}, "tokenNumber": 123456789, "url": "https://me:four@r",
		"auth": map[string]any{"username": "me", "auth": "five"}, "password": map[string]any{"a": "six"}, "none": nil,
		"tokenFile": "seven", "port": 10250, "requestheader-username-headers": []any{"X-Remote-User"}, "signing-key": "/etc/eight",
	}
	want := map[string]any{
		"apiKeys": []any{Removed, Removed}, "staticPodURLHeader": map[string]any{"X": []any{Removed}}, "tokenNumber": Removed, "url": "https://me:" + Removed + "@r",
		"auth": map[string]any{"username": "me", "auth": Removed}, "password": map[string]any{"a": Removed}, "none": nil,
		"tokenFile": "seven", "port": 10250, "requestheader-username-headers": []any{"X-Remote-User"}, "signing-key": "/etc/eight",
	}
	if got := new(Redactor).Value("", in); !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestKnown(t *testing.T) {
	r := New("correct horse", "x1y2z3", "short", "", "line one of it all\nline two of it all\n", "correct horse battery")
	for _, c := range []struct{ in, want string }{
		{"the correct horse", "the (removed)"},
		{"the correct horse battery", "the (removed)"},
		{base64.StdEncoding.EncodeToString([]byte("correct horse")), Removed},
		{"correct+horse", Removed},
		{"shortly", "shortly"},
		{"ax1y2z3b", "a(removed)b"},
		{"  line two of it all", "  (removed)"},
	} {
		if got := r.String(c.in); got != c.want {
			t.Errorf("%q became %q, want %q", c.in, got, c.want)
		}
	}
	if got := New().String("anything"); got != "anything" {
		t.Errorf("without values, it became %q", got)
	}
}

func TestFind(t *testing.T) {
	login := base64.StdEncoding.EncodeToString([]byte("me:hunter2!"))
	got := Find("a: b\npassword: hunter1!\ntokenFile: /x\n" + `{"auths":{"r":{"auth":"` + login + `"}}}` + "\nAPI_KEY='hunter3!'\n    auth: bWU6aHVudGVyNCE=\n  r: {auth: {auth: \"bWU6aHVudGVyNSE=\"}}\nauth: ordinary")
	if want := "hunter1! hunter1! hunter3! " + login + " hunter2! bWU6aHVudGVyNCE= hunter4! bWU6aHVudGVyNSE= hunter5!"; strings.Join(got, " ") != want {
		t.Errorf("%q", got)
	}
}

func TestArgs(t *testing.T) {
	got := new(Redactor).Args([]string{"coracle", "server", "--token", "hunter2", "-t", "hunter2", "--token-file", "/t", "--agent-token=hunter2", "--password", "hunter2", "--v", "2"})
	if want := "coracle server --token (removed) -t (removed) --token-file /t --agent-token=(removed) --password (removed) --v 2"; strings.Join(got, " ") != want {
		t.Errorf("%s", strings.Join(got, " "))
	}
}

// BenchmarkLog is what lines of log cost.
func BenchmarkLog(b *testing.B) {
	r := New("correct horse battery staple", "another secret of the cluster")
	text := strings.Repeat(`2026-11-21T10:44:00.123Z INFO  kube-controller-manager: Caches are synced controller="token_cleaner"
2026-11-21T10:44:00.123Z INFO  kubelet: "Started container" pod="default/web-6d9f7c5b7d-abcde" containerName=web after=1.2s
2026-11-21T10:44:00.123Z WARN  etcd: apply request took too long took=120ms expected=100ms prefix=read-only range
`, 1000)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		r.String(text)
	}
}

func TestSecretValues(t *testing.T) {
	got := SecretValues(map[string][]byte{
		"username": []byte("postgres"), "usage-bootstrap-signing": []byte("true"), "config.yaml": []byte("db:\n  password: hunter2!\n"),
		"license": []byte("a plain text"),
	})
	if !slices.Contains(got, "hunter2!") || !slices.Contains(got, "a plain text") || slices.Contains(got, "postgres") || slices.Contains(got, "true") {
		t.Errorf("%q", got)
	}
}
