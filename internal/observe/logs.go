package observe

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"micronode/fault"
	"micronode/internal/corr"
)

// Logs is where the node's log lines go. Every line has its correlation ID,
// and no line has a secret in it.
type Logs struct {
	level  *slog.LevelVar
	logger *slog.Logger
}

// NewLogs makes logs in the format "json" or "text", at level Info.
func NewLogs(w io.Writer, format string) (*Logs, error) {
	return newLogs(w, format, redactAttr)
}

// NewJournalLogs makes logs for a journal, which has the time of each line: a
// line of text has none. A program that reads JSON gets it.
func NewJournalLogs(w io.Writer, format string) (*Logs, error) {
	if format != "text" {
		return NewLogs(w, format)
	}
	return newLogs(w, format, func(groups []string, attr slog.Attr) slog.Attr {
		if len(groups) == 0 && attr.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return redactAttr(groups, attr)
	})
}

func newLogs(w io.Writer, format string, replace func(groups []string, attr slog.Attr) slog.Attr) (*Logs, error) {
	level := new(slog.LevelVar)
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: replace}
	var inner slog.Handler
	switch format {
	case "json":
		inner = slog.NewJSONHandler(w, options)
	case "text":
		inner = slog.NewTextHandler(w, options)
	default:
		return nil, fault.New("observe.logs", fault.Malformed, "there is no log format %q", format).
			Advise(`Set log.format to "json" or "text".`)
	}
	return &Logs{level: level, logger: slog.New(&corrHandler{inner: inner})}, nil
}

// Logger returns the logger. It follows SetLevel.
func (l *Logs) Logger() *slog.Logger { return l.logger }

// SetLevel sets the lowest level that is logged, from now on and for all
// loggers made of these logs.
func (l *Logs) SetLevel(level slog.Level) { l.level.Set(level) }

// ParseLevel reads debug, info, warn or error.
func ParseLevel(text string) (slog.Level, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(text)); err != nil {
		return 0, fault.New("observe.logs", fault.Malformed, "there is no log level %q", text).
			Advise("Set log.level to debug, info, warn or error.")
	}
	return level, nil
}

// corrHandler adds the correlation ID of ctx to every record, at the top level
// even if the logger has open groups: that is where searches look. For that it
// keeps open groups itself and passes them to the inner handler with the
// record.
type corrHandler struct {
	inner  slog.Handler
	groups []openGroup // set at construction, never changed
}

type openGroup struct {
	name  string
	attrs []slog.Attr
}

// Enabled asks the inner handler.
func (h *corrHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.inner.Enabled(ctx, level)
}

// Handle adds the correlation ID and closes the groups.
func (h *corrHandler) Handle(ctx context.Context, record slog.Record) error {
	id := corr.From(ctx)
	if len(h.groups) > 0 {
		record = h.nest(record)
	}
	if id != "" {
		record = record.Clone()
		record.AddAttrs(slog.String("corr_id", id))
	}
	return h.inner.Handle(ctx, record)
}

// nest returns the record with its attributes inside the open groups.
func (h *corrHandler) nest(record slog.Record) slog.Record {
	attrs := make([]slog.Attr, 0, record.NumAttrs())
	record.Attrs(func(attr slog.Attr) bool {
		attrs = append(attrs, attr)
		return true
	})
	for _, group := range slices.Backward(h.groups) {
		inside := slices.Concat(group.attrs, attrs)
		attrs = []slog.Attr{{Key: group.name, Value: slog.GroupValue(inside...)}}
	}
	outside := slog.NewRecord(record.Time, record.Level, record.Message, record.PC)
	outside.AddAttrs(attrs...)
	return outside
}

// WithAttrs adds the attributes to the innermost open group, or to the inner
// handler, which formats them only once.
func (h *corrHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	if len(h.groups) == 0 {
		return &corrHandler{inner: h.inner.WithAttrs(attrs)}
	}
	groups := slices.Clone(h.groups)
	last := &groups[len(groups)-1]
	last.attrs = slices.Concat(last.attrs, attrs)
	return &corrHandler{inner: h.inner, groups: groups}
}

// WithGroup opens a group.
func (h *corrHandler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	return &corrHandler{inner: h.inner, groups: append(slices.Clip(h.groups), openGroup{name: name})}
}

// lagWarnInterval is the least time between two warnings about one consumer.
const lagWarnInterval = 5 * time.Second

// maxLagReaders bounds how many readers are tracked. Their names come from a
// fixed set, so it is never reached; if it is, a peer or a key is used as a
// name, and the warnings are about "others" instead of filling memory.
const maxLagReaders = 256

// LagLog warns of readers of a bus that lost events, at most once in five
// seconds for each: a reader that lags tends to lag thousands of times. Losses
// in between are included in the next warning, and bus_lagged_total has them
// all.
type LagLog struct {
	warn func(message string, args ...any) // set at construction; must not wait

	mu   sync.Mutex //lockblock:leaf a few assignments; the line is written after unlock
	seen map[lagReader]*lag
}

type lagReader struct{ bus, consumer string }

type lag struct {
	warnedAt time.Time
	missed   uint64 // since then
}

// NewLagLog makes a LagLog. It is called on the goroutine of the bus reader, so
// warn must not wait for a terminal.
func NewLagLog(warn func(message string, args ...any)) *LagLog {
	return &LagLog{warn: warn, seen: map[lagReader]*lag{}}
}

// Lagged reports that a consumer of a bus missed events.
func (l *LagLog) Lagged(bus, consumer string, missed uint64) {
	reader, total, shouldWarn := l.count(lagReader{bus, consumer}, missed, time.Now())
	if shouldWarn {
		l.warn("a slow reader of a bus lost events",
			"bus", reader.bus, "consumer", reader.consumer, "missed", total)
	}
}

// count adds to what the reader missed, and returns whether to warn now, about
// which reader, and how much.
func (l *LagLog) count(reader lagReader, missed uint64, now time.Time) (about lagReader, total uint64, shouldWarn bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	known, exists := l.seen[reader]
	if !exists && len(l.seen) >= maxLagReaders {
		reader = lagReader{"others", "others"}
		known, exists = l.seen[reader]
	}
	if !exists {
		known = new(lag)
		l.seen[reader] = known
	}
	known.missed += missed
	if exists && now.Sub(known.warnedAt) < lagWarnInterval {
		return reader, 0, false
	}
	total, known.warnedAt, known.missed = known.missed, now, 0
	return reader, total, true
}
