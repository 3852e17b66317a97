package apiserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"go.yaml.in/yaml/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
)

// withoutAliases refuses objects in YAML with aliases. Each is replaced by what it stands for before anything else is looked at, so that whoever may send any
// request could have the server take all memory, or decode for hours, with 100 kB (sigs.k8s.io/yaml v1.6.0 and yaml.v2, which counts nodes, not bytes).
// kubectl and client-go send JSON, also as apply-patch+yaml. most is the length of the largest body that is decoded.
func withoutAliases(next http.Handler, most int64) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, ok := apirequest.RequestInfoFrom(r.Context())
		if !ok || !info.IsResourceRequest || info.Subresource == "proxy" || !strings.Contains(strings.ToLower(r.Header.Get("Content-Type")), "yaml") {
			next.ServeHTTP(w, r)
			return
		}
		body, err := io.ReadAll(io.LimitReader(r.Body, most+1))
		if err == nil && int64(len(body)) <= most {
			err = checkAliases(body)
		}
		if err != nil {
			responsewriters.ErrorNegotiated(apierrors.NewBadRequest(err.Error()), legacyscheme.Codecs, schema.GroupVersion{Version: "v1"}, w, r)
			return
		}
		r.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(body), r.Body), r.Body}
		next.ServeHTTP(w, r)
	})
}

// checkAliases returns an error if a document has an alias, or may have one that the parser does not find.
func checkAliases(document []byte) error {
	if !bytes.ContainsRune(document, '&') || !bytes.ContainsRune(document, '*') || json.Valid(document) {
		return nil
	}
	var root yaml.Node
	if err := yaml.Unmarshal(document, &root); err != nil {
		return fmt.Errorf("reading YAML: %w", err)
	}
	if hasAlias(&root) {
		return errors.New("YAML with aliases is not accepted; send JSON, as kubectl does, or write out what the aliases stand for")
	}
	return nil
}

func hasAlias(n *yaml.Node) bool {
	if n.Kind == yaml.AliasNode {
		return true
	}
	for _, child := range n.Content {
		if hasAlias(child) {
			return true
		}
	}
	return false
}
