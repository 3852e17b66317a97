// Command etcd36 is etcd 3.6 as others run it, for the test of clusters whose data is in somebody else's etcd. It is
// a module of its own, because the product links etcd 3.7.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
