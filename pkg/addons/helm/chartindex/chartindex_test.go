package chartindex

import "testing"

func TestPick(t *testing.T) {
	versions := []string{"1.0.0", "1.10.0", "1.9.0", "2.0.0-rc.1", "broken", "v0.5.0"}
	for want, version := range map[string]string{
		"": "1.10.0", "1.0.0": "1.0.0", "^1": "1.10.0", "1.9.x": "1.9.0", ">=2.0.0-0": "2.0.0-rc.1", "2.0.0-rc.1": "2.0.0-rc.1",
		"0.5.0": "v0.5.0", "<1 || >=1.10": "1.10.0",
	} {
		if i, err := Pick(versions, want); err != nil || versions[i] != version {
			t.Errorf("%q: got %d, %v; want %s", want, i, err, version)
		}
	}
}
