// Package nft lists the nft tables of this network namespace, and puts rules into those of others, by asking the kernel,
// without the nft program.
package nft

import (
	"errors"
	"fmt"
	"slices"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
)

// families are nft's names of table families.
var families = map[nftables.TableFamily]string{
	nftables.TableFamilyIPv4: "ip", nftables.TableFamilyIPv6: "ip6", nftables.TableFamilyINet: "inet",
	nftables.TableFamilyARP: "arp", nftables.TableFamilyBridge: "bridge", nftables.TableFamilyNetdev: "netdev",
}

// Table is one table.
type Table struct {
	// Name is the family and the name, as nft's command line has them: "ip kube-proxy".
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
		if unsupported(err) {
			err = nil
		}
		return false, err
	}
	return slices.ContainsFunc(tables, func(t Table) bool { return t.Name == name }), nil
}

// unsupported reports whether an error of netlink says that the kernel has no nftables.
func unsupported(err error) bool {
	return slices.ContainsFunc([]unix.Errno{unix.EPROTONOSUPPORT, unix.EAFNOSUPPORT, unix.EOPNOTSUPP, unix.EINVAL}, func(no unix.Errno) bool {
		return errors.Is(err, no)
	})
}

// Delete removes the table with all in it. One that is gone is ENOENT.
func (t Table) Delete() error {
	t.conn.DelTable(t.table)
	return t.conn.Flush()
}
