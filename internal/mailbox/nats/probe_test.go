package nats

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"micronode/fault"
	"micronode/internal/mailbox"
	"micronode/internal/testkit"
)

// probe probes for as long as a node does.
func probe(t *testing.T, m *Mailbox) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 800*time.Millisecond)
	defer cancel()
	return m.Probe(ctx)
}

// storedMessages is how many messages a stream of the fake has.
func (f *fakeServer) storedMessages(stream string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.streams[stream].messages)
}

// However often a mailbox is probed, nobody receives anything, nothing is counted, and
// one record is stored, which expires.
func TestAProbeIsNoMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer()
		m := f.open(t, Spec{})
		send(t, m, "jobs", "1")
		before, usage := f.storedMessages(m.client.layout.mailStream()), m.Usage()
		for range 20 {
			testkit.Must(t, probe(t, m))
		}
		synctest.Wait()
		if n := f.storedMessages(m.client.layout.mailStream()); n != before+1 {
			t.Errorf("%d records are stored after twenty probes, %d before", n, before)
		}
		testkit.Equal(t, "the usage", m.Usage(), usage)
		if got := receive(t, m, "jobs"); string(got.Body) != "1" {
			t.Errorf("received %q", got.Body)
		}
		expectEmpty(t, m, "jobs")
	})
}

// Servers that would not store a message fail the probe, although the connection is
// there and reads are answered; and once they would, it succeeds.
func TestAProbeFailsWhereAMessageWould(t *testing.T) {
	for name, c := range map[string]struct {
		v     verdict
		kinds []fault.Kind
	}{
		"no quorum, no answer": {verdict{dropRequest: true}, []fault.Kind{fault.Timeout}},
		"no leader":            {verdict{code: int(codeUnavailable)}, []fault.Kind{fault.StorageBusy, fault.Timeout}},
		"no space":             {verdict{code: int(codeStorage)}, []fault.Kind{fault.StoreFull}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeServer()
				m := f.open(t, Spec{})
				testkit.Must(t, probe(t, m))
				f.setIntercept(func(subject string) verdict {
					if writes(subject) {
						return c.v
					}
					return verdict{}
				})
				began, counted := time.Now(), m.Calls()
				err := probe(t, m)
				if took := time.Since(began); took > 800*time.Millisecond {
					t.Errorf("it took %s", took)
				}
				testkit.Equal(t, "one of the kinds", c.kinds[0] == fault.KindOf(err) || c.kinds[len(c.kinds)-1] == fault.KindOf(err), true)
				if err == nil || fault.DetailOf(err) == "" || fault.NextOf(err) == "" {
					t.Errorf("an operator is told %v, %q", err, fault.NextOf(err))
				}
				if now := m.Calls(); c.v.code != int(codeStorage) && now.Timeouts+now.Failures <= counted.Timeouts+counted.Failures {
					t.Errorf("counted %+v, before %+v", now, counted)
				}
				f.setIntercept(nil)
				testkit.Must(t, probe(t, m))
			})
		})
	}
}

// A server that is gone fails the probe at once, and one that is back passes it within
// two seconds.
func TestAProbeAfterReconnecting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer()
		m := f.open(t, Spec{})
		testkit.Must(t, probe(t, m))
		f.disconnect(true)
		synctest.Wait()
		if err := probe(t, m); err == nil {
			t.Error("without a connection the probe passes")
		}
		f.mu.Lock()
		f.refusing = false
		f.mu.Unlock()
		time.Sleep(time.Second)
		testkit.Must(t, probe(t, m))
		testkit.Equal(t, "the address", m.Address(), "localhost")
	})
}

// Addresses are shown without what may be secret in the URL of a server.
func TestAddressOf(t *testing.T) {
	for _, c := range []struct {
		servers []string
		want    string
	}{
		{[]string{"nats://a:4222"}, "a:4222"}, {[]string{"tls://a:1", "b:2"}, "a:1, b:2"}, {nil, ""},
	} {
		testkit.Equal(t, "the address", addressOf(c.servers), c.want)
	}
}

var _ mailbox.Prober = (*Mailbox)(nil)
