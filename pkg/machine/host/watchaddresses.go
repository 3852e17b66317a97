package host

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"
)

// WatchAddresses sends after changes of this machine's addresses and routes, until ctx is done. Several changes may be one message.
func WatchAddresses(ctx context.Context) (<-chan struct{}, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("opening a netlink socket: %w", err)
	}
	const groups = unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR | unix.RTMGRP_IPV4_ROUTE | unix.RTMGRP_IPV6_ROUTE
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("listening for changes of addresses: %w", err)
	}
	socket := os.NewFile(uintptr(fd), "netlink")
	stop := context.AfterFunc(ctx, func() { socket.Close() })
	changed := make(chan struct{}, 1)
	go func() {
		defer stop()
		defer socket.Close()
		buf := make([]byte, 1) // what has changed does not matter; the rest of a message is dropped
		for {
			if _, err := socket.Read(buf); err != nil && !errors.Is(err, unix.ENOBUFS) { // ENOBUFS: messages were dropped
				if ctx.Err() == nil {
					logrus.WithError(err).Warn("changes of this machine's addresses are not noticed any more, until coracle is started again")
				}
				return
			}
			select {
			case changed <- struct{}{}:
			default: // a notification is pending
			}
		}
	}()
	return changed, nil
}
