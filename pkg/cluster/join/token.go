package join

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
	"unicode/utf8"

	"github.com/sirupsen/logrus"

	"github.com/coracle-dev/coracle/pkg/cluster/pki"
	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/exitcode"
)

// Token is what a machine joins with: a bootstrap token of Kubernetes and, if coracle made it, the pin of the cluster's CA. It
// is a secret. Its text is one of
//
//	C1PIN::ID.SECRET  made by a cluster: PIN is the hash of the public key of its CA
//	ID.SECRET         a bootstrap token alone
//	anything else     a plain token that people chose: ID and SECRET are derived from it
type Token struct {
	// Pin is the SHA-256 of the public key (SubjectPublicKeyInfo) of the cluster's CA in hexadecimal, or "". Without a pin a
	// joiner cannot verify that it talks to the right cluster.
	Pin string
	// ID and Secret are the two parts of the bootstrap token, as in the Secret bootstrap-token-ID in kube-system.
	ID, Secret string
	// Chosen says that the token was derived from a plain text, which all machines may have been given.
	Chosen bool
	// Short says that the plain text has fewer than minNewLength characters.
	Short bool
}

// tokenPrefix begins the text of a token with a pin. Its number is the version of the format.
const tokenPrefix = "C1"

const (
	alphabet     = "abcdefghijklmnopqrstuvwxyz0123456789"
	idLength     = 6
	secretLength = 16
	// minPlainLength is the least length of a plain token in bytes, which clusters of earlier releases accept.
	minPlainLength = 8
	// minNewLength is the least number of characters of a plain token with which a cluster begins.
	minNewLength = 16
	// maxLength is the largest length of a token in bytes: a longer text is some other file.
	maxLength = 4096
)

var (
	bareToken    = regexp.MustCompile(`^([a-z0-9]{6})\.([a-z0-9]{16})$`)
	pinnedToken  = regexp.MustCompile(`^C1([0-9a-f]{64})::([a-z0-9]{6})\.([a-z0-9]{16})$`)
	damagedToken = regexp.MustCompile(`^C[0-9][0-9A-Fa-f]{16,}|^C[0-9][0-9A-Fa-f]+::`)
)

// ParseToken parses the text of a token. Errors do not contain the text.
func ParseToken(text string) (Token, error) {
	text = strings.TrimSpace(text)
	t, err := checkToken(text)
	if err != nil || t.ID != "" {
		return t, err
	}
	return deriveToken(text)
}

// checkToken parses the text of a token without blanks around it. For a plain token it returns the zero value.
func checkToken(text string) (Token, error) {
	if m := pinnedToken.FindStringSubmatch(text); m != nil {
		return Token{Pin: m[1], ID: m[2], Secret: m[3]}, nil
	}
	if m := bareToken.FindStringSubmatch(text); m != nil {
		return Token{ID: m[1], Secret: m[2]}, nil
	}
	switch {
	case text == "":
		return Token{}, errors.New("the token is empty")
	case damagedToken.MatchString(text):
		return Token{}, errors.New("the token begins like one of coracle's but is not whole: copy all of it, as in C1HASH::ID.SECRET")
	case len(text) < minPlainLength:
		return Token{}, fmt.Errorf("the token is too short: one that people choose needs %d characters at least", minPlainLength)
	case len(text) > maxLength:
		return Token{}, fmt.Errorf("the token is too long: it has %d bytes, more than %d", len(text), maxLength)
	case strings.ContainsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) || r == unicode.ReplacementChar }):
		return Token{}, errors.New("the token has blanks or line breaks in it: it must be one word")
	}
	return Token{}, nil
}

// ReadToken reads a token from a file.
func ReadToken(file string) (Token, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return Token{}, fmt.Errorf("reading the token: %w", err)
	}
	t, err := ParseToken(string(data))
	if err != nil {
		return Token{}, fmt.Errorf("%s: %w", file, err)
	}
	return t, nil
}

// deriveRounds make each guess of a plain token cost about 20 ms. Anyone who knows the ID, which is not secret, can guess.
const deriveRounds = 100_000

// deriveToken derives a bootstrap token from a plain text, the same on all machines.
func deriveToken(text string) (Token, error) {
	bytes, err := pbkdf2.Key(sha256.New, text, []byte("coracle bootstrap token"), deriveRounds, idLength+secretLength)
	if err != nil {
		return Token{}, fmt.Errorf("deriving a bootstrap token: %w", err)
	}
	for i, b := range bytes {
		bytes[i] = alphabet[int(b)%len(alphabet)]
	}
	return Token{ID: string(bytes[:idLength]), Secret: string(bytes[idLength:]), Chosen: true, Short: utf8.RuneCountInString(text) < minNewLength}, nil
}

// NewToken makes a random token for the cluster with the pin.
func NewToken(pin string) Token {
	text := make([]byte, idLength+secretLength)
	for i := 0; i < len(text); {
		var b [1]byte
		_, _ = rand.Read(b[:])                           // never fails
		if int(b[0]) < 256/len(alphabet)*len(alphabet) { // the others would favour some letters
			text[i] = alphabet[int(b[0])%len(alphabet)]
			i++
		}
	}
	return Token{Pin: pin, ID: string(text[:idLength]), Secret: string(text[idLength:])}
}

// Bearer returns the bootstrap token, ID.SECRET, as Kubernetes expects it in a bearer token.
func (t Token) Bearer() string { return t.ID + "." + t.Secret }

// Text returns the token as it is given to people.
func (t Token) Text() string {
	if t.Pin == "" {
		return t.Bearer()
	}
	return tokenPrefix + t.Pin + "::" + t.Bearer()
}

// String hides the secret, so that no log shows it by mistake.
func (t Token) String() string { return t.ID + ".(hidden)" }

// GoString hides the secret too.
func (t Token) GoString() string { return t.String() }

// parseEither parses a token that was given as text or as the name of a file. It returns nil if neither was given.
func parseEither(text, file string) (*Token, error) {
	var t Token
	var err error
	switch {
	case file != "":
		t, err = ReadToken(file)
	case text != "":
		t, err = ParseToken(text)
	default:
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &t, nil
}

// checkLength refuses a short token with which a server begins a cluster, as its ID, which is in logs, lets people try texts on their own machine. With a
// token that an existing cluster has, the server starts with a warning.
func checkLength(begins bool, own, agents *Token) error {
	for _, given := range []struct {
		flag  string
		token *Token
	}{{"--token", own}, {"--agent-token", agents}} {
		if given.token == nil || !given.token.Short {
			continue
		}
		text := fmt.Sprintf("the text of %s can be guessed, because it has fewer than %d characters", given.flag, minNewLength)
		if begins {
			return exitcode.Usagef("%s: choose a longer one, as openssl rand -hex 16 prints, or leave it out and make tokens with coracle token create", text)
		}
		logrus.Warnf("%s: start all servers with a longer one; machines that have joined do not need it again", text)
	}
	return nil
}

// offerTokens writes the tokens that a server was started with to files, from which the control plane publishes them, so that
// other machines can join with them. own is the token of --token and agents that of --agent-token, nil if there is none.
func offerTokens(cfg config.Config, own, agents *Token) error {
	lost := own == nil && cfg.Join.TokenFile != ""
	if cfg.Join.Server != "" && own != nil && !own.Chosen {
		own = nil // this machine joined with it; it belongs to the cluster. A plain token may be on all machines and stays valid
	}
	if own != nil && own.Pin != "" {
		if pin, err := pki.OwnPin(cfg.Dirs); err != nil || pin != own.Pin {
			return exitcode.Usagef("the token is for joining a cluster that exists: say where it is with --server https://HOST:6443")
		}
	}
	if own != nil && agents != nil && own.ID == agents.ID {
		return exitcode.Usagef("the token and the agents' token are the same, and then agents could join as servers: make them different")
	}
	gone := map[string]bool{cfg.Dirs.Token(): own == nil && lost, cfg.Dirs.AgentToken(): agents == nil && cfg.Join.AgentTokenFile != ""}
	for file, t := range map[string]*Token{cfg.Dirs.Token(): own, cfg.Dirs.AgentToken(): agents} {
		if gone[file] {
			continue // it goes on with the token of an earlier start
		}
		if t == nil {
			if err := os.Remove(file); err != nil && !os.IsNotExist(err) {
				return fmt.Errorf("removing the token of an earlier start: %w", err)
			}
			continue
		}
		if _, err := atomicfile.WriteIfChanged(file, []byte(t.Bearer()+"\n"), 0o600); err != nil {
			return err
		}
	}
	return nil
}
