package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
)

// ApplyPath is the path of the request that makes the gateway read its files again. The answer is an Applied.
const ApplyPath = "/apply"

// AlivePath is the path of the request that only wants an answer.
const AlivePath = "/alive"

// MetricsPath is the path of the gateway's metrics, whose names begin with MetricsPrefix.
const (
	MetricsPath   = "/metrics"
	MetricsPrefix = "coracle_gateway_"
)

// Applied is what the gateway answers when it has read its files.
type Applied struct {
	// Refused says for each listener that cannot serve why, by port.
	Refused map[uint16]string `json:"refused,omitempty"`
	// Certificates says for each certificate that cannot be used why, by source.
	Certificates map[string]string `json:"certificates,omitempty"`
}

// Writer writes the files of a node's gateway, as the control plane's user.
type Writer struct {
	Files Files

	config, endpoints []byte // as they were written last
}

// Write writes what has changed, and reports whether anything has.
func (w *Writer) Write(config Config, endpoints Endpoints) (changed bool, err error) {
	// The endpoints come first, so that no new route is without its addresses.
	one, err := write(w.Files.Endpoints(), endpoints, &w.endpoints)
	if err != nil {
		return false, err
	}
	other, err := write(w.Files.Config(), config, &w.config)
	return one || other, err
}

func write(path string, content any, last *[]byte) (changed bool, err error) {
	data, err := json.Marshal(content)
	if err != nil {
		return false, err
	}
	if bytes.Equal(data, *last) {
		return false, nil
	}
	// Not with atomicfile, because the file gets the directory's group, and may be read by it.
	file, err := os.CreateTemp(filepath.Dir(path), unfinishedPattern)
	if err != nil {
		return false, err
	}
	defer file.Close()
	_, err = file.Write(data)
	if err = errors.Join(err, file.Chmod(0o640)); err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return false, errors.Join(err, os.Remove(file.Name()))
	}
	*last = data
	return true, nil
}

// Remove ends the gateway of this node.
func (w *Writer) Remove() error {
	w.config, w.endpoints = nil, nil
	var errs []error
	for _, path := range []string{w.Files.Config(), w.Files.Endpoints()} {
		if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Apply has the gateway read its files, and returns what came of it. It fails while there is no process.
func (d Dir) Apply(ctx context.Context) (Applied, error) {
	answer, err := d.ask(ctx, http.MethodPost, ApplyPath)
	if err != nil {
		return Applied{}, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		return Applied{}, fmt.Errorf("asking the gateway's process: %w", err)
	}
	if answer.StatusCode != http.StatusOK {
		return Applied{}, fmt.Errorf("the gateway's process: %s", bytes.TrimSpace(body))
	}
	var applied Applied
	if err := json.Unmarshal(body, &applied); err != nil {
		return Applied{}, fmt.Errorf("reading the answer of the gateway's process: %w", err)
	}
	return applied, nil
}

// Alive reports whether the gateway's process serves.
func (d Dir) Alive(ctx context.Context) bool {
	answer, err := d.ask(ctx, http.MethodGet, AlivePath)
	if err != nil {
		return false
	}
	answer.Body.Close()
	return answer.StatusCode == http.StatusOK
}

// Metrics asks the gateway's process for its metrics.
func (d Dir) Metrics(ctx context.Context) (*http.Response, error) {
	return d.ask(ctx, http.MethodGet, MetricsPath)
}

func (d Dir) ask(ctx context.Context, method, path string) (*http.Response, error) {
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", d.Socket())
	}}
	request, err := http.NewRequestWithContext(ctx, method, "http://gateway"+path, nil)
	if err != nil {
		return nil, err
	}
	answer, err := transport.RoundTrip(request)
	if err != nil {
		return nil, fmt.Errorf("asking the gateway's process: %w", err)
	}
	return answer, nil
}

// unfinishedPattern is for the names of files that are being written.
const unfinishedPattern = ".new-*"

// maxAnswer is the length in bytes at which an answer is cut.
const maxAnswer = 4 << 20
