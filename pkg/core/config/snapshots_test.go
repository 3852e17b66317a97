package config

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

// TestSnapshotFlags: a command's flags, also by k3s's names, win over the environment, that over the last start, and a Secret gives what nothing else does.
func TestSnapshotFlags(t *testing.T) {
	set := pflag.NewFlagSet("save", pflag.ContinueOnError)
	read := SnapshotFlags(set)
	if err := set.Parse([]string{"--s3", "--s3-bucket=mine", "--etcd-s3-timeout=7s", "--dir", "/mnt/backup"}); err != nil {
		t.Fatal(err)
	}
	running := Config{Snapshots: Snapshots{Name: "nightly", Retention: 9, S3: S3{Bucket: "other", Folder: "f"}}}
	running.Dirs.Data = "/data"
	environ := []string{"CORACLE_CONFIG=/dev/null", "AWS_ACCESS_KEY_ID=key", "CORACLE_ETCD_S3_SECRET_KEY=secret", "CORACLE_ETCD_S3_BUCKET=third"}
	got, err := read(environ, running)
	if err != nil || got.Name != "nightly" || got.Retention != 9 || got.Dir != "/mnt/backup" || !got.S3.On || got.S3.Bucket != "mine" || got.S3.Folder != "f" ||
		got.S3.AccessKey != "key" || got.S3.SecretKey != "secret" || got.S3.Timeout != 7*time.Second {
		t.Errorf("%+v, %v", got, err)
	}
	if secrets := got.Secrets(); !slices.Equal(secrets, []string{"CORACLE_ETCD_S3_ACCESS_KEY=key", "CORACLE_ETCD_S3_SECRET_KEY=secret"}) {
		t.Errorf("the secrets are %q", secrets)
	}
	got.S3.ConfigSecret, got.S3.Endpoint = "s3", "s3.amazonaws.com"
	got, err = got.WithSecret(map[string][]byte{"etcd-s3-endpoint": []byte("minio:9000"), "etcd-s3-bucket": []byte("not this"), "etcd-s3-endpoint-ca": []byte("PEM"),
		"etcd-s3-insecure": []byte("true"), "unknown": []byte("x")})
	if err != nil || got.S3.Endpoint != "minio:9000" || got.S3.Bucket != "mine" || string(got.S3.CA) != "PEM" || !got.S3.Insecure {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := got.WithSecret(map[string][]byte{"etcd-s3-skip-ssl-verify": []byte("perhaps")}); err == nil || !strings.Contains(err.Error(), "the Secret s3") {
		t.Errorf("%v", err)
	}
}

// TestBadSnapshots: what copies cannot be made with is refused at the start, with the reason.
func TestBadSnapshots(t *testing.T) {
	for args, want := range map[string]string{
		"--etcd-snapshot-schedule-cron=daily":       "no schedule as in crontab",
		"--etcd-snapshot-schedule-cron=0 0 30 2 *":  "no such day",
		"--etcd-snapshot-retention=-1":              "not a number from 0",
		"--etcd-snapshot-name=../x":                 "not a name",
		"--etcd-snapshot-recipient=me@example.org":  "no public key",
		"--etcd-s3-bucket-lookup-type=virtual":      "none of auto, dns, path",
		"--etcd-s3-endpoint-ca=/does/not/exist.crt": "no such file",
	} {
		if _, err := Resolve(Server, []string{"--config=/dev/null", args}, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", args, err)
		}
	}
}

// TestScheduled: servers make copies by themselves, but not those without data of their own that stays.
func TestScheduled(t *testing.T) {
	for _, tt := range []struct {
		role Role
		args []string
		want bool
	}{
		{Server, nil, true},
		{Server, []string{"--ephemeral"}, false},
		{Server, []string{"--etcd-disable-snapshots"}, false},
		{Server, []string{"--datastore-endpoint=https://10.0.0.9:2379"}, false},
		{Agent, []string{"--server=https://10.0.0.9:6443", "--token=word"}, false},
	} {
		cfg, err := Resolve(tt.role, append([]string{"--config=/dev/null"}, tt.args...), nil)
		if err != nil {
			t.Fatalf("%q: %v", tt.args, err)
		}
		if cfg.Scheduled() != tt.want {
			t.Errorf("%s with %q: %v", tt.role, tt.args, cfg.Scheduled())
		}
	}
}
