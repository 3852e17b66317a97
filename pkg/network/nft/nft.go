// Package nft lists the nft tables of this network namespace, watches them, and adds rules to tables of other programs. It speaks
// netlink and does not run the nft program.
package nft

import (
	"errors"
	"fmt"
	"slices"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
)

// families are the names of table families on nft's command line.
var families = map[nftables.TableFamily]string{
	nftables.TableFamilyIPv4: "ip", nftables.TableFamilyIPv6: "ip6", nftables.TableFamilyINet: "inet",
	nftables.TableFamilyARP: "arp", nftables.TableFamilyBridge: "bridge", nftables.TableFamilyNetdev: "netdev",
}

// Table is one table.
type Table struct {
	// Name is the family and the name, as on nft's command line: "ip kube-proxy".
	Name  string
	conn  *nftables.Conn
	table *nftables.Table
}

// Tables lists all tables.
func Tables() ([]Table, error) {
	conn, err := nftables.New()
	if err != nil {
		return nil, err
	}
	found, err := conn.ListTables()
	if err != nil {
		return nil, fmt.Errorf("listing nft tables: %w", err)
	}
	tables := make([]Table, len(found))
	for i, t := range found {
		tables[i] = Table{Name: families[t.Family] + " " + t.Name, conn: conn, table: t}
	}
	return tables, nil
}

// Exists reports whether there is a table of that name. A kernel without nftables has none.
func Exists(name string) (bool, error) {
	tables, err := Tables()
	if err != nil {
		if Unsupported(err) {
			err = nil
		}
		return false, err
	}
	return slices.ContainsFunc(tables, func(t Table) bool { return t.Name == name }), nil
}

// Unsupported reports whether a netlink error means that the kernel has no nftables.
func Unsupported(err error) bool {
	return slices.ContainsFunc([]unix.Errno{unix.EPROTONOSUPPORT, unix.EAFNOSUPPORT, unix.EOPNOTSUPP, unix.EINVAL}, func(no unix.Errno) bool {
		return errors.Is(err, no)
	})
}

// Remove deletes tables by their names. Those that do not exist are no error.
func Remove(names ...string) error {
	tables, err := Tables()
	if err != nil {
		return nil //nolint:nilerr // a kernel that lists no tables has none of these
	}
	for _, t := range tables {
		if !slices.Contains(names, t.Name) {
			continue
		}
		if err := t.Delete(); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("removing nft table %s of an earlier start: %w", t.Name, err)
		}
	}
	return nil
}

// Delete deletes the table with its content. The error is ENOENT if the table does not exist any more.
func (t Table) Delete() error {
	t.conn.DelTable(t.table)
	return t.conn.Flush()
}
