package storetest_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"micronode/internal/store"
	"micronode/internal/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAnHonestStorePasses(t *testing.T) {
	storetest.Run(t, func(testing.TB) store.Store { return newFake("") })
}

// unlimited is an honest store without a budget.
type unlimited struct{ *fake }

func (u unlimited) Usage() store.Usage {
	usage := u.fake.Usage()
	usage.Budget = 0
	return usage
}

func TestAStoreWithoutABudgetPasses(t *testing.T) {
	storetest.Run(t, func(testing.TB) store.Store { return unlimited{newFake("has no limit")} })
}

func TestATinyBudgetIsRefused(t *testing.T) {
	verdict := examine(storetest.Checks()[0], func(testing.TB) store.Store {
		f := newFake("")
		f.usage.Budget = 1 << 20
		return f
	})
	if !strings.Contains(verdict, "make it with at least") {
		t.Errorf("verdict: %q", verdict)
	}
}

// Each flaw breaks one rule, and one of the checks that are named must say so.
func TestEveryFlawIsFound(t *testing.T) {
	for broken, by := range map[flaw][]string{
		"gives wrong bytes":          {"what is put can be read", "ranges are exact"},
		"gives other bytes at once":  {"what is put can be read"},
		"reads one too far":          {"ranges are exact"},
		"clips ranges":               {"ranges outside are refused"},
		"ignores short writes":       {"a failing writer is told"},
		"reads after close":          {"a closed handle gives nothing"},
		"closes twice":               {"a closed handle gives nothing"},
		"accepts wrong bytes":        {"a wanted address is checked", "a random history is as in the model"},
		"takes what is too short":    {"a declared size is checked"},
		"keeps what broke off":       {"an interrupted put keeps nothing"},
		"leaks what it reserved":     {"an interrupted put keeps nothing", "an endless body is refused and gives all back", "many half-finished puts keep to the budget"},
		"serves who has left":        {"who has left gets nothing", "an interrupted put keeps nothing"},
		"counts twice":               {"what is put twice is kept once", "the same object put by many is created once"},
		"creates twice":              {"what is put twice is kept once", "the same object put by many is created once", "puts and deletes of one object take turns"},
		"does not pin again":         {"a put pins and never unpins"},
		"unpins by a put":            {"a put pins and never unpins"},
		"keeps the bytes of others":  {"the bytes belong to the store"},
		"counts nothing":             {"a wanted address is checked", "a full store refuses before it reads", "cached objects make room", "eviction spares who reads"},
		"is out by one":              {"a list is complete and in order", "a random history is as in the model"},
		"holds for free":             {"many half-finished puts keep to the budget", "a walk can be left"},
		"does not see pinned ones":   {"a wanted address is checked", "everybody sees their own"},
		"lists the same again":       {"a list is complete and in order"},
		"cannot list":                {"a list is complete and in order", "a walk can be left", "what is put can be read", "a random history is as in the model"},
		"cannot close handles":       {"a closed handle gives nothing", "eviction spares who reads"},
		"deletes nothing":            {"what is deleted is gone", "everybody sees their own"},
		"deletes what is not there":  {"what is not there is not found", "puts and deletes of one object take turns"},
		"pulls away what is deleted": {"what is deleted can be read by who has it open"},
		"frees what is open":         {"what is deleted counts until the last handle closes"},
		"lists in no order":          {"a list is complete and in order"},
		"lists without end":          {"pages are bounded"},
		"has no limit":               {"a full store refuses before it reads"},
		"reads before it refuses":    {"a full store refuses before it reads", "what cannot fit evicts nothing"},
		"never evicts":               {"cached objects make room"},
		"evicts in vain":             {"what cannot fit evicts nothing"},
		"evicts pinned":              {"pinned objects stay"},
		"evicts open":                {"open objects stay"},
		"evicts what is used":        {"objects in use stay"},
		"does not unpin":             {"pin and unpin take effect"},
		"cries corrupt":              {"a sound object verifies"},
		"serves when closed":         {"a closed store refuses all", "a put that is under way ends with its store"},
		"zeroes what is open":        {"a handle outlives its store"},
		"cannot close":               {"a closed store refuses all"},
	} {
		t.Run(string(broken), func(t *testing.T) {
			for _, name := range by {
				verdict := examine(find(t, name), func(testing.TB) store.Store { return newFake(broken) })
				if verdict == "" {
					t.Errorf("%q did not notice", name)
				}
				t.Logf("%s: %s", name, verdict)
			}
		})
	}
}

// A check that is never seen to fail may be one that cannot.
func TestTheListOfChecks(t *testing.T) {
	seen := map[string]bool{}
	for _, check := range storetest.Checks() {
		if seen[check.Name] {
			t.Errorf("two checks are called %q", check.Name)
		}
		seen[check.Name] = true
	}
	if len(seen) < 30 {
		t.Errorf("%d checks; some list is not included", len(seen))
	}
}

func find(t *testing.T, name string) storetest.Check {
	t.Helper()
	checks := storetest.Checks()
	i := slices.IndexFunc(checks, func(c storetest.Check) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("there is no check %q", name)
	}
	return checks[i]
}

// examine runs a check and returns the first thing that it complains about.
func examine(check storetest.Check, maker storetest.Maker) string {
	r := &recorder{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		check.Against(r, maker)
	}()
	<-done
	return r.first
}

// recorder takes the place of a test that is expected to fail.
type recorder struct {
	testing.TB // the rest of the interface; not to be called

	mu    sync.Mutex
	first string
}

func (r *recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.first == "" {
		r.first = fmt.Sprintf(format, args...)
	}
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Fatal(args ...any) { r.Fatalf("%s", fmt.Sprint(args...)) }
