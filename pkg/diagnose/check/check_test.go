package check

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coracle-dev/coracle/test/golden"
)

// one is the result of the worst verdict and all that they say.
func one(v []Verdict) (Result, string) {
	worst, text := OK, ""
	for _, x := range v {
		if worse(x.Result, worst) {
			worst = x.Result
		}
		text += string(x.Result) + " " + x.Finding + "; " + x.Fix + "\n"
	}
	return worst, text
}

// expect compares verdicts with a result and texts that they must have.
func expect(t *testing.T, got []Verdict, want Result, texts ...string) {
	t.Helper()
	result, text := one(got)
	if result != want || len(got) == 0 {
		t.Errorf("%s, want %s: %s", result, want, text)
	}
	for _, s := range texts {
		if !strings.Contains(text, s) {
			t.Errorf("%q lacks %q", text, s)
		}
	}
}

func probe(name string, v ...Verdict) Probe {
	return Probe{Name: name, About: "about " + name, Run: func(context.Context) []Verdict { return v }}
}

func TestReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := Probe{Name: "disk", About: "a disk that hangs", Run: func(ctx context.Context) []Verdict {
			time.Sleep(time.Hour)
			return Okf("too late")
		}}
		r := Run(t.Context(), []Probe{
			probe("first", Verdict{OK, "all is well", ""}),
			probe("second", Verdict{Fail, "this is broken", "mend it"}, Verdict{Warn, "that is odd", "look at it"}),
			probe("third", Verdict{Skipped, "there is nothing", ""}),
			hang,
		}, Limit{Answer: time.Second})
		if r.Result != Fail || len(r.Rows) != 5 {
			t.Errorf("%s, %d rows", r.Result, len(r.Rows))
		}
		if late := r.Rows[4]; late.Result != Fail || late.Took < 1000 || late.Took > 2000 {
			t.Errorf("%+v", late)
		}
		var b strings.Builder
		if err := r.Text(&b, false); err != nil {
			t.Fatal(err)
		}
		golden.Check(t, "testdata/report.golden", []byte(b.String()))
		b.Reset()
		if err := r.Text(&b, true); err != nil || !strings.Contains(b.String(), "\x1b[31mfail") {
			t.Errorf("%q (%v)", b.String(), err)
		}
		time.Sleep(time.Hour) // until the one that hangs has ended
	})
	if r := Run(t.Context(), []Probe{probe("a", Verdict{Skipped, "x", ""})}, Limit{Answer: time.Second}); r.Result != OK {
		t.Errorf("being skipped is %s", r.Result)
	}
}

// TestSlowProbe finds a probe that a slow machine does not let finish.
func TestSlowProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		modules := Probe{Name: "modules", Run: func(context.Context) []Verdict {
			time.Sleep(20 * time.Second)
			return Okf("loaded")
		}}
		var slow []string
		r := Run(t.Context(), []Probe{modules}, Limit{Answer: time.Second, Patience: time.Minute, Slow: func(p Probe) { slow = append(slow, p.Name) }})
		if r.Result != OK || r.Rows[0].Finding != "loaded" || len(slow) != 1 {
			t.Errorf("%+v, slow: %q", r, slow)
		}
	})
}

func TestOnly(t *testing.T) {
	all := []Probe{probe("a"), probe("b"), probe("c")}
	if kept, err := Only(all, []string{"c", "a"}); err != nil || strings.Join(Names(kept), " ") != "c a" {
		t.Errorf("%v, %v", Names(kept), err)
	}
	if kept, err := Only(all, nil); err != nil || len(kept) != 3 {
		t.Errorf("%v, %v", Names(kept), err)
	}
	if _, err := Only(all, []string{"x"}); err == nil || !strings.Contains(err.Error(), `"x"; there are a, b, c`) {
		t.Error(err)
	}
}

// TestTable finds rows that people could not name or read.
func TestTable(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range (&Machine{}).Probes() {
		if seen[p.Name] || p.Name != strings.ToLower(p.Name) || strings.ContainsAny(p.Name, " ,_") || p.About == "" {
			t.Errorf("%q, %q", p.Name, p.About)
		}
		seen[p.Name] = true
	}
}
