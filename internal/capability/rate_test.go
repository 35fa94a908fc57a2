package capability

import (
	"strings"
	"testing"
	"time"

	"micronode/fault"
	"micronode/internal/testkit"
)

func TestParseRate(t *testing.T) {
	for text, want := range map[string]Rate{
		"10/1s":           {10, time.Second, 10},
		"10/1s burst 20":  {10, time.Second, 20},
		"1/24h0m0s":       {1, 24 * time.Hour, 1},
		"1000000/1ms":     {1_000_000, time.Millisecond, 1_000_000},
		"5/1m30s burst 1": {5, 90 * time.Second, 1},
	} {
		got, err := ParseRate(text)
		if got != want || err != nil {
			t.Errorf("ParseRate(%q) = %v, %v", text, got, err)
		}
		if back, err := ParseRate(got.String()); back != want || err != nil {
			t.Errorf("ParseRate(%q) = %v, %v", got.String(), back, err)
		}
	}
	for _, text := range []string{"", "10", "10/", "/1s", "10/s", "ten/1s", "10/1s burst", "10/1s burst many", "0/1s", "10/0s", "10/48h", "1000001/1s", "10/1s burst 0"} {
		_, err := ParseRate(text)
		testkit.WantKind(t, err, fault.Malformed, text)
		if !strings.Contains(fault.NextOf(err), "10/1s") {
			t.Errorf("%q: next step %q", text, fault.NextOf(err))
		}
	}
}
