package join

import (
	"fmt"
	"os"

	"github.com/coracle-dev/coracle/pkg/cluster/pki"
	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/exitcode"
)

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
	return &t, err
}

// offerTokens writes the tokens that a server was started with to files, from which the control plane publishes them, so that
// other machines can join with them. own is the token of --token, nil if there is none.
func offerTokens(cfg config.Config, own *Token) error {
	if cfg.Join.Server != "" && own != nil && !own.Chosen {
		own = nil // this machine joined with it; it belongs to the cluster. A plain token may be on all machines and stays valid
	}
	if own != nil && own.Pin != "" {
		if pin, err := pki.OwnPin(cfg.Dirs); err != nil || pin != own.Pin {
			return exitcode.Usagef("the token is for joining a cluster that exists: say where it is with --server https://HOST:6443")
		}
	}
	agents, err := parseEither(cfg.Join.AgentToken, cfg.Join.AgentTokenFile)
	if err != nil {
		return exitcode.Usagef("the agents' token: %w", err)
	}
	if own != nil && agents != nil && own.ID == agents.ID {
		return exitcode.Usagef("the token and the agents' token are the same, and then agents could join as servers: make them different")
	}
	for file, t := range map[string]*Token{cfg.Dirs.Token(): own, cfg.Dirs.AgentToken(): agents} {
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
