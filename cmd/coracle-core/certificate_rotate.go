package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/coracle-dev/coracle/pkg/cluster/join"
	"github.com/coracle-dev/coracle/pkg/cluster/pki"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/front/command"
)

// certificateServices are the words of --service, most of them k3s's, and the certificates that each stands for.
func certificateServices() (names []string, leaves map[string][]string) {
	names = []string{"admin", "api-server", "auth-proxy", "controller-manager", "coracle", "etcd", "kubelet", "node", "scheduler"}
	leaves = map[string][]string{
		"api-server": {"apiserver", "apiserver-kubelet-client"}, "auth-proxy": {"front-proxy-client"}, "etcd": {"etcd/peer"},
		"kubelet": {"kubelet-client", "kubelet-server"},
	}
	for _, name := range names {
		if leaves[name] == nil {
			leaves[name] = []string{name}
		}
	}
	return names, leaves
}

// rotateTimeout is how long the command rotate waits for what runs to use the new certificates. A kubelet on an agent has its
// certificates requested, approved and signed.
const rotateTimeout = 90 * time.Second

func certificateRotateCommand() *cobra.Command {
	words, leaves := certificateServices()
	c := &cobra.Command{
		Use:   "rotate",
		Short: "Issue this machine's certificates again now",
		Long: `Issue the certificates of this machine again, although they are not due, and wait until they are in use. Nothing has to be stopped.
Keys stay the same, except the kubelet's on an agent. On an agent a server must be reachable.`,
		Args: command.NoArgs,
	}
	output := command.OutputFlag(c, "", "json", "yaml")
	services := c.Flags().StringSlice("service", words, "The certificates of these services only, separated by commas")
	_ = c.RegisterFlagCompletionFunc("service", cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
	here := dirFlags(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		if os.Geteuid() != 0 {
			return errors.New("only root may replace certificates: use sudo")
		}
		var names []string
		for _, word := range *services {
			if leaves[word] == nil {
				return exitcode.Usagef("--service: there is no service %q; there are %s", word, strings.Join(words, ", "))
			}
			names = append(names, leaves[word]...)
		}
		i := here()
		i.config.Dirs = i.dirs
		rotated, err := rotateCertificates(c.Context(), i.config, names)
		if err != nil {
			return err
		}
		return command.Print(c.OutOrStdout(), *output, rotated, func(w io.Writer) error { return printCertificates(w, rotated) })
	}
	return interruptible(c)
}

// rotateCertificates issues the certificates with the given names again, as far as this machine has them, and returns them when they are in use.
func rotateCertificates(ctx context.Context, cfg config.Config, names []string) ([]checkedCertificate, error) {
	before := pki.Expiries(cfg.Dirs)
	names = slices.DeleteFunc(names, func(name string) bool {
		return !slices.ContainsFunc(before, func(e pki.Expiry) bool { return e.Name == name })
	})
	if len(names) == 0 {
		return nil, fmt.Errorf("this machine has none of these certificates in %s", cfg.Dirs.Data)
	}
	ctx, cancel := context.WithTimeout(ctx, rotateTimeout)
	defer cancel()
	runs := listens(cfg.Node.Balancer().String())
	issue := func() error { return pki.Reissue(cfg, names) }
	if cfg.Role == config.Agent {
		issue = func() error { return rotateAgent(ctx, cfg, names) }
	}
	if err := issue(); err != nil {
		return nil, err
	}
	if runs {
		if err := awaitRotated(ctx, cfg, names); err != nil {
			return nil, err
		}
	}
	var all []checkedCertificate
	for _, one := range pki.Expiries(cfg.Dirs) {
		if slices.Contains(names, one.Name) {
			all = append(all, checkedCertificate{one, certificateStatus(one, time.Now())})
		}
	}
	return all, nil
}

// rotateAgent requests the certificates of an agent from the servers.
func rotateAgent(ctx context.Context, cfg config.Config, names []string) error {
	client, err := join.AsNode(cfg)
	if err != nil {
		return err
	}
	if slices.Contains(names, "node") {
		if err := join.Renew(ctx, cfg, client); err != nil {
			return fmt.Errorf("requesting the node's certificate; is coracle agent running here? %w", err)
		}
	}
	if slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, "kubelet-") }) {
		if _, err := client.Cluster(ctx); err != nil { // it would be without certificates until a server answers
			return fmt.Errorf("the kubelet keeps its certificates, as no server can issue others: %w", err)
		}
		return pki.ForgetKubelet(cfg.Dirs)
	}
	return nil
}

// awaitRotated waits until the API server and the kubelet of this machine serve with the certificates with the given names.
func awaitRotated(ctx context.Context, cfg config.Config, names []string) error {
	for name, address := range map[string]string{
		"apiserver": cfg.API.Local().String(), "kubelet-server": net.JoinHostPort(cfg.Node.IPs[0].String(), "10250"),
	} {
		ownPort := slices.ContainsFunc(cfg.Args["kubelet"], func(arg string) bool { return strings.HasPrefix(strings.TrimLeft(arg, "-"), "port=") })
		if !slices.Contains(names, name) || name == "kubelet-server" && ownPort {
			continue
		}
		err := lifecycle.Until(ctx, name, func(ctx context.Context) error {
			want, err := pki.Leaf(cfg.Dirs, name)
			if err != nil {
				return err
			}
			var got []byte
			conn, err := (&tls.Dialer{Config: &tls.Config{
				InsecureSkipVerify: true, // it is only compared
				VerifyConnection: func(s tls.ConnectionState) error {
					got = s.PeerCertificates[0].Raw
					return nil
				},
			}}).DialContext(ctx, "tcp", address)
			if err != nil {
				return err
			}
			conn.Close()
			if !bytes.Equal(got, want) {
				return errors.New("it still serves with the former certificate")
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("the certificate %s was issued, and what runs does not use it yet: see coracle status: %w", name, err)
		}
	}
	return nil
}

// listens reports whether something listens on an address of this machine.
func listens(address string) bool {
	conn, err := net.DialTimeout("tcp", address, time.Second)
	if err == nil {
		conn.Close()
	}
	return err == nil
}
