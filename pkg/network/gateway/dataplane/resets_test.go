package dataplane

import (
	"crypto/tls"
	"net"
	"testing"
	"time"
)

// TestResets: a connection rests when many more of its requests are taken back than answered, and only then.
func TestResets(t *testing.T) {
	now := time.Now()
	var until time.Time
	r := &resets{rest: func(to time.Time) { until = to }}
	count := func(number int, reset bool) {
		for range number {
			r.count(now, reset)
		}
	}
	count(10*freeResets, false) // which give no credit for later
	count(freeResets, true)
	for range 1000 {
		count(1, true)
		count(1, false)
	}
	if !until.IsZero() && until.After(now.Add(resetPause)) {
		t.Errorf("a connection with as many answers as resets rests for %s", until.Sub(now))
	}
	count(50, true)
	if rest := until.Sub(now); rest != 50*resetPause {
		t.Errorf("after 50 resets too many a connection rests for %s", rest)
	}
	now, until = now.Add(freeResets*resetPause+50*resetPause), time.Time{}
	if count(freeResets, true); !until.IsZero() {
		t.Error("a connection rests for what was long ago")
	}
}

// TestRestOf: a connection with TLS rests too.
func TestRestOf(t *testing.T) {
	conn := resting{until: new(time.Time)}
	secure := tls.Server(conn, &tls.Config{})
	rest := restOf(secure)
	if rest == nil {
		t.Fatal("a connection with TLS cannot rest")
	}
	now := time.Now()
	if rest(now); !conn.until.Equal(now) {
		t.Errorf("it rests until %s", conn.until)
	}
}

type resting struct {
	net.Conn
	until *time.Time
}

func (r resting) Rest(until time.Time) { *r.until = until }
