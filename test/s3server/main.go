// Command s3server is a real server of S3, VersityGW with a directory as its storage, for tests. It is a module of its own, so that the product
// links none of it. Its one argument is a JSON object: see settings.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"
)

type settings struct {
	Addr     string // HOST:PORT
	Dir      string // buckets are directories in it
	Access   string
	Secret   string
	Cert     string // PEM files, for HTTPS
	Key      string
	ReadOnly bool
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	var s settings
	if err := json.Unmarshal([]byte(os.Args[1]), &s); err != nil {
		return err
	}
	about := filepath.Join(s.Dir, "..", "about")
	if err := os.MkdirAll(about, 0o700); err != nil {
		return err
	}
	storer, err := meta.NewSideCar(about) // not every file system has extended attributes
	if err != nil {
		return err
	}
	storage, err := posix.New(s.Dir, storer, posix.PosixOpts{SideCarDir: about})
	if err != nil {
		return err
	}
	return embedgw.RunVersityGW(context.Background(), storage, &embedgw.Config{
		RootUserAccess: s.Access, RootUserSecret: s.Secret, Ports: []string{s.Addr}, CertFile: s.Cert, KeyFile: s.Key, Readonly: s.ReadOnly, Quiet: true,
		Region: "us-east-1", MaxConnections: 1000, MaxRequests: 1000, MultipartMaxParts: 10000,
	})
}
