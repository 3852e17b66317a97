package redact

import (
	"strings"
	"testing"
)

// FuzzRedact hides known values and a password on a line of its own, whatever surrounds them.
func FuzzRedact(f *testing.F) {
	const known, password = "s3cr3t-Value-42", "hunter-2-hunter"
	for _, text := range []string{
		pem, `{"auths":{"r":{"auth":"dXNlcjpwYXNz"}}}`, "token: |\n  ", `"{\"password\":\"`, "authorization: basic ", "https://me:hunter2@example.org/x",
		"LS0tLS1CRUdJTi" + strings.Repeat("A", 40), "abc123.0123456789abcdef", "C1::", "\xff\r\n\x00",
	} {
		f.Add(text, text)
	}
	r := New(known)
	f.Fuzz(func(t *testing.T, before, after string) {
		if got := r.String(before + known + after); strings.Contains(got, known) {
			t.Errorf("the known value is in %q", got)
		}
		if got := r.String(before + "\npassword: " + password + "\n" + after); strings.Contains(got, password) {
			t.Errorf("the password is in %q", got)
		}
		Find(before)
		r.Args([]string{before, "--token", after})
	})
}
