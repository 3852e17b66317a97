package config

import (
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

func (d *decoder) join(r raw) Join {
	j := Join{
		Token: r["token"].one().text, TokenFile: d.tokenFile(r["token-file"]),
		AgentToken: r["agent-token"].one().text, AgentTokenFile: d.tokenFile(r["agent-token-file"]),
	}
	if len(r["server"].items) > 0 {
		j.Server = d.serverURL(r["server"])
	}
	d.either(r["token"], r["token-file"])
	d.either(r["agent-token"], r["agent-token-file"])
	if j.AgentToken != "" && j.AgentToken == j.Token {
		d.add("%s and %s are the same, and then agents could join as servers; make the one for agents another", r["agent-token"].label(), r["token"].label())
	}
	return j
}

// tokenFile is file, but on a machine that was part of a cluster before, the file can be gone: package join decides whether it is needed.
func (d *decoder) tokenFile(v *value) string {
	if v.one().text != "" {
		_, gone := os.Stat(d.path(v))
		_, never := d.host.readFile(d.nodeCert)
		if errors.Is(gone, fs.ErrNotExist) && never == nil {
			return d.path(v)
		}
	}
	return d.file(v)
}

func (d *decoder) datastore(r raw) Datastore {
	s := Datastore{
		Endpoints: d.storeURLs(r["datastore-endpoint"]),
		CAFile:    d.file(r["datastore-cafile"]), CertFile: d.file(r["datastore-certfile"]), KeyFile: d.file(r["datastore-keyfile"]),
		Prefix: r["datastore-prefix"].one().text,
	}
	if (s.CertFile == "") != (s.KeyFile == "") {
		d.add("%s and %s belong together; give both or none", r["datastore-certfile"].label(), r["datastore-keyfile"].label())
	}
	if !strings.HasPrefix(s.Prefix, "/") || len(s.Prefix) < 2 {
		d.add("%s: %q is not a prefix such as /registry", r["datastore-prefix"].label(), s.Prefix)
	}
	if s.External() || len(r["datastore-endpoint"].items) > 0 { // an invalid endpoint is reported already
		return s
	}
	for _, v := range []*value{r["datastore-cafile"], r["datastore-certfile"], r["datastore-keyfile"], r["datastore-prefix"]} {
		if v.layer >= fromFile && v.one().text != v.setting.def {
			d.add("%s has a meaning only with --datastore-endpoint, which is not given", v.label())
		}
	}
	return Datastore{}
}

// storeURLs returns the endpoints of an etcd, each with its scheme.
func (d *decoder) storeURLs(v *value) []string {
	var out []string
	for _, it := range v.items {
		u, err := url.Parse(it.text)
		good := err == nil && u.User == nil && u.RawQuery == ""
		switch {
		case good && (u.Scheme == "https" || u.Scheme == "http") && u.Port() != "" && u.Hostname() != "" && strings.Trim(u.Path, "/") == "":
			out = append(out, strings.TrimSuffix(it.text, "/"))
		case good && u.Scheme == "unix" && filepath.IsAbs(u.Host+u.Path):
			out = append(out, it.text)
		case good || err == nil && u.User != nil:
			d.add("%s: %q is not the address of an etcd such as https://HOST:2379 or unix:///PATH", it.label(v.setting), u.Redacted())
		default:
			d.add("%s: %q is not the address of an etcd such as https://HOST:2379 or unix:///PATH", it.label(v.setting), it.text)
		}
	}
	return out
}

// ephemeral decodes the settings of an ephemeral server, which starts a cluster with its own etcd.
func (d *decoder) ephemeral(r raw, cfg Config) Ephemeral {
	e := Ephemeral{On: d.toggle(r["ephemeral"]), TTL: d.seconds(r["ttl"])}
	switch {
	case !e.On && e.TTL > 0:
		d.add("%s has a meaning only with --ephemeral, which is not given", r["ttl"].label())
	case e.On && cfg.Join.Server != "":
		d.add("%s and %s cannot be used together: an ephemeral cluster has one server, which begins it", r["ephemeral"].label(), r["server"].label())
	case e.On && len(r["datastore-endpoint"].items) > 0:
		d.add("%s and %s cannot be used together: that etcd would keep the data", r["ephemeral"].label(), r["datastore-endpoint"].label())
	}
	return e
}
