package node

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"micronode/client"
	"micronode/internal/bandwidth"
	"micronode/internal/config"
	"micronode/internal/ingress"
)

// BandwidthSection is [node.bandwidth].
type BandwidthSection struct {
	Up       config.Rate `toml:"up" doc:"The limit of what this node sends: answers, objects for peers. What stays on this machine does not count."`
	Down     config.Rate `toml:"down" doc:"The limit of what this node receives: uploads, objects from peers and their gateways, bodies from origins. What stays on this machine does not count."`
	Schedule []string    `toml:"schedule" doc:"Other limits at times of the day, on the local clock: [\"22:00-06:00 up=off\", \"mon-fri 08:00-18:00 up=1MiB down=4MiB\"]. The first line that fits and names a direction sets it."`
}

// Validate checks the section by itself.
func (b BandwidthSection) Validate() error {
	var wrong []error
	for key, rate := range map[string]config.Rate{"up": b.Up, "down": b.Down} {
		if rate != 0 && rate < ingress.MinBandwidth {
			wrong = append(wrong, config.Invalid(key, `Use "32KiB" or more, or "off".`, "%s a second is too slow for any transfer", rate))
		}
	}
	for _, line := range b.Schedule {
		if _, err := parseWindow(line); err != nil {
			wrong = append(wrong, config.Invalid("schedule", windowForm, "%q: %s", line, err))
		}
	}
	return errors.Join(wrong...)
}

// windowForm says how a line of the schedule is written.
const windowForm = `Write times and limits, with days before them if it is not for every day: "22:00-06:00 up=off", "sat,sun 08:00-12:00 up=1MiB down=off".`

// settings are the limits as the meter takes them. The section was validated.
func (b BandwidthSection) settings() bandwidth.Settings {
	s := bandwidth.Settings{Up: int64(b.Up), Down: int64(b.Down)}
	for _, line := range b.Schedule {
		if window, err := parseWindow(line); err == nil {
			s.Schedule = append(s.Schedule, window)
		}
	}
	return s
}

// parseWindow reads a line of the schedule: [DAYS] HH:MM-HH:MM [up=RATE]
// [down=RATE].
func parseWindow(line string) (bandwidth.Window, error) {
	var window bandwidth.Window
	words := strings.Fields(strings.ToLower(line))
	if len(words) > 0 && !strings.Contains(words[0], ":") {
		if err := parseDays(words[0], &window.Days); err != nil {
			return window, err
		}
		words = words[1:]
	}
	if len(words) < 2 {
		return window, errors.New("it needs times and a limit")
	}
	from, to, dashed := strings.Cut(words[0], "-")
	var fromOK, toOK bool
	window.From, fromOK = parseClock(from)
	window.To, toOK = parseClock(to)
	if !dashed || !fromOK || !toOK {
		return window, fmt.Errorf("%q is not two times of the day, like 22:00-06:00", words[0])
	}
	for _, word := range words[1:] {
		name, text, _ := strings.Cut(word, "=")
		limit := map[string]**int64{"up": &window.Up, "down": &window.Down}[name]
		rate, ok := config.ParseRate(restoreUnits(text))
		switch {
		case limit == nil || !ok:
			return window, fmt.Errorf("%q is not a limit, like up=2MiB or down=off", word)
		case *limit != nil:
			return window, fmt.Errorf("%s has two limits", name)
		case rate != 0 && rate < ingress.MinBandwidth:
			return window, fmt.Errorf("%s a second is too slow for any transfer; 32KiB is the least", rate)
		}
		n := int64(rate)
		*limit = &n
	}
	return window, nil
}

// restoreUnits writes the units of a size as they are spelled.
func restoreUnits(text string) string {
	for _, unit := range []string{"KiB", "MiB", "GiB", "TiB", "B"} {
		if lower := strings.ToLower(unit); strings.HasSuffix(strings.TrimSuffix(text, "/s"), lower) {
			return strings.Replace(text, lower, unit, 1)
		}
	}
	return text
}

// dayNames are the days, by time.Weekday.
var dayNames = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

// parseDays reads days and spans of days: mon-fri, sat,sun.
func parseDays(text string, days *[7]bool) error {
	for part := range strings.SplitSeq(text, ",") {
		first, last, isSpan := strings.Cut(part, "-")
		if !isSpan {
			last = first
		}
		from, to := slices.Index(dayNames, first), slices.Index(dayNames, last)
		if from < 0 || to < 0 {
			return fmt.Errorf("%q is neither a time nor a day; days are mon, tue, wed, thu, fri, sat and sun", part)
		}
		for day := from; ; day = (day + 1) % 7 {
			days[day] = true
			if day == to {
				break
			}
		}
	}
	return nil
}

// parseClock reads a time of the day; 24:00 is the end of it.
func parseClock(text string) (time.Duration, bool) {
	if text == "24:00" {
		return 0, true
	}
	at, err := time.Parse("15:04", text)
	return time.Duration(at.Hour())*time.Hour + time.Duration(at.Minute())*time.Minute, err == nil
}

// makeBandwidth makes the meter, and its metrics.
func (n *Node) makeBandwidth(c Config) error {
	n.bandwidth = bandwidth.New(n.inventory, c.Node.Bandwidth.settings())
	for direction, limiter := range map[string]*bandwidth.Limiter{"up": n.bandwidth.Up(), "down": n.bandwidth.Down()} {
		for _, traffic := range bandwidth.AllTraffic() {
			labels := prometheus.Labels{"direction": direction, "traffic": traffic.String()}
			n.metrics.For(service).Register(
				prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "bandwidth_bytes_total", Help: "Bytes that were sent or received beyond this machine.", ConstLabels: labels},
					func() float64 { return float64(limiter.Bytes(traffic)) }),
				prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "bandwidth_wait_seconds_total", Help: "How long transfers waited for node.bandwidth, all together.", ConstLabels: labels},
					func() float64 { return limiter.Waited(traffic).Seconds() }),
			)
		}
		n.metrics.For(service).Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "bandwidth_limit_bytes", Help: "The limit in force, in bytes a second; zero for none.", ConstLabels: prometheus.Labels{"direction": direction}},
			func() float64 { return float64(limiter.Limit()) }))
	}
	return nil
}

// clientBandwidth is what status shows of the limits; nil if none is set.
func (n *Node) clientBandwidth() *client.Bandwidth {
	set := n.config.Current().Value.Node.Bandwidth
	if set.Up == 0 && set.Down == 0 && len(set.Schedule) == 0 {
		return nil
	}
	now := n.bandwidth.Now()
	shown := &client.Bandwidth{Up: now.Up, Down: now.Down, Scheduled: now.Scheduled}
	if !now.Until.IsZero() {
		shown.Until = now.Until.Format(time.RFC3339)
	}
	return shown
}
