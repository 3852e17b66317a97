package cnievents

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"testing"
	"time"
)

// exchange is a connection whose client sends in and gets out.
type exchange struct {
	net.Conn
	in  *bytes.Reader
	out bytes.Buffer
}

func (e *exchange) Read(p []byte) (int, error)      { return e.in.Read(p) }
func (e *exchange) Write(p []byte) (int, error)     { return e.out.Write(p) }
func (e *exchange) Close() error                    { return nil }
func (e *exchange) SetReadDeadline(time.Time) error { return nil }

// FuzzServe: whatever a client sends, it gets one answer if it sent a line, and the event that is handled is one that Send can send.
func FuzzServe(f *testing.F) {
	for _, seed := range []string{
		`{"verb":"add","sandbox":"s1","namespace":"web","name":"front","uid":"u1","ips":["10.42.0.2","fd00::2"]}` + "\n",
		`{"verb":"keep","sandboxes":["a","b"]}` + "\n", `{"verb":"del"` + "\n", `{"ips":["x"]}` + "\n", `{"ips":[null]}` + "\n", "null\n", "[]\n", "\n", "{}", "",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		e := &exchange{in: bytes.NewReader(sent)}
		handled := 0
		serve(t.Context(), e, func(_ context.Context, event Event) error {
			handled++
			line, err := json.Marshal(event)
			if err != nil {
				t.Errorf("%+v: %v", event, err)
			}
			var back Event
			if err := json.Unmarshal(line, &back); err != nil {
				t.Errorf("%s: %v", line, err)
			}
			return errors.New("no")
		})
		answers := bytes.Count(e.out.Bytes(), []byte("\n"))
		whole := bytes.IndexByte(sent, '\n') >= 0 && bytes.IndexByte(sent, '\n') < maxLine
		if handled > 1 || (answers == 1) != whole || answers > 1 {
			t.Errorf("%d events, %d answers", handled, answers)
		}
		var r reply
		if answers == 1 && (json.Unmarshal(e.out.Bytes(), &r) != nil || r.Error == "") {
			t.Errorf("the answer is %s", e.out.Bytes())
		}
	})
}
