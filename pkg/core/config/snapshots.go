package config

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// Snapshots is the configuration of copies of the cluster: etcd's data with all that a restore needs.
type Snapshots struct {
	// Off makes no copies by itself.
	Off       bool   `json:"off,omitempty"`
	Schedule  string `json:"schedule,omitempty"` // cron's five fields, or @hourly and the like; local time
	Retention int    `json:"retention,omitempty"`
	Dir       string `json:"dir,omitempty"`
	Name      string `json:"name,omitempty"` // what the names of copies begin with
	// Recipients are public keys that copies are encrypted for, of age or SSH; with none, it is the server token.
	Recipients []string `json:"recipients,omitempty"`
	S3         S3       `json:"s3,omitzero"`
}

// S3 is a bucket that copies are also put in.
type S3 struct {
	On           bool          `json:"on,omitempty"`
	Endpoint     string        `json:"endpoint,omitempty"`   // HOST or HOST:PORT
	EndpointCA   string        `json:"endpointCA,omitempty"` // path of a PEM file, "" for the system's authorities
	SkipVerify   bool          `json:"skipVerify,omitempty"`
	Insecure     bool          `json:"insecure,omitempty"` // HTTP
	Bucket       string        `json:"bucket,omitempty"`
	Lookup       string        `json:"lookup,omitempty"` // auto, dns or path
	Folder       string        `json:"folder,omitempty"`
	Region       string        `json:"region,omitempty"`
	Timeout      time.Duration `json:"timeout,omitempty"` // for one request
	Retention    int           `json:"retention,omitempty"`
	ConfigSecret string        `json:"configSecret,omitempty"` // a Secret in kube-system with these settings
	CA           []byte        `json:"-"`                      // certificates in PEM, as a Secret has them
	HasKeys      bool          `json:"hasKeys,omitempty"`      // whether there is an AccessKey
	// The credentials are not written for child processes and commands.
	AccessKey    string `json:"-"`
	SecretKey    string `json:"-"`
	SessionToken string `json:"-"`
	Proxy        string `json:"-"` // it may have a password
}

// SamePlace reports whether another bucket is the same one, with the same folder.
func (s S3) SamePlace(other S3) bool {
	return s.Endpoint == other.Endpoint && s.Bucket == other.Bucket && s.Folder == other.Folder
}

// DefaultSnapshotName is what the names of copies that are made by schedule begin with, as k3s's do.
const DefaultSnapshotName = "etcd-snapshot"

// Secrets returns the credentials of the bucket as variables of the environment. They are not in the configuration that child processes read.
func (s Snapshots) Secrets() (variables []string) {
	for _, row := range snapshotTable() {
		if !row.secret {
			continue
		}
		if text := row.field.text(Config{Snapshots: s}); text != "" {
			variables = append(variables, row.env()+"="+text)
		}
	}
	return variables
}

// Scheduled reports whether this server makes copies by itself.
func (c Config) Scheduled() bool {
	return c.Role == Server && !c.Snapshots.Off && !c.Ephemeral.On && !c.Datastore.External()
}

// NextAfter returns when the next copy is due after a time.
func (s Snapshots) NextAfter(t time.Time) (time.Time, error) {
	schedule, err := cron.ParseStandard(s.Schedule)
	if err != nil {
		return t, err
	}
	next := schedule.Next(t)
	if next.IsZero() {
		return t, errors.New("no such day comes in five years")
	}
	return next, nil
}

// snapshotTable lists the settings of copies.
func snapshotTable() []setting {
	s3 := func(field func(*S3) *string) binding {
		return aText(func(c *Config) *string { return field(&c.Snapshots.S3) })
	}
	flag := func(field func(*S3) *bool) binding {
		return aBool(func(c *Config) *bool { return field(&c.Snapshots.S3) })
	}
	return []setting{
		{name: "etcd-disable-snapshots", kind: toggle, def: "false", field: aBool(func(c *Config) *bool { return &c.Snapshots.Off }), group: groupCopies,
			help: "Make no copies of the cluster by schedule"},
		{name: "etcd-snapshot-schedule-cron", arg: "CRON", def: "0 */12 * * *", field: bind(func(c *Config) *string { return &c.Snapshots.Schedule }, (*decoder).cron, func(s string) string { return s }), group: groupCopies,
			help: "When this server makes a copy, as in crontab, or @hourly, @daily, @weekly"},
		{name: "etcd-snapshot-retention", arg: "NUMBER", def: "5", field: aCount(func(c *Config) *int { return &c.Snapshots.Retention }), group: groupCopies,
			help: "How many copies made by schedule are kept; 0 keeps all"},
		{name: "etcd-snapshot-dir", arg: "DIR", note: "server/snapshots in the data directory", field: decodedAs(func(c Config) string { return c.Snapshots.Dir }), group: groupCopies,
			help: "Where copies are kept; best another disk"},
		{name: "etcd-snapshot-name", arg: "NAME", def: DefaultSnapshotName, field: bind(func(c *Config) *string { return &c.Snapshots.Name }, (*decoder).copyName, func(s string) string { return s }), group: groupCopies,
			help: "What the names of these copies begin with"},
		{name: "etcd-snapshot-recipient", kind: lines, arg: "KEY", field: bind(func(c *Config) *[]string { return &c.Snapshots.Recipients }, (*decoder).recipients, func(s []string) string { return strings.Join(s, ",") }), group: groupCopies, note: "the server token",
			help: "Public key that copies are encrypted for, of age (age1...) or SSH; only its private key opens them"},
		{name: "etcd-s3", kind: toggle, def: "false", field: flag(func(s *S3) *bool { return &s.On }), group: groupCopies,
			help: "Put copies in an S3 bucket too"},
		{name: "etcd-s3-endpoint", arg: "HOST", def: "s3.amazonaws.com", field: s3(func(s *S3) *string { return &s.Endpoint }), group: groupCopies,
			help: "Where the bucket is, as HOST or HOST:PORT"},
		{name: "etcd-s3-endpoint-ca", arg: "FILE", field: aFile(func(c *Config) *string { return &c.Snapshots.S3.EndpointCA }), group: groupCopies,
			help: "CA certificate of that host, if the system does not trust it"},
		{name: "etcd-s3-skip-ssl-verify", kind: toggle, def: "false", field: flag(func(s *S3) *bool { return &s.SkipVerify }), group: groupCopies,
			help: "Do not check that host's certificate"},
		{name: "etcd-s3-insecure", kind: toggle, def: "false", field: flag(func(s *S3) *bool { return &s.Insecure }), group: groupCopies,
			help: "Use HTTP and not HTTPS"},
		{name: "etcd-s3-bucket", arg: "NAME", field: s3(func(s *S3) *string { return &s.Bucket }), group: groupCopies,
			help: "Name of the bucket, which must exist"},
		{name: "etcd-s3-bucket-lookup-type", arg: "WORD", words: []string{"auto", "dns", "path"}, def: "auto", field: bind(func(c *Config) *string { return &c.Snapshots.S3.Lookup }, (*decoder).one, func(s string) string { return s }), group: groupCopies,
			help: "Whether the bucket's name is in the host's name or in the path: auto, dns or path"},
		{name: "etcd-s3-folder", arg: "PATH", field: s3(func(s *S3) *string { return &s.Folder }), group: groupCopies,
			help: "Folder in the bucket; each cluster needs its own"},
		{name: "etcd-s3-region", arg: "REGION", def: "us-east-1", field: s3(func(s *S3) *string { return &s.Region }), group: groupCopies,
			help: "Region of the bucket"},
		{name: "etcd-s3-access-key", arg: "KEY", secret: true, alias: "AWS_ACCESS_KEY_ID", field: s3(func(s *S3) *string { return &s.AccessKey }), group: groupCopies,
			help: "Access key; better in the configuration file or a Secret than here"},
		{name: "etcd-s3-secret-key", arg: "KEY", secret: true, alias: "AWS_SECRET_ACCESS_KEY", field: s3(func(s *S3) *string { return &s.SecretKey }), group: groupCopies,
			help: "Secret key; better in the configuration file or a Secret than here"},
		{name: "etcd-s3-session-token", arg: "TOKEN", secret: true, alias: "AWS_SESSION_TOKEN", field: s3(func(s *S3) *string { return &s.SessionToken }), group: groupCopies,
			help: "Session token, if the credentials are temporary"},
		{name: "etcd-s3-config-secret", arg: "NAME", field: s3(func(s *S3) *string { return &s.ConfigSecret }), group: groupCopies,
			help: "Secret in kube-system with keys such as etcd-s3-endpoint, for what is not given here"},
		{name: "etcd-s3-proxy", arg: "URL", secret: true, field: s3(func(s *S3) *string { return &s.Proxy }), group: groupCopies,
			help: "Proxy to that host, in place of the environment's"},
		{name: "etcd-s3-retention", arg: "NUMBER", def: "5", field: aCount(func(c *Config) *int { return &c.Snapshots.S3.Retention }), group: groupCopies,
			help: "How many copies made by schedule are kept in the bucket; 0 keeps all"},
		{name: "etcd-s3-timeout", arg: "DURATION", def: "5m", field: aDuration(func(c *Config) *time.Duration { return &c.Snapshots.S3.Timeout }), group: groupCopies,
			help: "How long one request may take"},
	}
}

// mostKept bounds a retention.
const mostKept = 100_000

func aCount(field func(*Config) *int) binding {
	return bind(field, func(d *decoder, v *value) int {
		n, err := strconv.Atoi(v.one().text)
		if err != nil || n < 0 || n > mostKept {
			d.add("%s: %q is not a number from 0 to %d", v.label(), v.one().text, mostKept)
		}
		return n
	}, strconv.Itoa)
}

func (d *decoder) cron(v *value) string {
	text := v.one().text
	if _, err := (Snapshots{Schedule: text}).NextAfter(time.Now()); err != nil {
		d.add(`%s: %q is no schedule as in crontab, such as "0 */12 * * *": %w`, v.label(), text, err)
	}
	return text
}

// copyName returns a name that can be part of a file's name, and of an object's.
func (d *decoder) copyName(v *value) string {
	text := v.one().text
	bad := func(c rune) bool { return c != '-' && c != '.' && c != '_' && !isAlphanumeric(c) }
	if text == "" || text[0] == '.' || len(text) > 100 || strings.ContainsFunc(text, bad) {
		d.add("%s: %q is not a name of at most 100 letters, digits, dots, - and _", v.label(), text)
	}
	return text
}

func isAlphanumeric(c rune) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

// recipients returns public keys by their kinds; who encrypts parses them.
func (d *decoder) recipients(v *value) []string {
	for _, it := range v.items {
		if !strings.HasPrefix(it.text, "age1") && !strings.HasPrefix(it.text, "ssh-ed25519 ") && !strings.HasPrefix(it.text, "ssh-rsa ") {
			d.add("%s: %.40q is no public key of age (age1...) or SSH (ssh-ed25519 ..., ssh-rsa ...)", it.label(v.setting), it.text)
		}
	}
	return v.texts()
}
