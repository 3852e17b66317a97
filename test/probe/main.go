// Command probe is the client in the test image: Debian's static busybox cannot resolve names for HTTP. It resolves
// names like other programs in pods, with /etc/resolv.conf and its search list.
//
//	probe get URL             prints the body; any other status than 200 is a failure
//	probe lookup HOST         prints the addresses, one a line
//	probe connect HOST:PORT   opens a TCP connection
//
// Called as curl, wget or nc, it implements these as far as Kubernetes' own tests need them in the image agnhost.
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

func main() {
	switch filepath.Base(os.Args[0]) {
	case "curl", "wget": // the options that the tests pass to wget mean the same, except -T
		os.Exit(curl(os.Args[1:]))
	case "nc":
		os.Exit(nc(os.Args[1:]))
	}
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: probe get|lookup|connect WHAT")
		os.Exit(2)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	if err := run(ctx, os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, verb, what string) error {
	switch verb {
	case "get":
		return get(ctx, what)
	case "lookup":
		addrs, err := net.DefaultResolver.LookupHost(ctx, what)
		for _, a := range addrs {
			fmt.Println(a)
		}
		return err
	case "connect":
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", what)
		if err != nil {
			return err
		}
		return conn.Close()
	}
	return fmt.Errorf("no verb %q", verb)
}

func get(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	_, err = io.Copy(os.Stdout, resp.Body)
	return err
}
