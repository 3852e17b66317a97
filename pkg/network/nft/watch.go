package nft

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
)

// WatchDeleted calls gone whenever a table of that name may have been deleted, as by `nft flush ruleset`, until ctx is done. The table
// may exist again when gone is called. It returns an error if it cannot receive events.
func WatchDeleted(ctx context.Context, name string, gone func()) error {
	events, err := subscribe()
	if err != nil {
		return fmt.Errorf("listening for changes of nft tables: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { events.Close() })
	defer stop()
	defer events.Close()
	buffer := make([]byte, 64<<10) // larger than any datagram of the kernel
	for {
		n, err := events.Read(buffer)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.ENOBUFS): // events were lost
			gone()
		case err != nil:
			return fmt.Errorf("listening for changes of nft tables: %w", err)
		case deletesTable(buffer[:n], name):
			gone()
		}
	}
}

// deletesTable reports whether one of the messages is about the deletion of a table.
func deletesTable(messages []byte, name string) bool {
	return anyMessage(messages, func(kind uint16, family nftables.TableFamily, body []byte) bool {
		return kind == tableGone && families[family]+" "+text(attribute(body, unix.NFTA_TABLE_NAME)) == name
	})
}
