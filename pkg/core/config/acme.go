package config

import (
	"net/mail"
	"net/url"
)

// letsEncrypt is the directory of the ACME server that most people use.
const letsEncrypt = "https://acme-v02.api.letsencrypt.org/directory"

// acmeTable lists the settings of servers for certificates by ACME.
func acmeTable() []setting {
	return []setting{
		{name: "acme-email", arg: "ADDRESS", field: anEmail(func(c *Config) *string { return &c.ACME.Email }), group: groupNetwork, shared: withServers,
			help: "Get certificates for Ingresses and Gateways that ask for them from an ACME server, with this address for its account; this agrees to the server's terms"},
		{name: "acme-server", arg: "URL", def: letsEncrypt, field: aDirectory(func(c *Config) *string { return &c.ACME.Server }), group: groupNetwork, shared: withServers,
			help: "Directory of the ACME server"},
		{name: "acme-ca-file", arg: "FILE", note: "the system's authorities", field: aFile(func(c *Config) *string { return &c.ACME.CAFile }), group: groupNetwork, shared: contentWithServers,
			help: "Authorities, in PEM, that verify the ACME server's own certificate"},
		{name: "acme-binding-file", arg: "FILE", field: aFile(func(c *Config) *string { return &c.ACME.BindingFile }), group: groupNetwork, shared: contentWithServers,
			help: "Key ID and MAC key, with a space between, of an account that the ACME server's operator has given out (external account binding)"},
	}
}

func anEmail(field func(*Config) *string) binding {
	return bind(field, (*decoder).email, func(s string) string { return s })
}

func aDirectory(field func(*Config) *string) binding {
	return bind(field, (*decoder).directory, func(s string) string { return s })
}

func (d *decoder) email(v *value) string {
	text := v.one().text
	if parsed, err := mail.ParseAddress(text); text != "" && (err != nil || parsed.Address != text) {
		d.add("%s: %q is not an e-mail address such as me@example.com", v.label(), text)
	}
	return text
}

func (d *decoder) directory(v *value) string {
	text := v.one().text
	if u, err := url.Parse(text); err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil {
		d.add("%s: %q is not the directory of an ACME server, such as %s", v.label(), text, letsEncrypt)
	}
	return text
}
