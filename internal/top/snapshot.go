package top

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
	"micronode/internal/terminal"
)

// snapshot is the state of a node at one moment.
type snapshot struct {
	at         time.Time
	status     client.Status
	readiness  client.Readiness
	metrics    metricSums
	metricsErr string // why there are no metrics; empty if there are
}

// takeSnapshot reads the state of the node. A caller without the right to read
// metrics gets the rest.
func takeSnapshot(ctx context.Context, node *client.Client) (*snapshot, error) {
	status, err := node.Status(ctx)
	if err != nil {
		return nil, err
	}
	readiness, err := node.Ready(ctx)
	if err != nil {
		return nil, err
	}
	now := &snapshot{status: status, readiness: readiness, metrics: newMetricSums()}
	err = now.readMetrics(ctx, node)
	now.at = time.Now()
	switch fault.KindOf(err) {
	case fault.Unauthorized, fault.Forbidden, fault.NotFound:
		now.metricsErr = terminal.ErrorText(err)
		return now, nil
	}
	return now, err
}

// maxMetricsBytes bounds the metrics that are read. A node has some hundred
// KiB of them; a larger answer does not come from a node.
const maxMetricsBytes = 8 << 20

func (n *snapshot) readMetrics(ctx context.Context, node *client.Client) error {
	body, err := node.Open(ctx, "/metrics")
	if err != nil {
		return err
	}
	defer body.Close()
	return n.metrics.parse(io.LimitReader(body, maxMetricsBytes))
}

// metricSums holds those metrics of a node that a view shows, summed over the
// labels that it does not show.
type metricSums struct {
	requests map[requestKey]float64         // requests that were answered
	latency  map[string]map[float64]float64 // by route: how many took no longer than so many seconds
	dropped  map[queueKey]float64           // by queue
	refused  map[queueKey]float64           // by what was full (a queue or a route), or by the reason
	scalars  map[string]float64             // without labels of interest
}

type requestKey struct {
	route string
	class byte // the first digit of the status
}

type queueKey struct{ service, name string }

func newMetricSums() metricSums {
	return metricSums{requests: map[requestKey]float64{}, latency: map[string]map[float64]float64{}, dropped: map[queueKey]float64{}, refused: map[queueKey]float64{}, scalars: map[string]float64{}}
}

// parse reads metrics in the text format of Prometheus. It ignores unknown
// lines.
func (m metricSums) parse(from io.Reader) error {
	lines := bufio.NewScanner(from)
	lines.Buffer(make([]byte, 0, 4<<10), 64<<10)
	for lines.Scan() {
		if name, labels, value, ok := parseSample(lines.Text()); ok {
			m.add(name, labels, value)
		}
	}
	if err := lines.Err(); err != nil {
		return fault.Wrap("top", err)
	}
	return nil
}

func (m metricSums) add(name string, labels map[string]string, value float64) {
	switch name {
	case "http_requests_total":
		if status := labels["status"]; status != "" {
			m.requests[requestKey{labels["route"], status[0]}] += value
		}
	case "request_latency_seconds_bucket":
		bound, err := strconv.ParseFloat(labels["le"], 64)
		if err != nil {
			return
		}
		route := labels["route"]
		if m.latency[route] == nil {
			m.latency[route] = map[float64]float64{}
		}
		m.latency[route][bound] += value
	case "queue_dropped_total":
		m.dropped[queueKey{labels["service"], labels["queue"]}] += value
	case "busy_rejections_total":
		m.refused[queueKey{labels["service"], labels["endpoint"]}] += value
	case "rejected_total":
		m.refused[queueKey{labels["service"], labels["reason"]}] += value
	case "sessions_active", "session_open_total", "session_close_total", "mailbox_depth", "mailbox_bytes", "mailbox_dead",
		startTimeMetric, "process_resident_memory_bytes", "process_open_fds", "process_max_fds", "go_goroutines":
		m.scalars[name] += value
	}
}

// startTimeMetric is when the process started, in seconds since 1970.
const startTimeMetric = "process_start_time_seconds"

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
	number, _, _ := strings.Cut(strings.TrimSpace(rest), " ") // a timestamp may follow
	value, err := strconv.ParseFloat(number, 64)
	return name, labels, value, err == nil && !math.IsNaN(value)
}

// parseLabels reads labels up to the closing brace, and returns the rest of
// the line.
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
			char := quoted[at]
			if char == '\\' && at+1 < len(quoted) {
				if at++; quoted[at] == 'n' {
					char = '\n'
				} else {
					char = quoted[at]
				}
			}
			value.WriteByte(char)
		}
		if at == len(quoted) {
			return "", false
		}
		into[name] = value.String()
		text = strings.TrimPrefix(quoted[at+1:], ",")
	}
}
