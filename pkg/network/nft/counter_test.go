package nft

import "testing"

func TestPackets(t *testing.T) {
	isolate(t)
	runNFT(t, "add table inet mine\nadd counter inet mine denied { packets 7 bytes 70; }\nadd counter inet mine other { packets 1 bytes 1; }")
	for table, want := range map[string]uint64{"inet mine": 7, "inet none": 0} {
		if got, err := Packets(table, "denied"); err != nil || got != want {
			t.Errorf("%s: %d, %v", table, got, err)
		}
	}
}
