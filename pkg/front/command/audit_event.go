package command

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
)

// auditEvent is what is shown of an Event of audit.k8s.io/v1.
type auditEvent struct {
	Stage                    string    `json:"stage"`
	RequestReceivedTimestamp time.Time `json:"requestReceivedTimestamp"`
	Verb                     string    `json:"verb"`
	RequestURI               string    `json:"requestURI"`
	User                     auditUser `json:"user"`
	ImpersonatedUser         auditUser `json:"impersonatedUser"`
	SourceIPs                []string  `json:"sourceIPs"`
	UserAgent                string    `json:"userAgent"`
	ObjectRef                struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		APIGroup    string `json:"apiGroup"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
}

type auditUser struct {
	Username string `json:"username"`
}

// auditFilter selects requests. The zero value selects all.
type auditFilter struct {
	user, namespace  string
	verbs, resources []string
	since            time.Time
	raw              bool // lines are printed as they are
}

// show returns the line to print for a line of the log. ok is false if it is not selected.
func (f *auditFilter) show(text string) (shown string, ok bool) {
	var e auditEvent
	if json.Unmarshal([]byte(text), &e) != nil { // the last line before a power cut
		return "", false
	}
	if !f.wants(e) {
		return "", false
	}
	if f.raw {
		return printableJSON(text), true
	}
	return e.String(), true
}

func (f *auditFilter) wants(e auditEvent) bool {
	o := e.ObjectRef
	named := []string{o.Resource, o.Resource + "." + o.APIGroup, o.Resource + "/" + o.Subresource}
	ofUser := func(name string) bool {
		prefix, any := strings.CutSuffix(f.user, "*")
		return name == f.user || any && strings.HasPrefix(name, prefix)
	}
	return !e.RequestReceivedTimestamp.Before(f.since) &&
		(f.user == "" || ofUser(e.User.Username) || e.ImpersonatedUser.Username != "" && ofUser(e.ImpersonatedUser.Username)) &&
		(f.namespace == "" || o.Namespace == f.namespace) &&
		(len(f.verbs) == 0 || slices.Contains(f.verbs, e.Verb)) &&
		(len(f.resources) == 0 || slices.ContainsFunc(f.resources, func(r string) bool { return slices.Contains(named, r) }))
}

// String is the event as people read it, with the address of the connection; others in it are what the client says of itself. Users choose some of its words, so nothing in it controls a terminal.
func (e auditEvent) String() string {
	who := e.User.Username
	if e.ImpersonatedUser.Username != "" {
		who += " as " + e.ImpersonatedUser.Username
	}
	what := e.ObjectRef.Resource
	if e.ObjectRef.Subresource != "" {
		what += "/" + e.ObjectRef.Subresource
	}
	if e.ObjectRef.APIGroup != "" {
		what += "." + e.ObjectRef.APIGroup
	}
	of := e.ObjectRef.Name
	if e.ObjectRef.Namespace != "" {
		of = e.ObjectRef.Namespace + "/" + of
	}
	result := strconv.Itoa(e.ResponseStatus.Code)
	if e.Stage == "ResponseStarted" {
		result = "begins"
	}
	agent, _, _ := strings.Cut(e.UserAgent, " ")
	source := ""
	if n := len(e.SourceIPs); n > 0 {
		source = e.SourceIPs[n-1]
	}
	fields := []string{e.RequestReceivedTimestamp.UTC().Format("2006-01-02T15:04:05.000Z"), who, e.Verb, cmp.Or(what, e.RequestURI), of, result, source, agent}
	for i, field := range fields {
		fields[i] = printable(cmp.Or(field, "-"))
	}
	return strings.Join(fields, "  ")
}

// printable escapes what is no printable character.
func printable(s string) string {
	quoted := strconv.Quote(s)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}

// printableJSON escapes what is no printable character in a JSON text, which has such characters in strings only.
func printableJSON(text string) string {
	var b strings.Builder
	for _, r := range text {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&b, "\\u%04x", unit)
		}
	}
	return b.String()
}
