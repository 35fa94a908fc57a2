package main

import "testing"

func TestWhichVersionIsNewer(t *testing.T) {
	for _, c := range []struct{ offered, here, want string }{
		{"0.2.0", "0.1.0", orderNewer},
		{"0.10.0", "0.9.0", orderNewer},
		{"0.2.0", "v0.2.0", orderSame},
		{"0.1.0", "0.2.0", orderOlder},
		{"0.2.0", "0.2.0-rc1", orderNewer},
		{"0.2.0-rc10", "0.2.0-rc9", orderNewer},
		{"0.2.0-beta2", "0.2.0-rc1", orderOlder},
		{"0.2.0", "(devel)", orderUnknown},
		{"0.2.0", "c6c2571", orderUnknown},
		{"0.2.0", "unknown", orderUnknown},
	} {
		if got := compareVersions(c.offered, c.here); got != c.want {
			t.Errorf("%s is %s than %s, want %s", c.offered, got, c.here, c.want)
		}
	}
}
