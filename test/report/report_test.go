package main

import (
	"bufio"
	"strings"
	"testing"

	"github.com/coracle-dev/coracle/test/slots"
)

// events are those of a package with a test that passes, one that fails in a subtest, one that is skipped, and one that
// takes as long as it may.
const events = `{"Action":"start","Package":"github.com/coracle-dev/coracle/test/e2e"}
{"Action":"run","Package":"github.com/coracle-dev/coracle/test/e2e","Test":"TestGood"}
{"Action":"output","Package":"github.com/coracle-dev/coracle/test/e2e","Test":"TestGood","Output":"=== RUN   TestGood\n"}
{"Action":"output","Package":"github.com/coracle-dev/coracle/test/e2e","Test":"TestGood","Output":"    x.go:1: slots: waited 40.5 s for 2 of 6\n"}
{"Action":"output","Package":"github.com/coracle-dev/coracle/test/e2e","Test":"TestGood","Output":"    x.go:2: of no interest\n"}
{"Action":"output","Package":"github.com/coracle-dev/coracle/test/e2e","Test":"TestGood","Output":"    x.go:1: slots: held for 20.0 s\n"}
{"Action":"pass","Package":"github.com/coracle-dev/coracle/test/e2e","Test":"TestGood","Elapsed":70}
{"Action":"run","Package":"github.com/coracle-dev/coracle/test/e2e","Test":"TestBad"}
{"Action":"run","Package":"github.com/coracle-dev/coracle/test/e2e","Test":"TestBad/part"}
{"Action":"output","Package":"github.com/coracle-dev/coracle/test/e2e","Test":"TestBad/part","Output":"    x.go:3: this is wrong\n"}
{"Action":"output","Package":"github.com/coracle-dev/coracle/test/e2e","Test":"TestBad/part","Output":"        more 1\n"}
{"Action":"output","Package":"github.com/coracle-dev/coracle/test/e2e","Test":"TestBad/part","Output":"        more 2\n"}
{"Action":"output","Package":"github.com/coracle-dev/coracle/test/e2e","Test":"TestBad/part","Output":"        more 3\n"}
{"Action":"output","Package":"github.com/coracle-dev/coracle/test/e2e","Test":"TestBad/part","Output":"    x.go:9: log of coracle on server-1:\n"}
{"Action":"output","Package":"github.com/coracle-dev/coracle/test/e2e","Test":"TestBad/part","Output":"        ERROR all is lost\n"}
{"Action":"fail","Package":"github.com/coracle-dev/coracle/test/e2e","Test":"TestBad/part","Elapsed":1}
{"Action":"fail","Package":"github.com/coracle-dev/coracle/test/e2e","Test":"TestBad","Elapsed":1}
{"Action":"run","Package":"github.com/coracle-dev/coracle/test/e2e","Test":"TestAbsent"}
{"Action":"output","Package":"github.com/coracle-dev/coracle/test/e2e","Test":"TestAbsent","Output":"    x.go:4: there is no moon\n"}
{"Action":"skip","Package":"github.com/coracle-dev/coracle/test/e2e","Test":"TestAbsent","Elapsed":0}
{"Action":"pass","Package":"github.com/coracle-dev/coracle/test/e2e","Test":"TestSlow","Elapsed":SLOW}
{"Action":"output","Package":"github.com/coracle-dev/coracle/test/e2e","Output":"FAIL\tx/e2e\t62.000s\n"}
{"Action":"fail","Package":"github.com/coracle-dev/coracle/test/e2e","Elapsed":62}
{"Action":"pass","Package":"github.com/coracle-dev/coracle/pkg/x","Test":"TestX","Elapsed":1}
{"Action":"output","Package":"github.com/coracle-dev/coracle/pkg/x","Output":"PASS\n"}
{"Action":"output","Package":"github.com/coracle-dev/coracle/pkg/x","Output":"exec: WaitDelay expired before I/O complete\n"}
{"Action":"output","Package":"github.com/coracle-dev/coracle/pkg/x","Output":"FAIL\tx/pkg/x\t1.000s\n"}
{"Action":"fail","Package":"github.com/coracle-dev/coracle/pkg/x","Elapsed":1}
{"Action":"build-output","ImportPath":"github.com/coracle-dev/coracle/pkg/y [github.com/coracle-dev/coracle/pkg/y.test]","Output":"y.go:1: undefined: z\n"}
{"Action":"output","Package":"github.com/coracle-dev/coracle/pkg/y","Output":"FAIL\tx/pkg/y [build failed]\n"}
{"Action":"fail","Package":"github.com/coracle-dev/coracle/pkg/y","Elapsed":0}
`

// summarize reads the events and returns the printed summary.
func summarize(t *testing.T, slow string, allowed []skip, strict bool) (text string, good bool) {
	t.Helper()
	var b strings.Builder
	r := newReport(&b, []slots.Row{{Test: "e2e/TestGood", Slots: 2, Seconds: 20}})
	if err := r.read(bufio.NewReader(strings.NewReader(strings.ReplaceAll(events, "SLOW", slow)))); err != nil {
		t.Fatal(err)
	}
	good = r.finish(allowed, strict)
	return b.String(), good
}

func TestReport(t *testing.T) {
	text, good := summarize(t, "160", nil, false)
	if !good {
		t.Error("a skip is a failure where CI is not true")
	}
	for _, want := range []string{
		"--- PASS: e2e/TestGood (20.0 s)\n", "x.go:3: this is wrong\n", "failed: e2e/TestBad/part: this is wrong\n        more 2\n        more 3\nfailed: ", "FAIL\tx/e2e\t62.000s\n",
		"skipped, and not in test/report/skips.txt: e2e/TestAbsent: there is no moon\n",
		"failed: pkg/x, though none of its tests did: exec: WaitDelay expired before I/O complete\n",
		"failed: pkg/y, though none of its tests did: y.go:1: undefined: z\n",
		"   160.0       10      0.0  e2e/TestSlow\n    20.0       20     40.5  e2e/TestGood\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("missing: %q", want)
		}
	}
	if strings.Contains(text, "failed: e2e, though") {
		t.Error("a package with a failed test is said to have none")
	}
	if strings.Contains(text, "of no interest") || strings.Contains(text, "=== RUN") {
		t.Error("the output of a test that passed is printed")
	}
	if t.Failed() {
		t.Log(text)
	}
}

func TestSkips(t *testing.T) {
	if text, good := summarize(t, "1", nil, true); good {
		t.Errorf("where CI is true, a skip that is not listed is no failure:\n%s", text)
	}
	text, good := summarize(t, "1", []skip{{"e2e/TestAb*", "the moon is elsewhere"}}, true)
	if !good || !strings.Contains(text, "skipped: e2e/TestAbsent: the moon is elsewhere\n") {
		t.Errorf("a skip that is listed is a failure:\n%s", text)
	}
	if _, err := allowedSkips(); err != nil {
		t.Error(err)
	}
}

func TestTooSlow(t *testing.T) {
	text, good := summarize(t, "161", nil, false)
	if good || !strings.Contains(text, "too slow: e2e/TestSlow took 161.0 s, more than 160 s") {
		t.Errorf("a test far above its budget is no failure:\n%s", text)
	}
}
