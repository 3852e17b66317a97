package join

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/exitcode"
)

// Client sends requests to one server. It verifies the server with CA, else with the token's pin; with neither it cannot verify it.
type Client struct {
	Server string // https://HOST:PORT
	// CA is the cluster's CA bundle in PEM form, if it is known.
	CA []byte
	// Token authenticates the request, unless CertFile and KeyFile are set.
	Token             Token
	CertFile, KeyFile string
}

// maxSkew is the largest accepted difference between this machine's clock and the server's.
const maxSkew = 10 * time.Minute

// answerSize limits a response, in bytes.
const answerSize = 16 << 20

// requestTimeout limits one request. A server that is busy with 20 joins answers in a few seconds.
const requestTimeout = 30 * time.Second

// dialTimeout limits the time to connect.
const dialTimeout = 5 * time.Second

// Unreachable means that the server cannot be reached or cannot answer yet: trying again may help.
type Unreachable struct {
	err error
	// Answered says that a server of the cluster is there, but could not serve the request.
	Answered bool
}

func (e *Unreachable) Error() string { return e.err.Error() }
func (e *Unreachable) Unwrap() error { return e.err }

// answered reports whether an error is that of a server that is there, but could not serve the request.
func answered(err error) bool {
	unreachable, ok := errors.AsType[*Unreachable](err)
	return ok && unreachable.Answered
}

// Denied means that the server did not authenticate or authorize the request. A server may deny a valid request for some seconds after
// its start, until it has read its tokens.
type Denied struct{ err error }

func (e *Denied) Error() string { return e.err.Error() }
func (e *Denied) Unwrap() error { return e.err }

// Join requests to join at PathAgent or PathServer.
func (c Client) Join(ctx context.Context, path string, request Request) (Response, error) {
	var response Response
	body, err := json.Marshal(request)
	if err != nil {
		return response, fmt.Errorf("encoding the request: %w", err)
	}
	seen, err := c.ask(ctx, http.MethodPost, path, body, &response)
	if err != nil {
		return response, err
	}
	err = seen.confirm(response.Cluster.CA, c.Token)
	response.Cluster.CA = seen.adopt(response.Cluster.CA)
	return response, err
}

// Cluster requests the cluster's settings and servers. Its CA is the known one, or what has replaced it.
func (c Client) Cluster(ctx context.Context) (Cluster, error) {
	var cluster Cluster
	seen, err := c.ask(ctx, http.MethodGet, PathCluster, nil, &cluster)
	if err == nil {
		cluster.CA = seen.adopt(cluster.CA)
	}
	return cluster, err
}

// ask sends one request. It returns the verifier too, which has the server's certificate.
func (c Client) ask(ctx context.Context, method, path string, body []byte, answer any) (*verifier, error) {
	seen := &verifier{client: c}
	tlsConfig := &tls.Config{
		InsecureSkipVerify: true, // VerifyConnection verifies, by CA or pin, and ignores the validity period
		VerifyConnection:   seen.verify,
		MinVersion:         tls.VersionTLS12,
	}
	if c.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("reading the certificate for requests: %w", err)
		}
		// Also if the server does not name its authority: it accepts one of a former authority for a renewal.
		tlsConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	// No proxy: nodes reach the servers of their cluster directly.
	transport := &http.Transport{
		DialContext:       (&net.Dialer{Timeout: dialTimeout}).DialContext,
		TLSClientConfig:   tlsConfig,
		DisableKeepAlives: true,
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, c.Server+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("making a request to %s: %w", c.Server, err)
	}
	request.Header.Set("Content-Type", "application/json")
	if c.CertFile == "" {
		request.Header.Set("Authorization", "Bearer "+c.Token.Bearer())
	}
	http := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := http.Do(request)
	if err != nil {
		return nil, c.failed(err, seen.leaf.Load() != nil)
	}
	defer response.Body.Close()
	return seen, c.read(response, answer)
}

// failed explains a request without response. verified says that the server was there; it may have no quorum.
func (c Client) failed(err error, verified bool) error {
	if untrusted, ok := errors.AsType[*untrustedError](err); ok {
		return untrusted
	}
	if errors.As(err, new(tls.RecordHeaderError)) || strings.Contains(err.Error(), "server gave HTTP response to HTTPS client") {
		return fmt.Errorf("%s is not a coracle server, because it does not use TLS: correct --server", c.Server)
	}
	// Without this side's port, so that the same failure has the same text each time.
	if op, ok := errors.AsType[*net.OpError](err); ok {
		err = op.Err
	} else if request, ok := errors.AsType[*url.Error](err); ok {
		err = request.Err
	}
	return &Unreachable{fmt.Errorf("%s does not answer: %w", c.Server, err), verified}
}

// read decodes a response.
func (c Client) read(response *http.Response, answer any) error {
	data, err := io.ReadAll(io.LimitReader(response.Body, answerSize))
	if err != nil {
		return &Unreachable{err: fmt.Errorf("%s does not answer: %w", c.Server, err)}
	}
	if err := c.checkClock(response, data); err != nil {
		return err
	}
	if response.StatusCode == http.StatusOK {
		if err := json.Unmarshal(data, answer); err != nil {
			return fmt.Errorf("%s is not a coracle server: reading its response: %w", c.Server, err)
		}
		return nil
	}
	return c.refused(response.StatusCode, data)
}

// refused explains a response that is not 200. The error has class exitcode.Removed if the server refuses this machine for good.
func (c Client) refused(code int, data []byte) error {
	var body struct { // a Refusal, or a Status of Kubernetes'
		Refusal
		Kind string `json:"kind"`
	}
	ours := json.Unmarshal(data, &body) == nil && body.Kind == "" && body.Message != ""
	why := cmp.Or(body.Message, http.StatusText(code))
	if body.Reason == ReasonRemoved {
		return exitcode.With(exitcode.Removed, errors.New(why))
	}
	switch code {
	case http.StatusUnauthorized:
		who := "the token: it is wrong, has expired or was deleted; make another on a server with coracle token create"
		if c.CertFile != "" {
			who = "this machine's certificate: the node was removed, or this is another cluster"
		}
		return &Denied{fmt.Errorf("%s does not accept %s", c.Server, who)}
	case http.StatusForbidden:
		if !ours && c.CertFile == "" {
			why = "the token does not allow this, as one for agents does not let a server in; make one that does with " +
				"coracle token create --role server"
		}
		return &Denied{fmt.Errorf("%s refuses: %s", c.Server, why)}
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		if !ours {
			return fmt.Errorf("%s is not a coracle server that machines can join: correct --server", c.Server)
		}
	case http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return &Unreachable{fmt.Errorf("%s cannot answer yet: %s", c.Server, why), true}
	}
	return fmt.Errorf("%s refuses: %s", c.Server, why)
}

// checkClock fails if this machine's clock and the server's differ by more than maxSkew.
func (c Client) checkClock(response *http.Response, data []byte) error {
	theirs, err := http.ParseTime(response.Header.Get("Date"))
	if err != nil {
		var body Refusal
		if json.Unmarshal(data, &body) != nil || body.Time.IsZero() {
			return nil
		}
		theirs = body.Time
	}
	if ours := time.Now(); ours.Sub(theirs).Abs() > maxSkew {
		return fmt.Errorf("this machine's clock says %s, and that of %s says %s: certificates would not be valid on both; set the wrong one right",
			ours.UTC().Format(time.RFC3339), c.Server, theirs.UTC().Format(time.RFC3339))
	}
	return nil
}
