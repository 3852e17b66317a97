package main

import (
	"io"
	"maps"
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

// TestMergeList: a server replaces its own entries in the list of all servers' backups.
// TestHiddenKeys: a command does not ask a cloud for credentials if the server has some that commands cannot see.
func TestHiddenKeys(t *testing.T) {
	_, _, err := installation{}.bucket(t.Context(), config.Snapshots{S3: config.S3{Bucket: "copies", HasKeys: true}})
	if err == nil || !strings.Contains(err.Error(), "into the configuration file") {
		t.Error(err)
	}
}

func TestMergeList(t *testing.T) {
	s := saving{}
	s.config.Node.Name = "a"
	former := map[string]string{"a-1": `{"node":"a"}`, "a-2": `{"node":"a"}`, "b-1": `{"node":"b"}`, "damaged": `{`}
	if got := s.merge(former, map[string]string{"a-2": "new"}); !maps.Equal(got, map[string]string{"a-2": "new", "b-1": `{"node":"b"}`}) {
		t.Errorf("%v", got)
	}
}
