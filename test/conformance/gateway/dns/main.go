// Command dns answers each question with REFUSED on port 53: the tests of UDPRoute use CoreDNS only as a program that answers by UDP, and accept any
// answer.
package main

import (
	"fmt"
	"os"

	"github.com/miekg/dns"
)

func main() {
	refuse := dns.HandlerFunc(func(w dns.ResponseWriter, question *dns.Msg) {
		answer := new(dns.Msg)
		answer.SetRcode(question, dns.RcodeRefused)
		_ = w.WriteMsg(answer) // the client asks again
	})
	if err := dns.ListenAndServe(":53", "udp", refuse); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
