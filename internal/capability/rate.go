package capability

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"micronode/fault"
)

// The bounds of a rate. The longest period bounds for how long a meter must be
// kept.
const (
	maxCount = 1_000_000
	minPer   = time.Millisecond
	maxPer   = 24 * time.Hour
)

// Rate allows Count uses in every Per on average, and up to Burst at once. The
// zero Rate is no limit.
type Rate struct {
	Count int
	Per   time.Duration
	Burst int
}

// ParseRate reads "10/1s" or "10/1s burst 20". Without a burst it is the
// count.
func ParseRate(text string) (Rate, error) {
	steady, burst, bursty := strings.Cut(text, " burst ")
	count, per, found := strings.Cut(steady, "/")
	var r Rate
	var errs [3]error
	r.Count, errs[0] = strconv.Atoi(count)
	r.Per, errs[1] = time.ParseDuration(per)
	r.Burst = r.Count
	if bursty {
		r.Burst, errs[2] = strconv.Atoi(burst)
	}
	if !found || errs != [3]error{} {
		return Rate{}, malformedRate("a rate is written as 10/1s or 10/1s burst 20")
	}
	return r, r.check()
}

// String is the form that ParseRate reads.
func (r Rate) String() string { return fmt.Sprintf("%d/%s burst %d", r.Count, r.Per, r.Burst) }

func (r Rate) check() error {
	switch {
	case r.Count < 1 || r.Count > maxCount || r.Burst < 1 || r.Burst > maxCount:
		return malformedRate("count and burst of a rate must be between 1 and %d, not %d and %d", maxCount, r.Count, r.Burst)
	case r.Per < minPer || r.Per > maxPer:
		return malformedRate("the period of a rate must be between %s and %s, not %s", minPer, maxPer, r.Per)
	}
	return nil
}

func malformedRate(format string, args ...any) error {
	return fault.New("capability.rate", fault.Malformed, format, args...).
		Advise("Write the rate as COUNT/PERIOD, for example 10/1s, with an optional burst: 10/1s burst 20.")
}

// limit is the rate as a rate.Limit.
func (r Rate) limit() rate.Limit { return rate.Limit(float64(r.Count) / r.Per.Seconds()) }
