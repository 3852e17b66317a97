package nodes

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"strings"
	"time"
)

// runRegistry serves images of this executable on loopback: one for each tag that is asked for. They have the layer in common.
func runRegistry() error {
	program, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return err
	}
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	if err := w.WriteHeader(&tar.Header{Name: "program", Mode: 0o755, Size: int64(len(program))}); err != nil {
		return err
	}
	if _, err := w.Write(program); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	blobs := map[string][]byte{}
	describe := func(kind string, data []byte) map[string]any {
		sum := fmt.Sprintf("sha256:%x", sha256.Sum256(data))
		blobs[sum] = data
		return map[string]any{"mediaType": "application/vnd.oci.image." + kind, "digest": sum, "size": len(data)}
	}
	layers := []any{describe("layer.v1.tar", layer.Bytes())}
	const manifests, kind = "/v2/app/manifests/", "manifest.v1+json"
	for _, tag := range []string{"used", "unused"} {
		config, err := json.Marshal(map[string]any{
			"architecture": runtime.GOARCH, "os": "linux", "config": map[string]any{"Entrypoint": []string{"/program", "wait"}, "Labels": map[string]string{"tag": tag}},
			"rootfs": map[string]any{"type": "layers", "diff_ids": []any{layers[0].(map[string]any)["digest"]}},
		})
		if err != nil {
			return err
		}
		manifest, err := json.Marshal(map[string]any{
			"schemaVersion": 2, "mediaType": "application/vnd.oci.image." + kind, "config": describe("config.v1+json", config), "layers": layers,
		})
		if err != nil {
			return err
		}
		describe(kind, manifest)
		blobs[tag] = manifest
	}
	return http.ListenAndServe("127.0.0.1:5000", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, ok := blobs[r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]]
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/octet-stream")
		if strings.HasPrefix(r.URL.Path, manifests) {
			w.Header().Set("Content-Type", "application/vnd.oci.image."+kind)
			w.Header().Set("Docker-Content-Digest", fmt.Sprintf("sha256:%x", sha256.Sum256(data)))
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
	}))
}
