// Package durability runs the member of etcd on disks that misbehave (package disks), while clients write to it, and checks that all that
// was acknowledged is there afterwards. It needs no cluster and no network, so one run takes about two seconds, and thousands can be had.
package durability
