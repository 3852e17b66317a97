// Command standin is a program for the tests of upgrades: a version of coracle that does not work, and a client that
// counts failed requests.
//
//	standin version|upgrade-unpack …    answers like coracle
//	standin server|agent …              fails in the mode in /etc/standin
//	standin client POD SERVICE API      sends requests to each, and prints the failures at SIGTERM
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"
)

// version is set by the build.
var version = "v1.37.1+coracle.7"

func main() {
	verb := ""
	if len(os.Args) > 1 {
		verb = os.Args[1]
	}
	switch verb {
	case "version":
		_ = json.NewEncoder(os.Stdout).Encode(map[string]string{"version": version})
	case "upgrade-unpack":
	case "server", "agent":
		os.Exit(fail())
	case "client":
		client(os.Args[2], os.Args[3], os.Args[4])
	default:
		os.Exit(1)
	}
}

// fail plays a version that does not work.
func fail() int {
	text, _ := os.ReadFile("/etc/standin")
	mode, real, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
	switch mode {
	case "hangs":
		time.Sleep(time.Hour)
	case "dies": // runs another version, and dies when /etc/standin-dies appears
		watch := exec.Command("/bin/sh", "-c", `while [ ! -e /etc/standin-dies ]; do sleep 0.1; done; kill -9 $PPID`)
		if err := watch.Start(); err == nil {
			_ = syscall.Exec(real, append([]string{real}, os.Args[1:]...), os.Environ())
		}
	case "misconfigured":
		fmt.Fprintln(os.Stderr, "coracle: --new-default: 7 is not a valid value")
		return 2
	}
	fmt.Fprintln(os.Stderr, "coracle: this version does not work")
	return 1
}

// count has the number of requests and of failures.
type count struct {
	asked, failed int
	gap           time.Duration // the longest time without an answer
	last          error
}

func (c *count) every(ctx context.Context, pause time.Duration, ask func() error) {
	answered := time.Now()
	defer func() { c.gap = max(c.gap, time.Since(answered)) }()
	for ctx.Err() == nil {
		err := ask()
		if ctx.Err() != nil {
			return
		}
		c.asked++
		if err != nil {
			c.failed++
			c.last = err
		} else {
			c.gap = max(c.gap, time.Since(answered))
			answered = time.Now()
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// answerTimeout limits the wait for a pod's answer: a machine that unpacks a version meanwhile may be slow. A refused
// or broken connection fails at once, and lost packets leave a gap.
const answerTimeout = 15 * time.Second

// client keeps one connection to a pod, makes new ones to a Service, and asks the API whether it is ready.
func client(pod, service, api string) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	counts := map[string]*count{"connection": {}, "service": {}, "api": {}}
	var all sync.WaitGroup
	conn, err := net.DialTimeout("tcp", pod, answerTimeout)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	answers := bufio.NewReader(conn)
	all.Go(func() {
		counts["connection"].every(ctx, 20*time.Millisecond, func() error { return again(conn, answers) })
	})
	fresh := &http.Client{Timeout: answerTimeout, Transport: &http.Transport{DisableKeepAlives: true}}
	all.Go(func() {
		counts["service"].every(ctx, 20*time.Millisecond, func() error { return get(fresh, "http://"+service+"/hostname") })
	})
	outside := &http.Client{Timeout: 500 * time.Millisecond,
		Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	all.Go(func() {
		counts["api"].every(ctx, 10*time.Millisecond, func() error { return get(outside, "https://"+api+"/readyz") })
	})
	all.Wait()
	told := map[string]any{}
	for name, c := range counts {
		told[name] = map[string]any{"asked": c.asked, "failed": c.failed, "gapSeconds": c.gap.Seconds(), "last": fmt.Sprint(c.last)}
	}
	_ = json.NewEncoder(os.Stdout).Encode(told)
}

// again makes a request on the same connection.
func again(conn net.Conn, answers *bufio.Reader) error {
	if err := conn.SetDeadline(time.Now().Add(answerTimeout)); err != nil {
		return err
	}
	if _, err := fmt.Fprint(conn, "GET /hostname HTTP/1.1\r\nHost: pod\r\n\r\n"); err != nil {
		return err
	}
	resp, err := http.ReadResponse(answers, nil)
	if err != nil {
		return err
	}
	_, err = bufio.NewReader(resp.Body).WriteTo(discard{})
	return err
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

func get(client *http.Client, url string) error {
	resp, err := client.Get(url)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s", resp.Status)
	}
	return nil
}
