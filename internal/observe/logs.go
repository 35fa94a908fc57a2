package observe

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"micronode/fault"
)

// Logs is where the node's log lines go. Every line has its correlation ID,
// and no line has a secret in it.
type Logs struct {
	level  *slog.LevelVar
	logger *slog.Logger
}

// NewLogs makes logs in the format "json" or "text", at level Info.
func NewLogs(w io.Writer, format string) (*Logs, error) {
	level := new(slog.LevelVar)
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: redactAttr}
	var inner slog.Handler
	switch format {
	case "json":
		inner = slog.NewJSONHandler(w, options)
	case "text":
		inner = slog.NewTextHandler(w, options)
	default:
		err := fault.New("observe.logs", fault.Malformed, "there is no log format %q", format)
		err.Next = `Set log.format to "json" or "text".`
		return nil, err
	}
	return &Logs{level: level, logger: slog.New(&corrHandler{inner: inner})}, nil
}

// Logger returns the logger. It goes on to be right when the level changes.
func (l *Logs) Logger() *slog.Logger { return l.logger }

// SetLevel sets what is worth a line, from now on and for all loggers made of
// these logs.
func (l *Logs) SetLevel(level slog.Level) { l.level.Set(level) }

// ParseLevel reads debug, info, warn or error.
func ParseLevel(text string) (slog.Level, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(text)); err != nil {
		wrong := fault.New("observe.logs", fault.Malformed, "there is no log level %q", text)
		wrong.Next = "Set log.level to debug, info, warn or error."
		return 0, wrong
	}
	return level, nil
}

// corrHandler adds the correlation ID of ctx to every record, at the top level
// even if the logger has open groups: who searches for it looks there. For
// that it keeps groups back and hands them to the inner handler with the
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
	id := CorrID(ctx)
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

// WithAttrs gives the attributes to the innermost open group, or to the inner
// handler, which formats them once and for all.
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

// lagPause is how long a consumer that lags is not warned about again.
const lagPause = 5 * time.Second

// lagNames bounds how many readers are remembered. Their names come from a
// fixed set, so it is never reached; if it is, somebody uses a peer or a key
// as a name, and the warnings are about "others" rather than about memory.
const lagNames = 256

// LagLog warns of readers of a bus that lost events, at most once in five
// seconds for each: a reader that lags tends to lag thousands of times. What
// was lost meanwhile is told with the next warning, and bus_lagged_total has
// it all.
type LagLog struct {
	logger *slog.Logger // set at construction

	mu   sync.Mutex //lockblock:leaf a few assignments; the line is written after unlock
	seen map[lagReader]*lag
}

type lagReader struct{ bus, consumer string }

type lag struct {
	told   time.Time
	missed uint64 // since then
}

// NewLagLog makes a LagLog that writes to the logger.
func NewLagLog(logger *slog.Logger) *LagLog {
	return &LagLog{logger: logger, seen: map[lagReader]*lag{}}
}

// Lagged says that a consumer of a bus missed events.
func (l *LagLog) Lagged(ctx context.Context, bus, consumer string, missed uint64) {
	reader, total, tell := l.count(lagReader{bus, consumer}, missed, time.Now())
	if tell {
		l.logger.WarnContext(ctx, "a reader of a bus fell behind and lost events",
			"bus", reader.bus, "consumer", reader.consumer, "missed", total)
	}
}

// count adds to what the reader missed, and says whether now is the time to
// tell, about whom and how much.
func (l *LagLog) count(reader lagReader, missed uint64, now time.Time) (about lagReader, total uint64, tell bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	known, exists := l.seen[reader]
	if !exists && len(l.seen) >= lagNames {
		reader = lagReader{"others", "others"}
		known, exists = l.seen[reader]
	}
	if !exists {
		known = new(lag)
		l.seen[reader] = known
	}
	known.missed += missed
	if exists && now.Sub(known.told) < lagPause {
		return reader, 0, false
	}
	total, known.told, known.missed = known.missed, now, 0
	return reader, total, true
}
