package images

import "testing"

func TestNames(t *testing.T) {
	tests := []struct{ file, name, want string }{
		{"/x/busybox.tar", "1.36", "localhost/busybox:1.36"},
		{"/x/My App_v2.tar.zst", "latest", "localhost/my-app-v2:latest"},
		{"layout/", "docker.io/library/nginx:1", "docker.io/library/nginx:1"},
		{"x.tgz", "nginx:1", "docker.io/library/nginx:1"},
		{"x.oci", "ghcr.io/a/b", "ghcr.io/a/b:latest"},
		{"...tar", "v1", "localhost/image:v1"},
	}
	for _, tt := range tests {
		if got := (refName{stem: stem(tt.file)}).translate(tt.name); got != tt.want {
			t.Errorf("%s in %s is called %s, want %s", tt.name, tt.file, got, tt.want)
		}
	}
}
