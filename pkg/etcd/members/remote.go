package members

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/coracle-dev/coracle/pkg/cluster/join"
	"github.com/coracle-dev/coracle/pkg/core/exitcode"
)

// Remote is a client of the cluster's other servers, over their API.
type Remote struct {
	// Joined reports whether there are or were other servers.
	Joined func() bool
	// Servers returns the known APIs, HOST:PORT. This server may be among them.
	Servers func() []string
	// CA verifies the servers; Cert and Key are the files of user system:coracle.
	CA, Cert, Key string
}

// Limits of a request. A frozen server accepts connections and does not answer.
const (
	listTimeout = 5 * time.Second
	addTimeout  = addPatience + 15*time.Second
	maxAnswer   = 1 << 20 // bytes
)

// Known reports whether there are or were other servers.
func (r Remote) Known() bool { return r.Joined() }

// Members returns the present members.
func (r Remote) Members(ctx context.Context) (members []join.Member, err error) {
	err = r.any(ctx, http.MethodGet, listTimeout, nil, &members)
	return members, err
}

// AddMember asks a server to add a member.
func (r Remote) AddMember(ctx context.Context, m join.AddMember) (added join.AddedMember, err error) {
	err = r.any(ctx, http.MethodPost, addTimeout, m, &added)
	return added, err
}

// any sends a request to one server after the other, until one succeeds.
func (r Remote) any(ctx context.Context, method string, timeout time.Duration, body, answer any) error {
	client, err := newClient(r.CA, r.Cert, r.Key)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	data, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encoding a request: %w", err)
	}
	servers := r.Servers()
	if len(servers) == 0 {
		return errors.New("no other server is known: give one with --server https://HOST:6443")
	}
	var all []error
	for _, server := range servers {
		try, cancel := context.WithTimeout(ctx, timeout)
		err := ask(try, client, method, "https://"+server+join.PathMembers, data, answer)
		cancel()
		if err == nil {
			return nil
		}
		all = append(all, fmt.Errorf("%s: %w", server, err))
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(all...)
}

func ask(ctx context.Context, client *http.Client, method, url string, body []byte, answer any) error {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("reading the answer: %w", err)
	}
	if resp.StatusCode == http.StatusOK {
		return json.Unmarshal(data, answer)
	}
	var refusal join.Refusal
	if json.Unmarshal(data, &refusal) == nil && refusal.Reason == join.ReasonRemoved {
		return exitcode.With(exitcode.Removed, errors.New(refusal.Message))
	}
	if refusal.Message != "" {
		return errors.New(refusal.Message)
	}
	return fmt.Errorf("it answers %s", resp.Status)
}
