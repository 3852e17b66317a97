// Package exitcode prints the error of a command and gives it its exit code.
package exitcode

import (
	"errors"
	"fmt"
	"io"
	"strings"
)

// Usagef is fmt.Errorf with class Misuse.
func Usagef(format string, args ...any) error { return With(Misuse, fmt.Errorf(format, args...)) }

// Print writes err with "coracle: " before each line. Other programs find messages for users in a log by that prefix.
func Print(w io.Writer, err error) {
	for line := range strings.Lines(err.Error()) {
		fmt.Fprintf(w, "coracle: %s\n", strings.TrimSuffix(line, "\n"))
	}
}

// Class is a kind of failure, and the exit code of a command with this failure. Scripts use it to decide what to do next.
type Class int

// The classes. An error without a class is Failed.
const (
	// OK is success.
	OK Class = 0
	// Failed is any failure that has no other class.
	Failed Class = 1
	// Misuse is a mistake in the command line or in the configuration: a retry does not help.
	Misuse Class = 2
	// Unfit means that this machine cannot run coracle, for the reason in the message. A retry does not help.
	Unfit Class = 3
	// TimedOut means that something was not ready in time.
	TimedOut Class = 4
	// Unreachable means that a server does not answer, or denies access.
	Unreachable Class = 5
	// RolledBack means that an upgrade failed, and that the former version runs again.
	RolledBack Class = 6
	// Untrusted means that a file does not match its checksum or signature.
	Untrusted Class = 7
	// Removed means that the cluster has removed this machine, or another one has replaced it. A retry does not help.
	Removed Class = 8
)

// classes describes each class for users.
var classes = []struct {
	class Class
	text  string
}{
	{OK, "it worked"},
	{Failed, "it failed, for any reason not listed below; the message says which"},
	{Misuse, "a mistake in the command line or in the configuration"},
	{Unfit, "this machine cannot run it: something is missing, occupied or not allowed"},
	{TimedOut, "it was not ready in time"},
	{Unreachable, "the server does not answer, or denies access"},
	{RolledBack, "the upgrade failed and was rolled back: the version before runs again"},
	{Untrusted, "a checksum or a signature is wrong; nothing was used of that file"},
	{Removed, "this machine was removed from its cluster"},
}

// List prints all exit codes, one per line.
func List(w io.Writer) {
	for _, c := range classes {
		fmt.Fprintf(w, "  %d  %s\n", c.class, c.text)
	}
}

// classed is an error with a class.
type classed struct {
	err   error
	class Class
}

func (c *classed) Error() string { return c.err.Error() }

func (c *classed) Unwrap() error { return c.err }

// With gives err a class, which wins over the classes of errors inside it. Nil stays nil.
func With(class Class, err error) error {
	if err == nil {
		return nil
	}
	return &classed{err, class}
}

// ClassOf returns the outermost class of an error and of those that it wraps; Failed if there is none.
func ClassOf(err error) Class {
	var c *classed
	var silent Silent
	switch {
	case err == nil:
		return OK
	case errors.As(err, &silent):
		return Class(silent)
	case errors.As(err, &c):
		return c.class
	}
	return Failed
}

// Silent is the error of a command that has printed all messages. It is the exit code, which need not be a class.
type Silent int

// Error is for logs only: Exit prints nothing.
func (s Silent) Error() string { return fmt.Sprintf("exit code %d", int(s)) }

// Exit prints err, if it is to be printed, and returns the exit code of a command that ends with it.
func Exit(w io.Writer, err error) int {
	var silent Silent
	if err != nil && !errors.As(err, &silent) {
		Print(w, err)
	}
	return Code(err)
}

// Code is the exit code of a command that ends with err.
func Code(err error) int { return int(ClassOf(err)) }
