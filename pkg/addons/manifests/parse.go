package manifests

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// object is one object of a file.
type object struct {
	*unstructured.Unstructured
	line int // in the file, from 1
}

// entry is the object in the inventory before it is applied.
func (o object) entry() entry {
	return entry{APIVersion: o.GetAPIVersion(), Kind: o.GetKind(), Namespace: o.GetNamespace(), Name: o.GetName()}
}

// parse returns the objects of a file of YAML or JSON documents, and the items of lists. The error has all mistakes with
// their lines.
func parse(data []byte) ([]object, error) {
	var out []object
	var errs []error
	for _, doc := range documents(data) {
		objects, err := doc.objects()
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out = append(out, objects...)
	}
	return out, errors.Join(errs...)
}

// document is one YAML document of a file.
type document struct {
	text []byte
	line int // of its first byte, from 1
}

// documents splits at lines that begin with ---, which YAML allows nowhere else.
func documents(data []byte) []document {
	var out []document
	current := document{line: 1}
	for n, line := range bytes.SplitAfter(data, []byte("\n")) {
		rest, ok := bytes.CutPrefix(line, []byte("---"))
		if ok && (len(rest) == 0 || bytes.IndexByte([]byte(" \t\r\n"), rest[0]) >= 0) {
			out = append(out, current)
			current = document{line: n + 1}
			line = append([]byte("   "), rest...) // what follows on the line belongs to the document
		}
		current.text = append(current.text, line...)
	}
	return append(out, current)
}

// start is the line of the first text in the document that is not a comment; ok is false if there is none.
func (d document) start() (line int, ok bool) {
	for i, text := range bytes.Split(d.text, []byte("\n")) {
		text = bytes.TrimSpace(text)
		if len(text) > 0 && text[0] != '#' && string(text) != "..." {
			return d.line + i, true
		}
	}
	return 0, false
}

func (d document) objects() ([]object, error) {
	line, ok := d.start()
	if !ok {
		return nil, nil
	}
	converted, err := yaml.YAMLToJSONStrict(d.text)
	if err != nil {
		return nil, d.syntaxError(err, line)
	}
	if bytes.Equal(bytes.TrimSpace(converted), []byte("null")) {
		return nil, nil
	}
	var u unstructured.Unstructured
	if err := u.UnmarshalJSON(converted); err != nil {
		if u.GetKind() == "" || u.GetAPIVersion() == "" {
			err = errors.New("not a Kubernetes object: apiVersion or kind is missing")
		}
		return nil, fmt.Errorf("line %d: %w", line, err)
	}
	if !u.IsList() {
		return check([]object{{&u, line}})
	}
	var out []object
	err = u.EachListItem(func(item runtime.Object) error {
		out = append(out, object{item.(*unstructured.Unstructured), line})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("line %d: reading the list: %w", line, err)
	}
	return check(out)
}

// check finds objects that server-side apply does not accept.
func check(objects []object) ([]object, error) {
	var errs []error
	for _, o := range objects {
		switch {
		case o.GetKind() == "" || o.GetAPIVersion() == "":
			errs = append(errs, fmt.Errorf("line %d: not a Kubernetes object: apiVersion or kind is missing", o.line))
		case o.GetName() == "" && o.GetGenerateName() != "":
			errs = append(errs, fmt.Errorf("line %d: %s: give it metadata.name: with generateName it would be another object at each start",
				o.line, o.GetKind()))
		case o.GetName() == "":
			errs = append(errs, fmt.Errorf("line %d: %s: metadata.name is missing", o.line, o.GetKind()))
		}
	}
	return objects, errors.Join(errs...)
}

var yamlLine = regexp.MustCompile(`(?:yaml: )?line (\d+): `)

// syntaxError turns the parser's line in the document into the line in the file.
func (d document) syntaxError(err error, start int) error {
	text := err.Error()
	found := yamlLine.FindStringSubmatchIndex(text)
	if found == nil {
		return fmt.Errorf("line %d: %w", start, err)
	}
	n, _ := strconv.Atoi(text[found[2]:found[3]])
	what := text[found[1]:]
	if strings.HasPrefix(what, "did not find expected") {
		n++ // the grammar's errors count from 0, the scanner's from 1
	}
	return fmt.Errorf("line %d: %s", d.line-1+n, what)
}
