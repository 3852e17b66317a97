// Package nft lists the nft tables of this network namespace, and puts rules into those of others, by asking the kernel,
// without the nft program.
package nft

import (
	"fmt"

	"github.com/google/nftables"
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

// Exists reports whether there is a table of that name. Where the kernel does not say, there is none.
func Exists(name string) bool {
	tables, err := Tables()
	if err != nil {
		return false
	}
	for _, t := range tables {
		if t.Name == name {
			return true
		}
	}
	return false
}

// Delete removes the table with all in it. One that is gone is ENOENT.
func (t Table) Delete() error {
	t.conn.DelTable(t.table)
	return t.conn.Flush()
}
