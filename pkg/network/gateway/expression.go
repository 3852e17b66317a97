package gateway

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
)

// The bounds of regular expressions, which strangers write: a few bytes such as (a{1000}b{1000}){1} would take gigabytes.
const (
	maxExpression     = 8192  // length in bytes
	maxSteps          = 5000  // of what one compiles to
	maxAllOfNamespace = 20000 // steps of all expressions of one namespace
)

// CompileExpression compiles a regular expression of RE2 that must match whole texts. One that would take much memory is an error.
func CompileExpression(text string) (*regexp.Regexp, error) {
	if _, err := ExpressionSteps(text); err != nil {
		return nil, err
	}
	return regexp.Compile(whole(text))
}

// CheckExpression returns why CompileExpression refuses an expression.
func CheckExpression(text string) error {
	_, err := ExpressionSteps(text)
	return err
}

func whole(text string) string { return `^(?:` + text + `)$` }

// Expressions checks the expressions of each namespace, in the order in which they come.
type Expressions map[string]*expressions

type expressions struct {
	known map[[2]string]error
	steps int
}

// Check returns why an expression of a namespace for something of requests, such as a header, cannot be served: CompileExpression would refuse it, or
// those of the namespace are too large together.
func (all Expressions) Check(namespace, of, text string) error {
	e := all[namespace]
	if e == nil {
		e = &expressions{known: map[[2]string]error{}}
		all[namespace] = e
	}
	key := [2]string{of, text}
	if err, known := e.known[key]; known {
		return err
	}
	steps, err := ExpressionSteps(text)
	if err == nil && e.steps+steps > maxAllOfNamespace {
		err = errors.New("the regular expressions of this namespace are too large together, and those of older objects come first: write some of them as prefixes, or with smaller repetitions")
	}
	if err == nil {
		e.steps += steps
	}
	e.known[key] = err
	return err
}

// ExpressionSteps returns about how many steps an expression compiles to. For each byte of a text all of them may be taken.
func ExpressionSteps(text string) (int, error) {
	if len(text) > maxExpression {
		return 0, fmt.Errorf("the regular expression is longer than %d bytes", maxExpression)
	}
	if _, err := syntax.Parse(text, syntax.Perl); err != nil { // such as a) | (b, which brackets would make one
		return 0, err
	}
	parsed, err := syntax.Parse(whole(text), syntax.Perl)
	if err != nil {
		return 0, err
	}
	steps := stepsIn(parsed) + rangesIn(parsed)/2
	if steps > maxSteps {
		return 0, fmt.Errorf("the regular expression is too large: it takes %d steps, and %d are allowed; use smaller repetitions", steps, maxSteps)
	}
	return steps, nil
}

// stepsIn multiplies with repetitions, as compiling does. Parsing has bounded the product of those that are nested to 1000.
func stepsIn(e *syntax.Regexp) int {
	steps := 1
	for _, sub := range e.Sub {
		steps += stepsIn(sub)
	}
	switch e.Op {
	case syntax.OpLiteral:
		return len(e.Rune)
	case syntax.OpRepeat:
		return max(e.Min, e.Max, 1)*(steps-1) + max(e.Max-e.Min, 0) + 1
	case syntax.OpAlternate:
		return steps + len(e.Sub)
	}
	return steps
}

// rangesIn counts the bounds of ranges of characters, of which \pL has over a thousand. Repetitions share them.
func rangesIn(e *syntax.Regexp) int {
	n := 0
	if e.Op == syntax.OpCharClass {
		n = len(e.Rune)
	}
	for _, sub := range e.Sub {
		n += rangesIn(sub)
	}
	return n
}
