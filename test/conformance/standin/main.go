// Command standin stands in for programs in the images of cri-tools' validation suite and Kubernetes' tests, depending on its name: for web servers, for
// nonewprivs' program, for the CSI driver hostpathplugin where that is only a proxy, and for applets of busybox that Debian's busybox lacks or runs in another way.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

func main() {
	name := filepath.Base(os.Args[0])
	run := map[string]func() error{"hostpathplugin": proxy, "ipcs": ipcs, "nnp": nnp, "pgrep": pgrep, "sh": shell}[name]
	if run == nil {
		run = func() error { return serve(name) }
	}
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", os.Args[0], err)
		os.Exit(1)
	}
}

// proxy joins each connection to the socket --endpoint with the next one to --proxy-endpoint=tcp://:PORT, through which a test reads and answers it.
// Tests of dynamic resource allocation have their driver there.
func proxy() error {
	flags := flag.NewFlagSet("hostpathplugin", flag.ContinueOnError)
	_ = flags.Int("v", 0, "")
	endpoint := flags.String("endpoint", "", "")
	behind := flags.String("proxy-endpoint", "", "")
	if err := flags.Parse(os.Args[1:]); err != nil {
		return err
	}
	path := strings.TrimPrefix(*endpoint, "unix://")
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	tests, err := net.Listen("tcp", strings.TrimPrefix(*behind, "tcp://"))
	if err != nil {
		return err
	}
	clients, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	for {
		client, err := clients.Accept()
		if err != nil {
			return err
		}
		test, err := tests.Accept()
		if err != nil {
			return err
		}
		for _, way := range [][2]net.Conn{{client, test}, {test, client}} {
			go func() {
				_, _ = io.Copy(way[0], way[1]) // until one of them is closed
				way[0].Close()
				way[1].Close()
			}()
		}
	}
}

// nnp is the program of the image nonewprivs.
func nnp() error {
	_, err := fmt.Printf("Effective uid: %d\n", os.Geteuid())
	return err
}

// ipcs prints the kernel's list of shared memory segments.
func ipcs() error {
	segments, err := os.Open("/proc/sysvipc/shm")
	if err != nil {
		return err
	}
	defer segments.Close()
	_, err = io.Copy(os.Stdout, segments)
	return err
}

// pgrep prints the IDs of processes whose name contains the argument.
func pgrep() error {
	files, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		return err
	}
	for _, file := range files {
		name, _ := os.ReadFile(file) // of a process that has ended: none
		if strings.Contains(string(name), os.Args[1]) {
			fmt.Println(filepath.Base(filepath.Dir(file)))
		}
	}
	return nil
}

// shell runs a command that is only one word, as from -c, without looking for it in busybox: Debian's shell does not run a file of
// that name if there is an applet. Busybox does the rest.
func shell() error {
	if len(os.Args) != 3 || os.Args[1] != "-c" || strings.ContainsAny(os.Args[2], " \n;|&<>$()") {
		return syscall.Exec("/bin/busybox", append([]string{"sh"}, os.Args[1:]...), os.Environ())
	}
	command, why := os.Args[2], "not found"
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if err := syscall.Exec(filepath.Join(dir, command), []string{command}, os.Environ()); errors.Is(err, os.ErrPermission) {
			why = "Permission denied"
		}
	}
	return fmt.Errorf("%s: %s", command, why)
}

// serve answers all requests with a page that names the server. Its process ID is in /var/run.
func serve(name string) error {
	port := flag.Int("port", 80, "")
	flag.Parse()
	listener, err := net.Listen("tcp", fmt.Sprint(":", *port))
	if err != nil {
		return err
	}
	if err := os.MkdirAll("/var/run", 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join("/var/run", name+".pid"), []byte(strconv.Itoa(os.Getpid())), 0o644); err != nil {
		return err
	}
	fmt.Printf("%s: listening on port %d\n", name, *port)
	return http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "This is", name) }))
}
