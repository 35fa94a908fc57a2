package observe

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"micronode/internal/flow"
)

// logOfReadiness keeps what a ReadinessLog writes.
type logOfReadiness struct {
	*ReadinessLog
	readiness *Readiness
	now       time.Time
	lines     []string
}

func newLogOfReadiness() *logOfReadiness {
	kept := &logOfReadiness{readiness: NewReadiness(flow.NewInventory(), nil), now: time.Unix(0, 0)}
	kept.ReadinessLog = NewReadinessLog(func(level slog.Level, message string, args ...any) {
		line := fmt.Sprintf("%s %s", level, message)
		for i := 0; i < len(args); i += 2 {
			line += fmt.Sprintf(" %v=%v", args[i], args[i+1])
		}
		kept.lines = append(kept.lines, line)
	})
	return kept
}

// pass lets time pass, in the steps in which readiness is looked at.
func (l *logOfReadiness) pass(d time.Duration) {
	for end := l.now.Add(d); l.now.Before(end); l.now = l.now.Add(watchPause) {
		l.Look(l.readiness.Evaluate(), l.now)
	}
}

func (l *logOfReadiness) expect(t *testing.T, when string, want ...string) {
	t.Helper()
	if got := strings.Join(l.lines, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("%s: logged\n%s\nwant\n%s", when, got, strings.Join(want, "\n"))
	}
	l.lines = nil
}

func TestReadinessIsLoggedWithItsSentences(t *testing.T) {
	l := newLogOfReadiness()
	packs := l.readiness.Dependency("edge", "packs", ForReads)
	names := l.readiness.Dependency("index", "names", ForWrites)
	names.Up()
	packs.Up()
	l.pass(time.Second)
	const whole = "INFO readiness state=ready ready=true write_ready=true degraded=false"
	l.expect(t, "all is well", whole)
	l.pass(time.Hour)
	l.expect(t, "it stays so")

	packs.Degraded("the pack paris is damaged", "Replace the file.")
	l.pass(time.Second)
	const damaged = "WARN readiness state=ready, but degraded ready=true write_ready=true degraded=true" +
		" reasons=edge/packs: the pack paris is damaged. Replace the file."
	l.expect(t, "a pack is damaged", damaged)
	l.pass(58 * time.Second)
	l.expect(t, "within the minute")
	l.pass(2 * time.Minute)
	l.expect(t, "while it lasts", damaged, damaged)

	names.Down("there is no room\nleft", "Make room.")
	l.pass(time.Second)
	l.expect(t, "writes fail too", "WARN readiness state=ready for reads only ready=true write_ready=false degraded=true missing=index/names"+
		" reasons=index/names: there is no room left. Make room. | edge/packs: the pack paris is damaged. Replace the file.")
	names.Up()
	packs.Up()
	l.pass(time.Second)
	l.expect(t, "it is well again", whole)
}

func TestReadinessThatFluttersIsLoggedOnceAMinute(t *testing.T) {
	l := newLogOfReadiness()
	d := l.readiness.Dependency("registry", "follower", ForWrites)
	d.Up()
	l.pass(time.Second)
	l.lines = nil
	for i := range 20 { // 50 seconds
		d.Degraded(fmt.Sprintf("failed %d times and waits to be restarted", i), "Wait.")
		l.pass(2 * time.Second)
		d.Up()
		l.pass(500 * time.Millisecond)
	}
	if len(l.lines) != 2 {
		t.Errorf("logged\n%s", strings.Join(l.lines, "\n"))
	}
	d.Degraded("failed 7 times and waits to be restarted", "Wait.")
	l.lines = nil
	l.pass(time.Minute)
	if len(l.lines) != 1 || !strings.Contains(l.lines[0], "failed 7 times") {
		t.Errorf("the state that lasts is logged as\n%s", strings.Join(l.lines, "\n"))
	}
}

// While the node starts and drains, that is the reason.
func TestThePhaseIsTheReason(t *testing.T) {
	l := newLogOfReadiness()
	l.Look(Verdict{Missing: []string{"edge", "node"}, Reasons: []Reason{{Dep: "edge", Reason: "starting", Next: "Wait."}, {Dep: "node", Reason: "starting", Next: "Wait until it has started."}}}, l.now)
	l.expect(t, "at the start", "INFO readiness state=not ready ready=false write_ready=false degraded=false missing=edge, node"+
		" reasons=node: starting. Wait until it has started.")
}

func TestALineHasBoundedReasons(t *testing.T) {
	v := Verdict{Ready: true}
	for i := range maxReasonsInLine + 3 {
		v.Reasons = append(v.Reasons, Reason{Dep: fmt.Sprint("d", i), Reason: "r", Next: "N."})
	}
	if text := reasonsText(v); strings.Count(text, "r. N.") != maxReasonsInLine || !strings.HasSuffix(text, "| and 3 more, which `micronode status` shows") {
		t.Error(text)
	}
}

func TestRepeatedLinesAreHeldBack(t *testing.T) {
	var l RepeatedLines
	now := time.Unix(0, 0)
	for i := range 10 {
		if _, ok := l.Admit(fmt.Sprintf("failed after %d ms", i), now.Add(time.Duration(i)*time.Second)); ok != (i == 0) {
			t.Errorf("line %d: %v", i, ok)
		}
	}
	if _, ok := l.Admit("another", now); !ok {
		t.Error("another line was held back")
	}
	if held, ok := l.Admit("failed after 99 ms", now.Add(time.Minute)); !ok || held != 9 {
		t.Errorf("after a minute: %d, %v", held, ok)
	}
	letters := func(n int) string { return strings.Repeat("a", n%40) + strings.Repeat("b", n/40) }
	admitted := 0
	for i := range 10 * maxRepeatedLines {
		if _, ok := l.Admit(letters(i+1), now.Add(time.Minute)); ok {
			admitted++
		}
	}
	if len(l.seen) > maxRepeatedLines+1 || admitted > maxRepeatedLines+1 {
		t.Errorf("%d lines are remembered, %d written", len(l.seen), admitted)
	}
	if _, ok := l.Admit("later", now.Add(time.Hour)); !ok || len(l.seen) != 1 {
		t.Errorf("%v, %d are remembered", ok, len(l.seen))
	}
}

func TestDurationsAreLoggedAsDurations(t *testing.T) {
	var out bytes.Buffer
	logs, err := NewLogs(&out, "json")
	if err != nil {
		t.Fatal(err)
	}
	logs.Logger().Info("restarting", "delay", 1500*time.Millisecond)
	if !strings.Contains(out.String(), `"delay":"1.5s"`) {
		t.Error(out.String())
	}
}
