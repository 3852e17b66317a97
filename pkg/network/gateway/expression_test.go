package gateway

import (
	"fmt"
	"strings"
	"testing"
)

// TestExpressions: what people write is compiled, and what would take the memory of all servers is not.
func TestExpressions(t *testing.T) {
	for _, text := range []string{
		`/api/v[0-9]+/.*`, `(?i:/(en|de|fr)(/.*)?)(?s:.*)`, `[\p{L}\p{N}_-]{1,64}`, `[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`, `(\d{1,3}\.){3}\d{1,3}`, `/.{0,1000}`, ``,
	} {
		if _, err := CompileExpression(text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, text := range []string{
		strings.Repeat(`a{1000}`, 100), `(a{1000}b{1000}c{1000}d{1000}e{1000}f{1000})`, strings.Repeat(`(?:(?:\w{10}){10}){10}`, 50), strings.Repeat(`\pL\PL`, 100),
		`(?:` + strings.Repeat(`(x?){500}`, 9) + `)`, strings.Repeat(`(`, 999) + strings.Repeat(`)`, 999), strings.Repeat("a", 9000), `a)|(b`, `(`, `a{1000}{1000}`, strings.Repeat(`(){1000}`, 10),
	} {
		if _, err := CompileExpression(text); err == nil {
			t.Errorf("%.40s… is compiled", text)
		}
		if (Expressions{}).Check("shop", "", text) == nil {
			t.Errorf("%.40s… is admitted", text)
		}
	}
	all := Expressions{}
	for n := range 100 {
		text := fmt.Sprintf(`%d(a{1000})`, n)
		if err := all.Check("evil", "", text); (err == nil) != (n < 19) || fmt.Sprint(err) != fmt.Sprint(all.Check("evil", "", text)) {
			t.Fatalf("expression %d: %v", n, err)
		}
	}
	for n := range 19 { // those of each header take time of their own
		if err := all.Check("many", fmt.Sprint("header ", n), `(a{1000})`); err != nil {
			t.Errorf("header %d: %v", n, err)
		}
	}
	if all.Check("many", "header 99", `(a{1000})`) == nil {
		t.Error("one expression for 20 headers is admitted")
	}
	if err := all.Check("shop", "", `/a.*`); err != nil {
		t.Errorf("in another namespace: %v", err)
	}
}
