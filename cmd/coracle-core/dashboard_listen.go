package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"html"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/diagnose/dashboard"
)

// openBrowser opens a URL in the browser of the desktop, and ends with ctx. Other users can see the arguments of processes, so the
// browser gets the name of a file that only this user can read, which leads on to the URL.
func openBrowser(ctx context.Context, url string) error {
	dir, err := os.MkdirTemp("", "coracle-dashboard-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "open.html")
	page := fmt.Sprintf("<!doctype html><meta http-equiv=\"refresh\" content=\"0; url=%s\">\n", html.EscapeString(url))
	if err := os.WriteFile(path, []byte(page), 0o600); err != nil {
		return err
	}
	// What it prints goes nowhere: a browser would keep a pipe open.
	if err := exec.CommandContext(ctx, "xdg-open", path).Run(); err != nil && ctx.Err() == nil {
		return fmt.Errorf("--open needs a desktop with xdg-open: %w", err)
	}
	<-ctx.Done() // the browser may read the file later
	return nil
}

// tokenPattern is what the page takes for a token in its address.
var tokenPattern = regexp.MustCompile(`^[A-Za-z0-9_-]{32,}$`)

// tokenOf reads the token of a screen, and makes the file if there is none.
func tokenOf(path string) (string, error) {
	if !paths.Exists(path) {
		if err := makeToken(path); err != nil {
			return "", fmt.Errorf("making the token: %w", err)
		}
	}
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("reading the token: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", fmt.Errorf("reading the token: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("%s has the mode %04o, and others than its owner can use it: chmod 600 %[1]s", path, info.Mode().Perm())
	}
	data, err := io.ReadAll(io.LimitReader(f, 4096))
	if err != nil {
		return "", fmt.Errorf("reading the token: %w", err)
	}
	token := strings.TrimSpace(string(data))
	if !tokenPattern.MatchString(token) {
		return "", fmt.Errorf("%s is no token: it needs at least 32 letters, digits, - and _ and nothing else; remove the file, and coracle makes one", path)
	}
	return token, nil
}

// makeToken makes the file of a token when it is whole. One that another process makes at the same time stays.
func makeToken(path string) error {
	whole := path + ".new"
	if err := atomicfile.Write(whole, []byte(dashboard.NewSecret()+"\n"), 0o600); err != nil {
		return err
	}
	defer os.Remove(whole)
	if err := os.Link(whole, path); err != nil && !paths.Exists(path) {
		return err
	}
	return atomicfile.SyncDir(filepath.Dir(path))
}

// certificate returns that of --listen, which is read again for each connection, and prints the fingerprint of one that nobody vouches for.
func (o *dashboardOptions) certificate(out io.Writer, s *dashboard.Server) (dashboard.Certificate, error) {
	s.IP, s.Hosts = true, o.names
	if name, err := os.Hostname(); err == nil {
		s.Hosts = append(s.Hosts, name)
	}
	if o.cert != "" {
		read := func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(o.cert, o.key)
			return &pair, err
		}
		pair, err := read(nil)
		if err != nil {
			return nil, fmt.Errorf("reading the certificate: %w", err)
		}
		s.Hosts = append(s.Hosts, pair.Leaf.DNSNames...)
		return read, nil
	}
	var addresses []net.IP
	if host, _, _ := net.SplitHostPort(o.listen); net.ParseIP(host) != nil {
		addresses = append(addresses, net.ParseIP(host))
	}
	made, fingerprint, err := dashboard.SelfSigned(s.Hosts, addresses, time.Now())
	if err != nil {
		return nil, fmt.Errorf("making a certificate: %w", err)
	}
	fmt.Fprintf(out, "The certificate is self-signed; its SHA-256 fingerprint is %s\n\n", fingerprint)
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return made, nil }, nil
}

// address is what a browser elsewhere can open.
func (o *dashboardOptions) address(l *net.TCPAddr) string {
	host := l.IP.String()
	if l.IP.IsUnspecified() {
		host, _ = os.Hostname()
	}
	if len(o.names) > 0 {
		host = o.names[0]
	}
	return net.JoinHostPort(host, fmt.Sprint(l.Port))
}

// shown is what the printed address has of the token. One that stays belongs in no journal.
func (o *dashboardOptions) shown(secret string) string {
	if o.tokenFile != "" {
		return "TOKEN"
	}
	return secret
}

func (o *dashboardOptions) hint() string {
	if o.tokenFile == "" {
		return ""
	}
	return "TOKEN is what the file " + o.tokenFile + " has. "
}
