// Command pebble is a real ACME server, Let's Encrypt's Pebble, for tests, with a name server of its own. It is a module of its own, so that the
// product links none of it. Its one argument is a JSON object: see settings.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"

	"github.com/letsencrypt/challtestsrv"
	"github.com/letsencrypt/pebble/v2/ca"
	"github.com/letsencrypt/pebble/v2/db"
	"github.com/letsencrypt/pebble/v2/va"
	"github.com/letsencrypt/pebble/v2/wfe"
)

type settings struct {
	Addr    string              // HOST:PORT of the directory
	Cert    string              // PEM files, for HTTPS
	Key     string              //
	DNS     string              // HOST:PORT of the name server
	Hosts   map[string][]string // addresses by name
	HTTP    int                 // port that is asked for HTTP-01
	TLS     int                 // port that is asked for TLS-ALPN-01
	Life    uint64              // of certificates, in seconds
	Root    string              // file to write the root of certificates to, in PEM
	Binding map[string]string   // keys that accounts must be bound to, if there are any
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
	names, err := challtestsrv.New(challtestsrv.Config{DNSAddrs: []string{s.DNS}, Log: log.New(io.Discard, "", 0)})
	if err != nil {
		return err
	}
	names.SetDefaultDNSIPv4("")
	names.SetDefaultDNSIPv6("")
	for name, addresses := range s.Hosts {
		names.AddDNSARecord(name, addresses)
	}
	go names.Run()
	logger := log.New(os.Stdout, "pebble ", log.LstdFlags)
	store := db.NewMemoryStore()
	for id, key := range s.Binding {
		if err := store.AddExternalAccountKeyByID(id, key); err != nil {
			return err
		}
	}
	authority := ca.New(logger, store, "", "ecdsa", 0, 1, map[string]ca.Profile{"default": {Description: "default", ValidityPeriod: s.Life}})
	if err := os.WriteFile(s.Root, authority.GetRootCert(0).PEM(), 0o644); err != nil {
		return err
	}
	validation := va.New(logger, s.HTTP, s.TLS, false, s.DNS, store)
	front := wfe.New(logger, store, validation, authority, []string{"pebble.test"}, false, len(s.Binding) > 0, 1, 1)
	return http.ListenAndServeTLS(s.Addr, s.Cert, s.Key, front.Handler())
}
