package join

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const pin = "0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a"

func TestParseToken(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		want       Token
		err        string
	}{
		{"pinned", "C1" + pin + "::abcdef.0123456789abcdef", Token{pin, "abcdef", "0123456789abcdef", false, false}, ""},
		{"with a line's end", "C1" + pin + "::abcdef.0123456789abcdef\n", Token{pin, "abcdef", "0123456789abcdef", false, false}, ""},
		{"bootstrap token", "abcdef.0123456789abcdef", Token{"", "abcdef", "0123456789abcdef", false, false}, ""},
		{"plain", "correct-horse", Token{"", "7tm7fj", "nn0gc6t3d7sy68tj", true, true}, ""},
		{"empty", " \n", Token{}, "empty"},
		{"short", "1234567", Token{}, "too short"},
		{"long", strings.Repeat("a", 5000), Token{}, "too long"},
		{"cut at the end", "C1" + pin + "::abcdef.0123456789abc", Token{}, "not whole"},
		{"cut in the pin", "C1" + pin[:40], Token{}, "not whole"},
		{"pin of another size", "C1" + pin[2:] + "::abcdef.0123456789abcdef", Token{}, "not whole"},
		{"from a later version", "C2" + pin + "::abcdef.0123456789abcdef", Token{}, "not whole"},
		{"two words", "correct horse", Token{}, "one word"},
		{"not UTF-8", "\xff\xfe\xff\xfe\xff\xfe\xff\xfe", Token{}, "one word"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := ParseToken(tc.text)
			if tc.err == "" && (err != nil || got != tc.want) {
				t.Errorf("got %#v, %v", [...]string{got.Pin, got.ID, got.Secret}, err)
			}
			if tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestNewToken(t *testing.T) {
	a, b := NewToken(pin), NewToken(pin)
	if a == b {
		t.Errorf("twice %s", a)
	}
	if back, err := ParseToken(a.Text()); err != nil || back != a {
		t.Errorf("%s came back as %s, %v", a.Text(), back.Text(), err)
	}
}

func TestTokenHidesSecret(t *testing.T) {
	tok := NewToken(pin)
	for _, text := range []string{fmt.Sprint(tok), fmt.Sprintf("%v %+v %#v %s", tok, tok, tok, tok)} {
		if strings.Contains(text, tok.Secret) {
			t.Errorf("%s shows the secret", text)
		}
	}
}

func TestReadToken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if _, err := ReadToken(file); err == nil {
		t.Error("no error without a file")
	}
	if err := os.WriteFile(file, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadToken(file); err == nil || !strings.Contains(err.Error(), file) || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v", err)
	}
}

func FuzzParseToken(f *testing.F) {
	for _, s := range []string{"", "C1" + pin + "::abcdef.0123456789abcdef", "abcdef.0123456789abcdef", "correct-horse", "C1", "C1::", "\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		text = strings.TrimSpace(text)
		tok, err := checkToken(text)
		if err != nil {
			if tok != (Token{}) || len(text) >= minPlainLength && strings.Contains(err.Error(), text) {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		if tok == (Token{}) { // plain; deriving from each would leave time for a few only
			if len(text) < minPlainLength || len(text) > maxLength || strings.ContainsAny(text, " \n\x00") {
				t.Errorf("%q is taken for a plain token", text)
			}
			return
		}
		if !bareToken.MatchString(tok.Bearer()) || tok.Pin != "" && !pinnedToken.MatchString(tok.Text()) {
			t.Errorf("%q is %s", text, tok.Text())
		}
		if back, err := ParseToken(tok.Text()); err != nil || back != tok {
			t.Errorf("%q came back as %s, %v", text, back.Text(), err)
		}
	})
}
