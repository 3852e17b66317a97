package coredns

import (
	"errors"
	"fmt"

	"github.com/coredns/caddy"
)

const serverType = "dns"

// server is the running CoreDNS, if any.
type server struct{ instance *caddy.Instance }

// load starts a server with a rendered Corefile in the place of the running one, without losing a query. After an error the old server
// keeps running.
func (s *server) load(corefile []byte) (err error) {
	defer func() {
		if p := recover(); p != nil { // a plugin's parser
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	input := caddy.CaddyfileInput{Filepath: "Corefile", Contents: corefile, ServerTypeName: serverType}
	// A start that fails half way leaks goroutines. This check finds nearly all mistakes before.
	if err := caddy.ValidateAndExecuteDirectives(input, nil, true); err != nil {
		return err
	}
	if s.instance != nil {
		next, err := s.instance.Restart(input)
		if err != nil {
			return err
		}
		s.instance = next
		return nil
	}
	instance, err := caddy.Start(input)
	if err != nil {
		return err
	}
	s.instance = instance
	return nil
}

// stop waits for queries in flight and ends the server.
func (s *server) stop() error {
	if s.instance == nil {
		return nil
	}
	errs := s.instance.ShutdownCallbacks()
	errs = append(errs, s.instance.Stop())
	s.instance = nil
	return errors.Join(errs...)
}
