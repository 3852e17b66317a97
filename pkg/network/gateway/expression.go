package gateway

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
)

// The bounds of regular expressions, which strangers write: a few bytes such as (a{1000}b{1000}){1} would take gigabytes.
const (
	maxExpression  = 8192  // length in bytes
	maxSteps       = 5000  // of what one compiles to
	maxAllOfObject = 20000 // steps of all expressions of one object
)

// CompileExpression compiles a regular expression of RE2 that must match whole texts. One that would take much memory is an error.
func CompileExpression(text string) (*regexp.Regexp, error) {
	if _, err := stepsOf(text); err != nil {
		return nil, err
	}
	return regexp.Compile(whole(text))
}

// CheckExpression returns why CompileExpression refuses an expression.
func CheckExpression(text string) error {
	_, err := stepsOf(text)
	return err
}

func whole(text string) string { return `^(?:` + text + `)$` }

// Expressions checks the expressions of one object.
type Expressions struct {
	known map[string]error
	steps int
}

// Check returns why an expression cannot be served: CompileExpression would refuse it, or those of the object are too large together.
func (e *Expressions) Check(text string) error {
	if err, known := e.known[text]; known {
		return err
	}
	steps, err := stepsOf(text)
	if err == nil && e.steps+steps > maxAllOfObject {
		err = errors.New("the regular expressions of this object are too large together: write some of them as prefixes, or with smaller repetitions")
	}
	if err == nil {
		e.steps += steps
	}
	if e.known == nil {
		e.known = map[string]error{}
	}
	e.known[text] = err
	return err
}

// stepsOf returns about how many steps an expression compiles to.
func stepsOf(text string) (int, error) {
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
