package host

import (
	"slices"
	"testing"
)

func TestDefaultRoutes(t *testing.T) {
	const zero = "00000000000000000000000000000000"
	const table = "fe800000000000000000000000000000 40 " + zero + " 00 " + zero + " 00000100 00000001 00000000 00000001     eth1\n" +
		zero + " 00 " + zero + " 00 fe800000000000000000000000000001 00000400 00000003 00000000 00450003     eth0\n" +
		zero + " 00 " + zero + " 00 " + zero + " ffffffff 00000001 00000000 00200200       lo\n"
	if got := defaultRoutes(table); !slices.Equal(got, []string{"eth0"}) {
		t.Errorf("%v", got)
	}
}
