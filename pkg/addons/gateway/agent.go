package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/coracle-dev/coracle/pkg/cluster/join"
	"github.com/coracle-dev/coracle/pkg/core/addon"
	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/core/version"
	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// Agent leaves the configuration of an agent's gateway for its process, while an administrator has made the agent a gateway. It has it from a server, and
// what it had last stays while no server answers.
type Agent struct {
	// Server is an address HOST:PORT at which a server's API answers.
	Server string
	// CA, Cert and Key are files: the CA of servers, and the client certificate of the node.
	CA, Cert, Key string
	Node          *kube.OwnNode
	Dir           gateway.Dir

	log     logrus.FieldLogger
	writer  *gateway.Writer
	tag     string    // of what came last
	skew    error     // why what came last cannot be used
	failing time.Time // since when; zero while all is well
	said    string    // the last problem, so that it is logged once
}

func agentOf(n addon.Node) Agent {
	dirs := n.Config.Dirs
	return Agent{
		Server: n.Config.Node.Balancer().String(), CA: dirs.NodeCA(), Cert: filepath.Join(dirs.NodePKI(), "node.crt"), Key: filepath.Join(dirs.NodePKI(), "node.key"),
		Node: n.Own, Dir: gateway.Dir(dirs.Gateway()),
	}
}

// Timing of requests. A server answers after less than a minute also when nothing changes.
const (
	askTimeout = 90 * time.Second
	askPause   = time.Second // between two requests; it doubles with each error in a row
	lastAsk    = 30 * time.Second
)

// maxShare bounds what a server sends, in bytes.
const maxShare = 256 << 20

// errNoGateway is the error when a server says that this node is no gateway.
var errNoGateway = errors.New("this node is no gateway")

// Run works until ctx is done. It is ready at once, and asks nobody anything while the node is no gateway.
func (a Agent) Run(ctx context.Context, ready func()) error {
	ready()
	a.log, a.writer = logrus.WithField("component", "gateway"), &gateway.Writer{Files: a.Dir.Files()}
	known, pause := false, askPause
	for ctx.Err() == nil {
		node, changed := a.Node.Get()
		if !kube.IsGatewayAgent(node) {
			if known = known || node != nil; known { // otherwise it is not known yet: what is served stays
				a.end()
			}
			select {
			case <-changed:
			case <-ctx.Done():
			}
			continue
		}
		known = true
		within, stop := context.WithCancel(ctx)
		go a.untilNone(within, stop)
		if err := a.take(within); within.Err() == nil {
			a.settle(err)
			if pause = min(2*pause, lastAsk); err == nil {
				pause = askPause
			}
			_ = lifecycle.Sleep(within, pause)
		}
		stop()
	}
	return nil
}

// untilNone calls stop when the node is no gateway any more.
func (a Agent) untilNone(ctx context.Context, stop context.CancelFunc) {
	for {
		node, changed := a.Node.Get()
		if !kube.IsGatewayAgent(node) {
			stop()
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// settle does what an error of take asks for, and tells of one that lasts, once.
func (a *Agent) settle(err error) {
	switch {
	case err == nil:
		a.failing, a.said = time.Time{}, ""
		return
	case errors.Is(err, errNoGateway):
		a.end()
	case a.failing.IsZero():
		a.failing = time.Now() // the process needs some time to start
	case time.Since(a.failing) > patience && err.Error() != a.said:
		a.said = err.Error()
		a.log.WithError(err).Warn("the gateway of this agent goes on with what it had")
	}
}

// take asks a server what is served, and applies it.
func (a *Agent) take(ctx context.Context) error {
	share, tag, err := a.ask(ctx)
	if err != nil {
		return err
	}
	if tag == a.tag {
		return a.skew
	}
	if a.skew = nil; share.Version != version.Version {
		a.tag, a.skew = tag, fmt.Errorf("the server has coracle %s and this agent %s: upgrade one of them", share.Version, version.Version)
		return a.skew
	}
	if len(share.Config.Listeners) == 0 {
		a.end()
		a.tag = tag
		return nil
	}
	if _, err := a.writer.Write(share.Config, share.Endpoints); err != nil {
		return fmt.Errorf("writing the gateway's configuration: %w", err)
	}
	try, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	applied, err := a.Dir.Apply(try)
	if err != nil {
		return err // it is asked for again
	}
	for port, why := range applied.Refused {
		a.log.Warnf("the gateway of this agent does not serve port %d: %s", port, why)
	}
	a.tag = tag
	return nil
}

// ask returns what a server says, or the tag that there was when that has not changed.
func (a *Agent) ask(ctx context.Context) (share gateway.Share, tag string, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	client, err := a.client()
	if err != nil {
		return share, "", err
	}
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+a.Server+join.PathGateway, nil)
	if err != nil {
		return share, "", err
	}
	if a.tag != "" {
		request.Header.Set("If-None-Match", a.tag)
	}
	answer, err := client.Do(request)
	if err != nil {
		return share, "", fmt.Errorf("asking a server what the gateway serves: %w", err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxShare))
	if err != nil {
		return share, "", fmt.Errorf("asking a server what the gateway serves: %w", err)
	}
	var refused join.Refusal
	switch answer.StatusCode {
	case http.StatusOK:
		var of struct{ Version string }
		if err = json.Unmarshal(body, &of); err == nil && of.Version == version.Version { // another version may have other fields
			err = json.Unmarshal(body, &share)
		}
		if err != nil {
			return share, "", fmt.Errorf("reading what the gateway serves: %w", err)
		}
		share.Version = of.Version
		return share, answer.Header.Get("ETag"), nil
	case http.StatusNotModified:
		return share, a.tag, nil
	case http.StatusForbidden, http.StatusUnauthorized:
		if json.Unmarshal(body, &refused) == nil && (refused.Reason == join.ReasonNoGateway || refused.Reason == join.ReasonRemoved) {
			return share, "", fmt.Errorf("%w: %s", errNoGateway, refused.Message)
		}
	}
	return share, "", fmt.Errorf("a server answers %s to the question what the gateway serves", answer.Status)
}

// end ends the gateway's process and removes its files.
func (a *Agent) end() {
	a.tag, a.skew = "", nil
	if err := a.writer.Remove(); err != nil {
		a.log.WithError(err).Warn("removing the gateway's configuration")
	}
}

// client returns a client for one request.
func (a *Agent) client() (*http.Client, error) {
	secure, err := kube.NodeTLS(a.CA, a.Cert, a.Key)
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: secure, ForceAttemptHTTP2: true}}, nil
}
