package main

import (
	"bufio"
	"context"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"micronode/client"
	"micronode/fault"
)

// look is what a node said of itself at one moment.
type look struct {
	at        time.Time
	status    client.Status
	readiness client.Readiness
	figures   figures
	blind     string // why there are no figures; empty if there are
}

// takeLook asks the node. A caller who may not read the figures sees the rest.
func takeLook(ctx context.Context, node *client.Client) (*look, error) {
	status, err := node.Status(ctx)
	if err != nil {
		return nil, err
	}
	readiness, err := node.Ready(ctx)
	if err != nil {
		return nil, err
	}
	now := &look{status: status, readiness: readiness, figures: newFigures()}
	err = now.readFigures(ctx, node)
	now.at = time.Now()
	switch fault.KindOf(err) {
	case fault.Unauthorized, fault.Forbidden, fault.NotFound:
		now.blind = what(err)
		return now, nil
	}
	return now, err
}

// mostFigures is how many bytes of figures are read. A node has some hundred
// KiB of them; whoever sends more is none.
const mostFigures = 8 << 20

func (l *look) readFigures(ctx context.Context, node *client.Client) error {
	body, err := node.Open(ctx, "/metrics")
	if err != nil {
		return err
	}
	defer body.Close()
	return l.figures.read(io.LimitReader(body, mostFigures))
}

// figures are those of a node's metrics that a view shows, summed up over the
// labels that it does not.
type figures struct {
	answers map[answerKey]float64          // requests that were answered
	latency map[string]map[float64]float64 // by route: how many took no longer than so many seconds
	dropped map[queueKey]float64           // by queue
	refused map[queueKey]float64           // by what was full: a queue or a route; or by the reason
	alone   map[string]float64             // without labels of interest
}

type answerKey struct {
	route string
	class byte // the first digit of the status
}

type queueKey struct{ service, name string }

func newFigures() figures {
	return figures{answers: map[answerKey]float64{}, latency: map[string]map[float64]float64{}, dropped: map[queueKey]float64{}, refused: map[queueKey]float64{}, alone: map[string]float64{}}
}

// read takes in figures in the text form of Prometheus. Lines that it does not
// know are none of its business.
func (f figures) read(from io.Reader) error {
	lines := bufio.NewScanner(from)
	lines.Buffer(make([]byte, 0, 4<<10), 64<<10)
	for lines.Scan() {
		if name, labels, value, ok := parseSample(lines.Text()); ok {
			f.add(name, labels, value)
		}
	}
	if err := lines.Err(); err != nil {
		return fault.Wrap("top", err)
	}
	return nil
}

func (f figures) add(name string, labels map[string]string, value float64) {
	switch name {
	case "http_requests_total":
		if status := labels["status"]; status != "" {
			f.answers[answerKey{labels["route"], status[0]}] += value
		}
	case "request_latency_seconds_bucket":
		bound, err := strconv.ParseFloat(labels["le"], 64)
		if err != nil {
			return
		}
		route := labels["route"]
		if f.latency[route] == nil {
			f.latency[route] = map[float64]float64{}
		}
		f.latency[route][bound] += value
	case "queue_dropped_total":
		f.dropped[queueKey{labels["service"], labels["queue"]}] += value
	case "busy_rejections_total":
		f.refused[queueKey{labels["service"], labels["endpoint"]}] += value
	case "rejected_total":
		f.refused[queueKey{labels["service"], labels["reason"]}] += value
	case "sessions_active", "session_open_total", "session_close_total", "mailbox_depth", "mailbox_bytes", "mailbox_dead",
		startFigure, "process_resident_memory_bytes", "process_open_fds", "process_max_fds", "go_goroutines":
		f.alone[name] += value
	}
}

// startFigure is when the process began, in seconds since 1970.
const startFigure = "process_start_time_seconds"

// parseSample reads one line: name{label="value",…} value.
func parseSample(line string) (name string, labels map[string]string, value float64, ok bool) {
	end := strings.IndexAny(line, "{ ")
	if end <= 0 || line[0] == '#' {
		return "", nil, 0, false
	}
	name, rest := line[:end], line[end:]
	labels = map[string]string{}
	if rest[0] == '{' {
		if rest, ok = parseLabels(rest[1:], labels); !ok {
			return "", nil, 0, false
		}
	}
	number, _, _ := strings.Cut(strings.TrimSpace(rest), " ") // a time may follow
	value, err := strconv.ParseFloat(number, 64)
	return name, labels, value, err == nil && !math.IsNaN(value)
}

// parseLabels reads labels up to the brace that ends them, and returns what is
// behind it.
func parseLabels(text string, into map[string]string) (rest string, ok bool) {
	for {
		if rest, ended := strings.CutPrefix(text, "}"); ended {
			return rest, true
		}
		name, quoted, found := strings.Cut(text, `="`)
		if !found {
			return "", false
		}
		var value strings.Builder
		at := 0
		for ; at < len(quoted) && quoted[at] != '"'; at++ {
			letter := quoted[at]
			if letter == '\\' && at+1 < len(quoted) {
				if at++; quoted[at] == 'n' {
					letter = '\n'
				} else {
					letter = quoted[at]
				}
			}
			value.WriteByte(letter)
		}
		if at == len(quoted) {
			return "", false
		}
		into[name] = value.String()
		text = strings.TrimPrefix(quoted[at+1:], ",")
	}
}
