package release

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/exitcode"
)

// Source identifies a release and its mirror. The zero value is the newest stable release of DefaultMirror.
type Source struct {
	Mirror  string // the base: a URL (https, http, file) or a directory; "" is DefaultMirror
	Channel string // "" is DefaultChannel
	Version string // "" is the version of the channel
	Key     string // public key in PEM; "" is PublicKey
	// Unsigned takes the version of a channel from its file without a signature.
	Unsigned bool
	// Say is told of a channel that is old; may be nil.
	Say  func(string)
	Arch string // Go's name; "" is this machine's
	// Stall is the longest time in which a server sends nothing; zero is 30 s.
	Stall time.Duration
}

// names matches what may become part of a path. The text of a channel comes from an untrusted server.
var names = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z.+_-]*$`)

// smallLimit is the size up to which files are read into memory.
const smallLimit = 1 << 20

// Resolve returns the version, which it reads from the channel if none is given.
func (s Source) Resolve(ctx context.Context) (string, error) {
	if s.Version != "" {
		if !names.MatchString(s.Version) {
			return "", fmt.Errorf("%q is not a version such as v1.37.1+coracle.1", s.Version)
		}
		return s.Version, nil
	}
	channel := cmp.Or(s.Channel, DefaultChannel)
	if !names.MatchString(channel) {
		return "", fmt.Errorf("%q is not a channel; there is %s", channel, DefaultChannel)
	}
	version, err := s.channel(ctx, channel)
	if err != nil {
		return "", fmt.Errorf("finding the version of channel %s: %w", channel, err)
	}
	return version, nil
}

// old is the age from which a channel is remarkable: releases are made more often.
const old = 100 * 24 * time.Hour

// channel reads the version of a channel. A mirror can serve an old file of a channel as it can withhold a release, and a clock can be wrong:
// that a file is old is no error.
func (s Source) channel(ctx context.Context, name string) (string, error) {
	if s.Unsigned {
		text, from, err := s.read(ctx, "channels", name)
		if err != nil {
			return "", err
		}
		return isVersion(strings.TrimSpace(string(text)), from)
	}
	text, from, err := s.read(ctx, "channels", name+SignedChannel)
	if err != nil {
		return "", fmt.Errorf("%w: name the version instead, or use a mirror that has the signed file", err)
	}
	line, signature, _ := strings.Cut(string(text), "\n")
	if err := verify([]byte(line+"\n"), []byte(signature), s.Key, from); err != nil {
		return "", err
	}
	version, made, _ := strings.Cut(line, " ")
	seconds, err := strconv.ParseInt(made, 10, 64)
	if err != nil {
		return "", untrusted(from, "it does not say when it was made")
	}
	if age := time.Since(time.Unix(seconds, 0)); age > old && s.Say != nil {
		s.Say(fmt.Sprintf("%s was signed %d days ago: its mirror may withhold newer versions, or the clock of this machine is wrong", from, age/(24*time.Hour)))
	}
	return isVersion(version, from)
}

// isVersion returns the version that was read from a place, if it is one.
func isVersion(version, from string) (string, error) {
	if !names.MatchString(version) {
		return "", fmt.Errorf("%s has %.60q, which is not a version", from, version)
	}
	return version, nil
}

// at returns the place of a file of the mirror. It escapes the plus sign of versions, which some servers take for a blank.
func (s Source) at(elem ...string) (place string, remote bool) {
	base := cmp.Or(s.Mirror, DefaultMirror)
	if strings.HasPrefix(base, "https://") || strings.HasPrefix(base, "http://") {
		place = strings.TrimRight(base, "/")
		for _, e := range elem {
			place += "/" + url.QueryEscape(e)
		}
		return place, true
	}
	return filepath.Join(append([]string{strings.TrimPrefix(base, "file://")}, elem...)...), false
}

// read returns a small file and its place.
func (s Source) read(ctx context.Context, elem ...string) (data []byte, from string, err error) {
	body, _, from, err := s.open(ctx, elem...)
	if err != nil {
		return nil, from, err
	}
	defer body.Close()
	data, err = io.ReadAll(io.LimitReader(body, smallLimit+1))
	if err == nil && len(data) > smallLimit {
		err = errors.New("it is too large")
	}
	if err != nil {
		return nil, from, fmt.Errorf("reading %s: %w", from, err)
	}
	return data, from, nil
}

// open starts to read a file. size is -1 if the server does not send it. ctx must not end before the body is closed.
func (s Source) open(ctx context.Context, elem ...string) (body io.ReadCloser, size int64, from string, err error) {
	from, remote := s.at(elem...)
	if !remote {
		f, err := os.Open(from)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, 0, from, exitcode.With(exitcode.Unreachable, fmt.Errorf("there is no %s", from))
		}
		if err != nil {
			return nil, 0, from, err
		}
		info, err := f.Stat()
		if err != nil {
			f.Close()
			return nil, 0, from, err
		}
		return f, info.Size(), from, nil
	}
	body, size, err = get(ctx, from, cmp.Or(s.Stall, 30*time.Second))
	return body, size, from, exitcode.With(exitcode.Unreachable, err)
}

// get requests a file from a server. It fails when the server sends nothing for the time of stall.
func get(ctx context.Context, from string, stall time.Duration) (io.ReadCloser, int64, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	silent := fmt.Errorf("%s sent nothing for %v", from, stall)
	timer := time.AfterFunc(stall, func() { cancel(silent) })
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		cancel(nil)
		return nil, 0, err
	}
	req.Header.Set("User-Agent", "coracle")
	client := http.Client{Transport: http.DefaultTransport}
	resp, err := client.Do(req)
	if err == nil && resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		err = fmt.Errorf("%s answers %s", from, resp.Status)
	}
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		timer.Stop()
		cancel(nil)
		return nil, 0, err
	}
	return &download{resp.Body, ctx, timer, stall, cancel}, resp.ContentLength, nil
}

// download is a body that restarts the timer whenever data arrives.
type download struct {
	io.ReadCloser
	ctx    context.Context
	timer  *time.Timer
	stall  time.Duration
	cancel context.CancelCauseFunc
}

func (d *download) Read(p []byte) (int, error) {
	n, err := d.ReadCloser.Read(p)
	if cause := context.Cause(d.ctx); err != nil && cause != nil {
		return n, cause
	}
	d.timer.Reset(d.stall)
	return n, err
}

func (d *download) Close() error {
	d.timer.Stop()
	d.cancel(nil)
	return d.ReadCloser.Close()
}

func (s Source) arch() string { return cmp.Or(s.Arch, runtime.GOARCH) }
