package acme

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/mholt/acmez/v3/acme"
)

// Refusal is what an ACME server says against the hosts of an order.
type Refusal struct{ Problem acme.Problem }

// Error implements error.
func (r Refusal) Error() string { return sentence(r.Problem) }

// RateLimited reports whether the server refuses because it was asked too often.
func (r Refusal) RateLimited() bool { return r.Problem.Type == acme.ProblemTypeRateLimited }

// refusal makes a Refusal of an error by which the server answers. An error of the server's own is none.
func refusal(err error) error {
	problem := new(acme.Problem)
	if !errors.As(err, problem) || problem.Status >= http.StatusInternalServerError || slices.Contains(ofAccount, problem.Type) {
		return err
	}
	return Refusal{*problem}
}

func refused(format string, values ...any) error {
	return Refusal{acme.Problem{Detail: fmt.Sprintf(format, values...)}}
}

// ofValidation returns the error of a validation as one of the host, unless the ACME server could not be asked: one host whose validation hangs
// must not keep others from theirs.
func ofValidation(err error, host string) error {
	switch {
	case errors.As(err, new(acme.Problem)):
		return err
	case errors.Is(err, context.DeadlineExceeded):
		return refused("the ACME server has not validated %s within %s", host, orderTimeout)
	case errors.As(err, new(*url.Error)):
		return err
	}
	return refused("validating %s: %v", host, err)
}

// ofAccount are the problems of an account, and not of hosts.
var ofAccount = []string{
	acme.ProblemTypeAccountDoesNotExist, acme.ProblemTypeBadNonce, acme.ProblemTypeExternalAccountRequired, acme.ProblemTypeUserActionRequired, acme.ProblemTypeServerInternal,
}

// Sentence returns an error in one line. What an ACME server says is in its own words.
func Sentence(err error) string {
	if problem := new(acme.Problem); errors.As(err, problem) {
		return sentence(*problem)
	}
	return oneLine(err.Error())
}

// maxSentence is the length in bytes at which what an ACME server says is cut: it may quote the user's own server.
const maxSentence = 400

// sentence returns what a server says as one line.
func sentence(p acme.Problem) string {
	text := p.Detail
	if len(p.Subproblems) > 0 && !strings.Contains(text, p.Subproblems[0].Detail) {
		text += ": " + p.Subproblems[0].Detail
	}
	if text == "" {
		text = p.Type
	}
	return oneLine(text)
}

func oneLine(text string) string {
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r <= ' ' || r == 0x7f }), " ")
	if len(text) > maxSentence {
		text = strings.ToValidUTF8(text[:maxSentence], "") + "…"
	}
	return text
}
