package command

import (
	"compress/gzip"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const auditLine = `{"kind":"Event","stage":"ResponseComplete","requestURI":"/api/v1/namespaces/shop/pods/web/exec?command=sh","verb":"create",` +
	`"user":{"username":"alice"},"sourceIPs":["10.0.0.7"],"userAgent":"kubectl/v1.37 (linux)","objectRef":{"resource":"pods","namespace":"shop","name":"web","subresource":"exec"},` +
	`"responseStatus":{"code":101},"requestReceivedTimestamp":"2026-11-27T10:00:00.500000Z"}`

func TestAuditShows(t *testing.T) {
	got, ok := (&auditFilter{}).show(auditLine)
	if want := "2026-11-27T10:00:00.500Z  alice  create  pods/exec  shop/web  101  10.0.0.7  kubectl/v1.37"; !ok || got != want {
		t.Errorf("%v: %q", ok, got)
	}
	evil := strings.NewReplacer("alice", `\u001b[2Jroot\n2026`, "kubectl/v1.37", `\u202e\r`).Replace(auditLine)
	if got, _ := (&auditFilter{}).show(evil); strings.ContainsAny(got, "\x1b\n\r\u202e") || !strings.Contains(got, `\x1b[2Jroot\n2026`) {
		t.Errorf("a user's words control the terminal: %q", got)
	}
	if _, ok := (&auditFilter{}).show(auditLine[:100]); ok {
		t.Error("half a line is shown")
	}
	as := strings.Replace(auditLine, `"sourceIPs"`, `"impersonatedUser":{"username":"bob"},"sourceIPs"`, 1)
	if got, _ := (&auditFilter{}).show(as); !strings.Contains(got, "  alice as bob  ") {
		t.Errorf("%q", got)
	}
}

func TestAuditFilter(t *testing.T) {
	at := time.Date(2026, 11, 27, 10, 0, 0, 0, time.UTC)
	for _, one := range []struct {
		f    auditFilter
		want bool
	}{
		{auditFilter{user: "alice"}, true}, {auditFilter{user: "al*"}, true}, {auditFilter{user: "al"}, false}, {auditFilter{user: "bob"}, false},
		{auditFilter{verbs: []string{"get", "create"}}, true}, {auditFilter{verbs: []string{"delete"}}, false},
		{auditFilter{resources: []string{"pods/exec"}}, true}, {auditFilter{resources: []string{"pods"}}, true}, {auditFilter{resources: []string{"pods/attach", "secrets"}}, false},
		{auditFilter{namespace: "shop"}, true}, {auditFilter{namespace: "default"}, false},
		{auditFilter{since: at}, true}, {auditFilter{since: at.Add(time.Second)}, false},
	} {
		if _, ok := one.f.show(auditLine); ok != one.want {
			t.Errorf("%+v selects: %v", one.f, ok)
		}
	}
}

// TestFormerAudit reads the files that kube-apiserver has put aside in their order, each once.
func TestFormerAudit(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string, zip bool) {
		t.Helper()
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if !zip {
			_, err = f.WriteString(text)
		} else {
			z := gzip.NewWriter(f)
			_, err = z.Write([]byte(text))
			z.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	put("audit-2026-11-27T11-00-00.000.log", "c\nd\nhalf", false)
	put("audit-2026-11-27T11-00-00.000.log.gz", "c\n", true) // not complete yet
	put("audit-2026-11-27T10-00-00.000.log.gz", "a\nb\n", true)
	put("audit-2026-11-27T09-00-00.000.log.gz", "", false) // the power went
	put("audit-2026-11-27T10-30-00.000.log.gz", strings.Repeat("\x00", 64), false)
	put("audit.log", "the newest\n", false)
	put("other.log", "another\n", false)
	for since, want := range map[time.Time]string{{}: "abcdhalf", time.Date(2026, 11, 27, 10, 30, 0, 0, time.UTC): "cdhalf"} {
		got := ""
		err := readFormer(filepath.Join(dir, "audit.log"), since, func(line string) error { got += line; return nil })
		if err != nil || got != want {
			t.Errorf("since %s: %q, %v", since, got, err)
		}
	}
	err := printAudit(context.Background(), filepath.Join(t.TempDir(), "audit.log"), &auditFilter{}, -1, false)
	if err == nil || !strings.Contains(err.Error(), "there is no audit log in") {
		t.Errorf("without a log: %v", err)
	}
}
