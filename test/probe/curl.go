package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// Exit codes of curl, as far as Kubernetes' tests check them.
const (
	curlUsage   = 2
	curlName    = 6
	curlConnect = 7
	curlTimeout = 28
)

// curl gets a URL like the program of this name, with the options that Kubernetes' tests use. It ignores other options.
func curl(args []string) int {
	opts := options(args, map[string]string{
		"-o": "", "-w": "", "-m": "", "-T": "", "-H": "", "-X": "", "-d": "",
		"--connect-timeout": "", "--max-time": "", "--interface": "",
	})
	if len(opts.rest) != 1 {
		fmt.Fprintln(os.Stderr, "curl: one URL, please")
		return curlUsage
	}
	url := opts.rest[0]
	if !strings.Contains(url, "://") {
		url = "http://" + url
	}
	ctx := context.Background()
	if limit := seconds(opts.value["--max-time"] + opts.value["-m"] + opts.value["-T"]); limit > 0 {
		var cancel func()
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	if err := fetch(ctx, url, opts); err != nil {
		fmt.Fprintln(os.Stderr, "curl:", err)
		return curlCode(err)
	}
	return 0
}

// fetch prints the body of url.
func fetch(ctx context.Context, url string, opts parsed) error {
	dialer := &net.Dialer{Timeout: seconds(opts.value["--connect-timeout"])}
	if ip := net.ParseIP(opts.value["--interface"]); ip != nil {
		dialer.LocalAddr = &net.TCPAddr{IP: ip}
	}
	client := &http.Client{
		Transport:     &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: opts.set["-k"]}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	req.Header.Set("User-Agent", "curl")
	code := "000"
	defer func() {
		fmt.Print(strings.NewReplacer("%{http_code}", code, `\n`, "\n").Replace(opts.value["-w"]))
	}()
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	code = strconv.Itoa(resp.StatusCode)
	var out io.Writer = os.Stdout
	if name := opts.value["-o"]; name != "" {
		f, err := os.Create(name)
		if err != nil {
			return err
		}
		defer f.Close()
		out = f
	}
	if opts.set["-i"] {
		fmt.Fprintf(out, "%s %s\r\n", resp.Proto, resp.Status)
		_ = resp.Header.Write(out)
		fmt.Fprint(out, "\r\n")
	}
	_, err = io.Copy(out, resp.Body)
	return err
}

func curlCode(err error) int {
	var name *net.DNSError
	var network net.Error
	switch {
	case errors.As(err, &name):
		return curlName
	case errors.As(err, &network) && network.Timeout():
		return curlTimeout
	}
	return curlConnect
}

// seconds parses a duration of curl's and nc's options; 0 means no limit.
func seconds(text string) time.Duration {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0
	}
	return time.Duration(n * float64(time.Second))
}
