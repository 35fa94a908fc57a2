package storetest_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"micronode/b3"
	"micronode/internal/store"
	"micronode/internal/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAnHonestStorePasses(t *testing.T) {
	storetest.Run(t, func(testing.TB) store.Store { return newFake("") })
}

// unlimited is a correct store without a budget.
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

// Each flaw breaks one rule, and one of the checks that are named must detect
// it.
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
		"evicts what is named":       {"named objects stay until they are released"},
		"unpins what was pinned":     {"a class changes only from what it was"},
		"evicts more than cached":    {"a class changes only from what it was"},
		"cries corrupt":              {"a sound object verifies"},
		"serves when closed":         {"a closed store refuses all", "a put that is under way ends with its store"},
		"zeroes what is open":        {"a handle outlives its store"},
		"cannot close":               {"a closed store refuses all"},
	} {
		t.Run(string(broken), func(t *testing.T) {
			for _, name := range by {
				verdict := examine(find(t, storetest.Checks(), name), func(testing.TB) store.Store { return newFake(broken) })
				if verdict == "" {
					t.Errorf("%q did not notice", name)
				}
				t.Logf("%s: %s", name, verdict)
			}
		})
	}
}

// durableState is where a fake keeps its objects when it is closed.
type durableState struct {
	flaw flaw
	left map[b3.Address]item
}

func durableMaker(broken flaw) storetest.DurableMaker {
	return func(testing.TB) func() store.Store {
		state := &durableState{flaw: broken, left: map[b3.Address]item{}}
		return func() store.Store { return &durableFake{fake: state.open(), state: state} }
	}
}

// open is a fake with the objects that were kept.
func (d *durableState) open() *fake {
	f := newFake("")
	for a, it := range d.left {
		if d.flaw == "forgets all" || d.flaw == "forgets what is empty" && len(it.data) == 0 {
			continue
		}
		if d.flaw == "pins all" {
			it.class = store.Pinned
		}
		if d.flaw == "wakes with other bytes" && len(it.data) > 200_000 {
			it.data = append([]byte{it.data[0] ^ 1}, it.data[1:]...)
		}
		kept := it
		f.items[a] = &kept
		f.addTotals(&kept, 1)
		if d.flaw != "forgets what it holds" {
			f.usage.Held += int64(len(kept.data))
		}
	}
	return f
}

// durableFake is a fake that outlives its Close.
type durableFake struct {
	*fake
	state *durableState
}

func (d *durableFake) Close() error {
	if d.state.flaw != "brings back what was deleted" {
		clear(d.state.left)
	}
	for a, it := range d.items {
		d.state.left[a] = item{data: it.data, class: it.class, visible: true}
	}
	return d.fake.Close()
}

func (d *durableFake) Put(ctx context.Context, src io.Reader, opt store.PutOptions) (store.Info, bool, error) {
	var taken bytes.Buffer
	info, created, err := d.fake.Put(ctx, io.TeeReader(src, &taken), opt)
	if err != nil && d.state.flaw == "finds what broke off" {
		d.items[b3.Of(taken.Bytes())] = &item{data: taken.Bytes(), visible: true}
	}
	return info, created, err
}

func TestAnHonestDurableStorePasses(t *testing.T) {
	storetest.RunDurable(t, durableMaker(""))
}

func TestEveryFlawOfADurableStoreIsFound(t *testing.T) {
	for broken, by := range map[flaw][]string{
		"forgets all":                  {"what is put lasts", "a class lasts", "a random history with ends in it is as in the model"},
		"forgets what is empty":        {"what is put lasts"},
		"pins all":                     {"a class lasts", "a random history with ends in it is as in the model"},
		"wakes with other bytes":       {"what is put lasts"},
		"forgets what it holds":        {"what was kept counts against the budget"},
		"brings back what was deleted": {"what is deleted stays away"},
		"finds what broke off":         {"what was refused is not there later"},
	} {
		t.Run(string(broken), func(t *testing.T) {
			for _, name := range by {
				verdict := runExpectingFailure(func(r *recorder) { find(t, storetest.DurableChecks(), name).AgainstDurable(r, durableMaker(broken)) })
				if verdict == "" {
					t.Errorf("%q did not notice", name)
				}
				t.Logf("%s: %s", name, verdict)
			}
		})
	}
}

// A check that never fails may be one that cannot.
func TestTheListOfChecks(t *testing.T) {
	seen := map[string]bool{}
	for _, check := range append(storetest.Checks(), storetest.DurableChecks()...) {
		if seen[check.Name] {
			t.Errorf("two checks are called %q", check.Name)
		}
		seen[check.Name] = true
	}
	if len(seen) < 30 {
		t.Errorf("%d checks; some list is not included", len(seen))
	}
}

func find(t *testing.T, checks []storetest.Check, name string) storetest.Check {
	t.Helper()
	i := slices.IndexFunc(checks, func(c storetest.Check) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("there is no check %q", name)
	}
	return checks[i]
}

// examine runs a check and returns its first failure.
func examine(check storetest.Check, maker storetest.Maker) string {
	return runExpectingFailure(func(r *recorder) { check.Against(r, maker) })
}

// runExpectingFailure runs something that is expected to fail.
func runExpectingFailure(do func(r *recorder)) string {
	r := &recorder{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		do(r)
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
