package config

import (
	"errors"
	"strconv"
	"strings"
	"time"
)

// ParseDuration reads a duration as time.ParseDuration does, and days and weeks
// besides: 7d, 2w, 1d12h. A day has 24 hours here.
func ParseDuration(text string) (time.Duration, error) {
	rest, sum := text, time.Duration(0)
	for _, unit := range []struct {
		letter string
		length time.Duration
	}{{"w", 7 * 24 * time.Hour}, {"d", 24 * time.Hour}} {
		number, after, found := strings.Cut(rest, unit.letter)
		if !found {
			continue
		}
		n, err := strconv.ParseUint(number, 10, 31)
		if err != nil || n > uint64((1<<63-1-sum)/unit.length) {
			return 0, errors.New("config: " + strconv.Quote(text) + " is no duration")
		}
		sum, rest = sum+time.Duration(n)*unit.length, after
	}
	if rest == "" && sum > 0 {
		return sum, nil
	}
	d, err := time.ParseDuration(rest)
	if err != nil || sum > 0 && (d < 0 || sum > 1<<63-1-d) {
		return 0, errors.New("config: " + strconv.Quote(text) + " is no duration")
	}
	return sum + d, nil
}
