package nft

import (
	"fmt"

	"github.com/google/nftables"
)

// Packets returns the packets of a named counter of a table, which is named as Table.Name; 0 if there is no such table.
func Packets(table, counter string) (uint64, error) {
	tables, err := Tables()
	if err != nil {
		return 0, err
	}
	for _, t := range tables {
		if t.Name != table {
			continue
		}
		found, err := t.conn.GetObject(&nftables.CounterObj{Table: t.table, Name: counter})
		if err != nil {
			return 0, fmt.Errorf("reading counter %s of nft table %s: %w", counter, table, err)
		}
		if c, ok := found.(*nftables.CounterObj); ok {
			return c.Packets, nil
		}
	}
	return 0, nil
}
