package observe

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
)

// repeatInterval is the least time between two lines of the log that say the
// same about something that lasts.
const repeatInterval = time.Minute

// maxRepeatedLines bounds how many different lines are remembered. Beyond that
// they share one allowance, so that a flood of different lines is bounded too.
const maxRepeatedLines = 256

// RepeatedLines holds back lines of the log that were written within the last
// minute: something that fails every few seconds is said once a minute, with
// how often it was said in between. The zero value is ready.
type RepeatedLines struct {
	mu   sync.Mutex //lockblock:leaf a few assignments; the line is written after unlock
	seen map[string]*repeatedLine
}

type repeatedLine struct {
	at   time.Time
	held uint64 // since then
}

// Admit reports whether to write a line now, and how many like it were held
// back since the last one. Lines that differ only in their digits are alike: a
// growing pause or a count does not make news.
func (l *RepeatedLines) Admit(line string, now time.Time) (held uint64, ok bool) {
	return l.AdmitExact(shapeOf(line), now)
}

// AdmitExact is Admit for lines in which digits tell things apart.
func (l *RepeatedLines) AdmitExact(shape string, now time.Time) (held uint64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seen == nil {
		l.seen = map[string]*repeatedLine{}
	}
	known := l.seen[shape]
	if known == nil && len(l.seen) >= maxRepeatedLines {
		for key, old := range l.seen {
			if now.Sub(old.at) >= repeatInterval {
				delete(l.seen, key)
			}
		}
		if len(l.seen) >= maxRepeatedLines {
			shape = "others"
			known = l.seen[shape]
		}
	}
	if known != nil && now.Sub(known.at) < repeatInterval {
		known.held++
		return 0, false
	}
	if known != nil {
		held = known.held
	}
	l.seen[shape] = &repeatedLine{at: now}
	return held, true
}

// shapeOf is a line with every number replaced.
func shapeOf(line string) string {
	var shape strings.Builder
	inNumber := false
	for _, char := range line {
		isDigit := '0' <= char && char <= '9'
		switch {
		case !isDigit:
			shape.WriteRune(char)
		case !inNumber:
			shape.WriteByte('#')
		}
		inNumber = isDigit
	}
	return shape.String()
}

// ReadinessLog writes readiness to the log as `micronode status` shows it: a
// line for each change, and one a minute while something lasts. A change back
// and forth within a minute is not repeated; when it settles, the last line is
// about the state that lasts.
type ReadinessLog struct {
	// set at construction
	write func(level slog.Level, message string, args ...any) // must not wait

	// owned by the caller of Look
	changes RepeatedLines
	last    string    // the shape of the last line
	lastAt  time.Time // when it was written
}

// NewReadinessLog makes a ReadinessLog.
func NewReadinessLog(write func(level slog.Level, message string, args ...any)) *ReadinessLog {
	return &ReadinessLog{write: write}
}

// maxReasonsInLine is how many reasons a line has. While a node starts, each of
// its services is one.
const maxReasonsInLine = 8

// Look is called with the current verdict, whether it has changed or not.
func (l *ReadinessLog) Look(now Verdict, at time.Time) {
	state, reasons := stateText(now), reasonsText(now)
	shape := shapeOf(state + " " + reasons)
	if shape == l.last {
		if now.Whole() || at.Sub(l.lastAt) < repeatInterval {
			return
		}
	} else if _, isNews := l.changes.Admit(l.last+" > "+shape, at); !isNews {
		return
	}
	l.last, l.lastAt = shape, at
	level := slog.LevelWarn
	if now.Whole() || isPhase(now) {
		level = slog.LevelInfo
	}
	args := []any{"state", state, "ready", now.Ready, "write_ready", now.WriteReady, "degraded", now.Degraded}
	if len(now.Missing) > 0 {
		args = append(args, "missing", strings.Join(now.Missing, ", "))
	}
	if reasons != "" {
		args = append(args, "reasons", reasons)
	}
	l.write(level, "readiness", args...)
}

// isPhase reports whether the node starts or drains: then that is the reason,
// and those of its services follow from it.
func isPhase(v Verdict) bool { return slices.Contains(v.Missing, nodeService) }

// stateText is a verdict in a few words.
func stateText(v Verdict) string {
	switch {
	case !v.Ready:
		return "not ready"
	case !v.WriteReady:
		return "ready for reads only"
	case v.Degraded:
		return "ready, but degraded"
	default:
		return "ready"
	}
}

// reasonsText has the sentences that the status shows, in one line: what is
// missing first.
func reasonsText(v Verdict) string {
	var missing, others []string
	for _, one := range v.Reasons {
		text := one.Dep + ": " + one.Reason + ". " + one.Next
		switch {
		case isPhase(v) && one.Dep != nodeService:
		case slices.Contains(v.Missing, one.Dep):
			missing = append(missing, text)
		default:
			others = append(others, text)
		}
	}
	all := append(missing, others...)
	if more := len(all) - maxReasonsInLine; more > 0 {
		all = append(all[:maxReasonsInLine], fmt.Sprintf("and %d more, which `micronode status` shows", more))
	}
	return oneLine(strings.Join(all, " | "))
}

// oneLine is a text without line breaks.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
