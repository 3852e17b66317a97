package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/coracle-dev/coracle/pkg/cluster/pki"
	"github.com/coracle-dev/coracle/pkg/front/command"
)

// certificateCommand looks after this machine's certificates. Its words are k3s's.
func certificateCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "certificate",
		Long: `Look after the certificates of this machine. It needs root.

They are renewed by themselves when two thirds of their validity have passed, while everything runs.`,
	}
	return command.Group(c, certificateCheckCommand(), certificateRotateCommand(), certificateRotateCACommand())
}

// checkedCertificate is what the command check prints of a certificate.
type checkedCertificate struct {
	pki.Expiry
	Status string `json:"status"`
}

// The words of checkedCertificate.Status.
const (
	certificateOK      = "OK"
	certificateLate    = "LATE"    // it should have been renewed
	certificateExpired = "EXPIRED" // or not valid yet
	certificateDamaged = "DAMAGED"
)

func certificateCheckCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "check",
		Short: "Show until when each certificate is valid",
		Long: `Show until when each certificate of this machine is valid, and when it is renewed. The command fails if one has expired, is damaged,
or should have been renewed already.`,
		Args: command.NoArgs,
	}
	output := command.OutputFlag(c, "", "json", "yaml")
	here := dirFlags(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		if os.Geteuid() != 0 {
			return errors.New("only root may read all certificates: use sudo")
		}
		dirs := here().dirs
		all, wrong := []checkedCertificate{}, 0
		for _, one := range pki.Expiries(dirs) {
			checked := checkedCertificate{one, certificateStatus(one, time.Now())}
			if checked.Status != certificateOK {
				wrong++
			}
			all = append(all, checked)
		}
		if len(all) == 0 {
			return fmt.Errorf("there are no certificates in %s: coracle has not run with this data directory", dirs.Data)
		}
		if err := command.Print(c.OutOrStdout(), *output, all, func(w io.Writer) error { return printCertificates(w, all) }); err != nil {
			return err
		}
		if wrong > 0 {
			return fmt.Errorf("%d of %d certificates are not as they should be: is the clock right, and does coracle run? See coracle doctor", wrong, len(all))
		}
		return nil
	}
	return c
}

func certificateStatus(e pki.Expiry, now time.Time) string {
	switch {
	case e.Error != "":
		return certificateDamaged
	case !now.Before(e.NotAfter) || now.Before(e.NotBefore):
		return certificateExpired
	case !e.RenewBy.IsZero() && now.After(e.RenewBy):
		return certificateLate
	}
	return certificateOK
}

func printCertificates(w io.Writer, all []checkedCertificate) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "NAME\tSUBJECT\tISSUER\tEXPIRES\tRENEWED FROM\tSTATUS")
	for _, one := range all {
		renewed := "-"
		if !one.RenewAt.IsZero() {
			renewed = one.RenewAt.UTC().Format(time.RFC3339)
		}
		if one.Error != "" {
			fmt.Fprintf(t, "%s\t%s\t\t\t\t%s\n", one.Name, one.Error, one.Status)
			continue
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", one.Name, one.Subject, one.Issuer, one.NotAfter.UTC().Format(time.RFC3339), renewed, one.Status)
	}
	return t.Flush()
}
