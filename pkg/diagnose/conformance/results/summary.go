// Package results reads what a run of Kubernetes' conformance tests has left, and packs it for the CNCF. It links no Kubernetes.
package results

import (
	"cmp"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits of what is kept of a JUnit file: names of failed tests, and the bytes of a name.
const (
	mostFailures = 1000
	longestName  = 400
)

// Summary is what a JUnit file says of the tests.
type Summary struct {
	Passed, Failed, Skipped int
	// Failures are names of failed tests, of the first thousand.
	Failures []string
}

// suiteNode matches names of what ginkgo runs around the tests. It counts only if it fails.
var suiteNode = regexp.MustCompile(`^\[(\w*(Before|After)Suite|DeferCleanup \(Suite\))\]`)

// Summarize reads a JUnit file of Kubernetes' tests.
func Summarize(r io.Reader) (s Summary, err error) {
	d := xml.NewDecoder(r)
	inCase, found, name, outcome := false, false, "", ""
	for {
		token, err := d.Token()
		switch {
		case errors.Is(err, io.EOF) && found:
			return s, nil
		case errors.Is(err, io.EOF):
			return s, errors.New("it has no testsuite")
		case err != nil:
			return s, fmt.Errorf("it is no whole JUnit file: %w", err)
		}
		switch e := token.(type) {
		case xml.StartElement:
			switch tag := e.Name.Local; {
			case tag == "testsuite":
				found = true
			case tag == "testcase":
				inCase, name, outcome = true, attribute(e, "name"), ""
			case inCase && (tag == "failure" || tag == "error"):
				outcome = "failure"
			case inCase && tag == "skipped":
				outcome = cmp.Or(outcome, tag)
			}
		case xml.EndElement:
			if e.Name.Local == "testcase" && inCase {
				inCase = false
				s.count(name, outcome)
			}
		}
	}
}

func (s *Summary) count(name, outcome string) {
	switch {
	case outcome == "failure":
		s.Failed++
		if len(s.Failures) < mostFailures {
			s.Failures = append(s.Failures, shortened(strings.TrimPrefix(name, "[It] ")))
		}
	case suiteNode.MatchString(name):
	case outcome == "skipped":
		s.Skipped++
	default:
		s.Passed++
	}
}

func attribute(e xml.StartElement, name string) string {
	for _, a := range e.Attr {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

// shortened is a name that can be printed in a line.
func shortened(name string) string {
	name = strings.Join(strings.Fields(Printable(name)), " ")
	if len(name) <= longestName {
		return name
	}
	end := longestName
	for !utf8.RuneStart(name[end]) {
		end--
	}
	return name[:end] + "…"
}

// Printable replaces characters that could change a terminal, but keeps tabs and line breaks.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\t' || r == '\n' || unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, text)
}

// String is the line for people.
func (s Summary) String() string {
	return fmt.Sprintf("passed %d, failed %d, skipped %d", s.Passed, s.Failed, s.Skipped)
}
