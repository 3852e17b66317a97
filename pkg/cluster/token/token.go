// Package token is the text form of what machines join a cluster with, and what it stands for: a bootstrap token of
// Kubernetes and, if somebody made it with coracle, the pin of the cluster's CA.
//
//	C1PIN::ID.SECRET  made by a cluster: PIN is the hash of the public key of its CA
//	ID.SECRET         a bootstrap token alone
//	anything else     a plain token that people chose: ID and SECRET are derived from it
package token

import (
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"unicode"
)

// Token is what a machine joins with. It is a secret.
type Token struct {
	// Pin is the SHA-256 of the public key (SubjectPublicKeyInfo) of the cluster's CA, in hexadecimal; "" if the token
	// does not tell. Then a joiner cannot know whether it talks to the right cluster.
	Pin string
	// ID and Secret are the bootstrap token's two parts: the Secret bootstrap-token-ID in kube-system has both.
	ID, Secret string
	// Chosen says that people chose its text, and may have given it to all machines.
	Chosen bool
}

// prefix begins the text of a token with a pin, and says how to read the rest.
const prefix = "C1"

const (
	alphabet     = "abcdefghijklmnopqrstuvwxyz0123456789"
	idLength     = 6
	secretLength = 16
	// shortest is what a plain token must have at least, in bytes.
	shortest = 8
	// longest keeps a file that is no token from being taken for one.
	longest = 4096
)

var (
	bootstrap = regexp.MustCompile(`^([a-z0-9]{6})\.([a-z0-9]{16})$`)
	pinned    = regexp.MustCompile(`^C1([0-9a-f]{64})::([a-z0-9]{6})\.([a-z0-9]{16})$`)
	almost    = regexp.MustCompile(`^C[0-9][0-9A-Fa-f]{16,}|^C[0-9][0-9A-Fa-f]+::`)
)

// Parse reads a token's text. The error does not repeat it.
func Parse(text string) (Token, error) {
	text = strings.TrimSpace(text)
	if m := pinned.FindStringSubmatch(text); m != nil {
		return Token{Pin: m[1], ID: m[2], Secret: m[3]}, nil
	}
	if m := bootstrap.FindStringSubmatch(text); m != nil {
		return Token{ID: m[1], Secret: m[2]}, nil
	}
	switch {
	case text == "":
		return Token{}, errors.New("the token is empty")
	case almost.MatchString(text):
		return Token{}, errors.New("the token begins like one of coracle's but is not whole: copy all of it, as in C1HASH::ID.SECRET")
	case len(text) < shortest:
		return Token{}, fmt.Errorf("the token is too short: one that people choose needs %d characters at least", shortest)
	case len(text) > longest:
		return Token{}, fmt.Errorf("the token is too long: it has %d bytes, more than %d", len(text), longest)
	case strings.ContainsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) || r == unicode.ReplacementChar }):
		return Token{}, errors.New("the token has blanks or line breaks in it: it must be one word")
	}
	return derive(text)
}

// Read reads the token in a file.
func Read(file string) (Token, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return Token{}, fmt.Errorf("reading the token: %w", err)
	}
	t, err := Parse(string(data))
	if err != nil {
		return Token{}, fmt.Errorf("%s: %w", file, err)
	}
	return t, nil
}

// rounds make each guess at a plain token cost some 20 ms: who has the ID, which is no secret, can try.
const rounds = 100_000

// derive makes the same bootstrap token of a plain text everywhere.
func derive(text string) (Token, error) {
	bytes, err := pbkdf2.Key(sha256.New, text, []byte("coracle bootstrap token"), rounds, idLength+secretLength)
	if err != nil {
		return Token{}, fmt.Errorf("deriving a bootstrap token: %w", err)
	}
	for i, b := range bytes {
		bytes[i] = alphabet[int(b)%len(alphabet)]
	}
	return Token{ID: string(bytes[:idLength]), Secret: string(bytes[idLength:]), Chosen: true}, nil
}

// New makes a token at random, for the cluster with the pin.
func New(pin string) Token {
	text := make([]byte, idLength+secretLength)
	for i := 0; i < len(text); {
		var b [1]byte
		_, _ = rand.Read(b[:])                           // it never fails
		if int(b[0]) < 256/len(alphabet)*len(alphabet) { // the rest would make some letters likelier
			text[i] = alphabet[int(b[0])%len(alphabet)]
			i++
		}
	}
	return Token{Pin: pin, ID: string(text[:idLength]), Secret: string(text[idLength:])}
}

// Bearer is how Kubernetes takes the token: ID.SECRET.
func (t Token) Bearer() string { return t.ID + "." + t.Secret }

// Text is what is handed to people.
func (t Token) Text() string {
	if t.Pin == "" {
		return t.Bearer()
	}
	return prefix + t.Pin + "::" + t.Bearer()
}

// String hides the secret, so that no log shows it by mistake.
func (t Token) String() string { return t.ID + ".(hidden)" }

// GoString hides the secret too.
func (t Token) GoString() string { return t.String() }
