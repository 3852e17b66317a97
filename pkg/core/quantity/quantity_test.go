package quantity

import "testing"

func TestCount(t *testing.T) {
	for n, want := range map[int]string{0: "0 hierarchies", 1: "1 hierarchy", 2: "2 hierarchies"} {
		if got := Count(n, "hierarchy", "hierarchies"); got != want {
			t.Errorf("%d is %s, want %s", n, got, want)
		}
	}
}

func TestBytes(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1536: "1.5 KiB", 9 << 20: "9.0 MiB", 3 << 40: "3.0 TiB"} {
		if got := Bytes(n); got != want {
			t.Errorf("%d is %s, want %s", n, got, want)
		}
	}
}
