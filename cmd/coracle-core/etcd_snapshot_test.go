package main

import (
	"encoding/json"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/machine/backup"
)

// TestNewest: a backup that was tried comes before a newer one that was not.
func TestNewest(t *testing.T) {
	tried, failed := backup.Copy{Summary: backup.Summary{Name: "tried", Tried: time.Now()}}, backup.Copy{Summary: backup.Summary{Name: "failed"}}
	var said strings.Builder
	if got := newest(&said, []backup.Copy{tried, failed}, backup.Copy.About); got.Name != "tried" || said.Len() > 0 {
		t.Errorf("%s, with %q", got.Name, said.String())
	}
	if got := newest(&said, []backup.Copy{failed, failed}, backup.Copy.About); got.Name != "failed" || !strings.Contains(said.String(), "known to have been tried") {
		t.Errorf("%s, with %q", got.Name, said.String())
	}
	if got := newest(io.Discard, []backup.Copy{tried, {Summary: backup.Summary{Name: "newer", Tried: time.Now()}}}, backup.Copy.About); got.Name != "newer" {
		t.Error(got.Name)
	}
}

// TestHiddenKeys: a command does not ask a cloud for credentials if the server has some that commands cannot see.
func TestHiddenKeys(t *testing.T) {
	_, _, err := installation{}.bucket(t.Context(), config.Snapshots{S3: config.S3{Bucket: "copies", HasKeys: true}})
	if err == nil || !strings.Contains(err.Error(), "into the configuration file") {
		t.Error(err)
	}
}

// TestMergeList: a server replaces its own entries in the list of all servers' backups, and those in the bucket only if it knows what is there.
func TestMergeList(t *testing.T) {
	s := saving{}
	s.config.Node.Name = "a"
	const a, b = `{"node":"a"}`, `{"node":"b"}`
	former := map[string]string{"local-a-1": a, "local-a-2": a, "local-b-1": b, "s3-a-1": a, "s3-a-2": a, "s3-b-1": b, "local-damaged": `{`}
	own := map[string]string{"local-a-2": "new", "s3-a-2": "new"}
	want := map[string]string{"local-a-2": "new", "s3-a-2": "new", "local-b-1": b, "s3-b-1": b}
	if got := s.merge(former, own, nil); !maps.Equal(got, want) {
		t.Errorf("the bucket was read: %v", got)
	}
	want["s3-a-1"] = a
	if got := s.merge(former, own, []string{keyBucket}); !maps.Equal(got, want) {
		t.Errorf("the bucket was not read: %v", got)
	}
	want["local-a-1"] = a
	if got := s.merge(former, own, []string{keyLocal, keyBucket}); !maps.Equal(got, want) {
		t.Errorf("another directory: %v", got)
	}
}

// TestMapEntry: an entry has k3s's names, and a key that a ConfigMap can have.
func TestMapEntry(t *testing.T) {
	entries := map[string]string{}
	c := backup.Copy{Summary: backup.Summary{Name: "my copy", Node: "a", Created: time.Unix(7, 0).UTC(), Error: "it is damaged"}}
	if err := (mapEntry{snapshotEntry: snapshotEntry{Copy: c, Location: "s3://b/my copy"}, NodeName: "s3"}).addTo(entries, keyBucket); err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal([]byte(entries["s3-my_copy"]), &got); err != nil {
		t.Fatalf("%v: %v", entries, err)
	}
	for name, want := range map[string]string{"name": "my copy", "node": "a", "nodeName": "s3", "location": "s3://b/my copy", "createdAt": "1970-01-01T00:00:07Z", "status": "failed"} {
		if got[name] != want {
			t.Errorf("%s is %v, want %s", name, got[name], want)
		}
	}
}

// TestPlace: a backup does not replace one that was made in the same second.
func TestPlace(t *testing.T) {
	s := saving{settings: config.Snapshots{Dir: t.TempDir()}, series: backup.Series{Name: "nightly", Node: "a"}}
	for _, want := range []string{"nightly-a-19700101T000007Z.tar.zst", "nightly-a-19700101T000008Z.tar.zst"} {
		file, err := s.place(time.Unix(7, 0), backup.Keys{})
		if err != nil || filepath.Base(file) != want {
			t.Fatalf("%s, %v, want %s", file, err, want)
		}
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
