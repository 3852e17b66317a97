package dashboard

import (
	"bytes"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
)

// policy is the page's: nothing of another host, nothing inline, no frame around it. Style elements need a number that only the
// page knows, for the terminal and the editor make some.
const policy = "default-src 'none'; script-src 'self'; style-src 'self' 'nonce-NONCE'; img-src 'self' data:; font-src 'self'; connect-src 'self'; " +
	"manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// page serves the files of the page. They are no secret.
func (s *Server) page(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(path.Clean(r.URL.Path), "/")
	if name == "" {
		name = "index.html"
	}
	data, err := fs.ReadFile(s.Page, name)
	if err != nil {
		refuse(w, http.StatusNotFound, "There is no such file.")
		return
	}
	header := w.Header()
	header.Set("Content-Type", mimeType(name))
	if strings.HasPrefix(name, "assets/") {
		header.Set("Cache-Control", "private, max-age=31536000, immutable") // their names have their sums
	}
	if name == "index.html" {
		nonce := NewSecret()[:22]
		data = bytes.ReplaceAll(data, []byte("NONCE"), []byte(nonce))
		header.Set("Content-Security-Policy", strings.Replace(policy, "NONCE", nonce, 1))
	}
	_, _ = w.Write(data)
}

// mimeType does not ask the machine, whose tables differ.
func mimeType(name string) string {
	if kind, ok := map[string]string{
		".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml",
	}[path.Ext(name)]; ok {
		return kind
	}
	return mime.FormatMediaType("application/octet-stream", nil)
}
