package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// parsed is a command line: options without a value, options with a value, and arguments.
type parsed struct {
	set   map[string]bool
	value map[string]string
	rest  []string
}

// options parses a command line. Short options may be combined; those in values have a value.
func options(args []string, values map[string]string) parsed {
	p := parsed{set: map[string]bool{}, value: values}
	for i := 0; i < len(args); i++ {
		arg := args[i]
		_, takes := values[arg]
		switch {
		case takes && i+1 < len(args):
			i++
			p.value[arg] = args[i]
		case strings.HasPrefix(arg, "--"):
			p.set[arg] = true
		case strings.HasPrefix(arg, "-") && len(arg) > 1:
			for _, letter := range arg[1:] {
				p.set["-"+string(letter)] = true
			}
		default:
			p.rest = append(p.rest, arg)
		}
	}
	return p
}

// nc sends standard input to an address and prints the answer, like OpenBSD's, with the options that Kubernetes' tests
// use.
func nc(args []string) int {
	opts := options(args, map[string]string{"-w": "", "-W": "", "-p": ""})
	if len(opts.rest) != 2 {
		fmt.Fprintln(os.Stderr, "nc: HOST PORT, please")
		return 1
	}
	if err := talk(net.JoinHostPort(opts.rest[0], opts.rest[1]), opts); err != nil {
		fmt.Fprintln(os.Stderr, "nc:", err)
		return 1
	}
	return 0
}

// talk ends when the other side ends, or has been silent for the time of -w.
func talk(addr string, opts parsed) error {
	patience := seconds(opts.value["-w"])
	network := "tcp"
	dialer := &net.Dialer{Timeout: patience}
	port, _ := strconv.Atoi(opts.value["-p"])
	if opts.set["-u"] {
		network = "udp"
		dialer.LocalAddr = &net.UDPAddr{Port: port}
	}
	conn, err := dialer.Dial(network, addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	if opts.set["-v"] {
		fmt.Fprintf(os.Stderr, "Connection to %s succeeded!\n", addr)
	}
	if opts.set["-z"] {
		return nil
	}
	if _, err := io.Copy(conn, os.Stdin); err != nil {
		return err
	}
	packets, _ := strconv.Atoi(opts.value["-W"])
	return listen(conn, patience, packets)
}

// listen prints received packets, and ends after the given number of packets if there is one.
func listen(conn net.Conn, patience time.Duration, packets int) error {
	buffer := make([]byte, 64<<10)
	for n := 1; ; n++ {
		if patience > 0 {
			if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
				return err
			}
		}
		got, err := conn.Read(buffer)
		_, _ = os.Stdout.Write(buffer[:got])
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, os.ErrDeadlineExceeded), n == packets:
			return nil
		case err != nil:
			return err
		}
	}
}
