package certificate

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/crypto/acme"

	"micronode/fault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// issue makes a certificate that begins now.
func issue(t *testing.T, name string, lifetime time.Duration) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	leaf := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "test"}, DNSNames: []string{name},
		NotBefore: time.Now(), NotAfter: time.Now().Add(lifetime)}
	der, err := x509.CreateCertificate(rand.Reader, leaf, leaf, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	if leaf, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// kept is a folder in memory.
type kept map[string][]byte

func (k kept) load(name string) ([]byte, error) {
	data, ok := k[name]
	if !ok {
		return nil, fault.New("test", fault.NotFound, "no such file")
	}
	return data, nil
}

func (k kept) save(name string, data []byte) error { k[name] = data; return nil }

// shared guards what a test and its source both use. A test that waits for time
// to pass lets go of it first: to the race detector that is what orders them.
var shared sync.Mutex

func pause(d time.Duration) {
	func() {
		shared.Lock()
		defer shared.Unlock()
	}()
	time.Sleep(d)
}

func newSource(t *testing.T, files kept, names ...string) (s *Source, last func() State) {
	t.Helper()
	var now []State
	onChange := func(states []State) {
		shared.Lock()
		defer shared.Unlock()
		now = states
	}
	s, err := New(Spec{Names: names, Directory: "https://acme.example/directory", PlainHTTP: true, Load: files.load, Save: files.save, OnChange: onChange})
	if err != nil {
		t.Fatal(err)
	}
	return s, func() State {
		synctest.Wait()
		shared.Lock()
		defer shared.Unlock()
		return now[0]
	}
}

func hello(name string, protos ...string) *tls.ClientHelloInfo {
	return &tls.ClientHelloInfo{ServerName: name, SupportedProtos: protos}
}

// A certificate is obtained at the start, kept, and renewed when two thirds of
// its time are used, without a moment in which there is none.
func TestACertificateIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		files := kept{}
		s, last := newSource(t, files, "maps.example.org", "www.example.org")
		obtained := map[string]int{}
		s.obtain = func(_ context.Context, name string, _ challengeKind) (*tls.Certificate, error) {
			shared.Lock()
			defer shared.Unlock()
			obtained[name]++
			return issue(t, name, 90*24*time.Hour), nil
		}
		if _, err := s.certificate(hello("maps.example.org")); fault.KindOf(err) != fault.NotReady {
			t.Errorf("before: %v", err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- s.Serve(ctx) }()
		if now := last(); now.Err != nil || now.Expires.IsZero() || obtained["maps.example.org"] != 1 || obtained["www.example.org"] != 1 {
			t.Errorf("%+v %v", now, obtained)
		}
		first, err := s.certificate(hello("Maps.example.org."))
		if err != nil || first.Leaf.DNSNames[0] != "maps.example.org" {
			t.Fatal(err)
		}
		if other, err := s.certificate(hello("www.example.org")); err != nil || other == first {
			t.Error("both names have one certificate", err)
		}
		if byAddress, err := s.certificate(hello("")); err != nil || byAddress != first {
			t.Error("a client without a name", err)
		}
		if _, err := s.certificate(hello("evil.example.org")); err == nil {
			t.Error("another name was served")
		}
		pause(59 * 24 * time.Hour)
		if last(); obtained["maps.example.org"] != 1 {
			t.Errorf("it was renewed early: %v", obtained)
		}
		pause(2 * 24 * time.Hour)
		last()
		if again, err := s.certificate(hello("maps.example.org")); err != nil || again == first || obtained["maps.example.org"] != 2 {
			t.Errorf("it was not renewed: %v, %v", err, obtained)
		}
		stop()
		<-ended
		restarted, _ := newSource(t, files, "maps.example.org")
		if again, err := restarted.certificate(hello("maps.example.org")); err != nil || again.Leaf.DNSNames[0] != "maps.example.org" {
			t.Error("it was not kept:", err)
		}
		pause(91 * 24 * time.Hour)
		if expired, _ := newSource(t, files, "maps.example.org"); expired.States()[0].Err == nil {
			t.Error("an expired one is in use")
		}
		damaged := kept{}
		for name := range files {
			damaged[name] = []byte("damaged")
		}
		if _, err := New(Spec{Names: []string{"maps.example.org"}, Directory: "https://acme.example/directory", Load: damaged.load}); fault.KindOf(err) != fault.Malformed {
			t.Error(err)
		}
	})
}

// What cannot be had is a state with its cause; the pauses grow, the proofs take
// turns, and what is there stays in use.
func TestACertificateThatCannotBeHad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, last := newSource(t, kept{}, "maps.example.org")
		var kinds []challengeKind
		var attempts []time.Time
		refusal := error(fault.New("test", fault.RejectPolicy, "DNS leads elsewhere"))
		s.obtain = func(_ context.Context, name string, kind challengeKind) (*tls.Certificate, error) {
			shared.Lock()
			defer shared.Unlock()
			kinds, attempts = append(kinds, kind), append(attempts, time.Now())
			if len(kinds) == 8 || refusal == nil {
				return issue(t, name, 30*24*time.Hour), nil
			}
			return nil, refusal
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- s.Serve(ctx) }()
		if now := last(); fault.DetailOf(now.Err) != "DNS leads elsewhere" || !now.Expires.IsZero() || now.Next.Before(time.Now().Add(time.Minute)) {
			t.Errorf("%+v", now)
		}
		pause(24 * time.Hour)
		if now := last(); now.Err != nil || now.Expires.IsZero() || len(kinds) != 8 {
			t.Errorf("%+v after %d attempts", now, len(kinds))
		}
		if !slices.Equal(kinds[:4], []challengeKind{byTLS, byHTTP, byTLS, byHTTP}) || attempts[7].Sub(attempts[6]) <= attempts[2].Sub(attempts[1])/2 {
			t.Errorf("%v at %v", kinds, attempts)
		}
		inUse, _ := s.certificate(hello("maps.example.org"))
		refusal = &fault.Error{Op: "test", Kind: fault.UpstreamFailed, Detail: "away", RetryAfter: 36 * time.Hour}
		pause(20 * 24 * time.Hour)
		now := last()
		if fault.DetailOf(now.Err) != "away" || now.Expires.IsZero() || time.Until(now.Next) > 36*time.Hour {
			t.Errorf("%+v", now)
		}
		if still, err := s.certificate(hello("maps.example.org")); err != nil || still != inUse {
			t.Error("what was there is gone", err)
		}
		asked := len(kinds)
		pause(35 * time.Hour)
		if last(); len(kinds) > asked+1 {
			t.Errorf("the authority asked for a pause, and was asked %d times more", len(kinds)-asked)
		}
		stop()
		<-ended
	})
}

// A certificate that cannot be kept is used, and kept as soon as the disk takes
// it again: the authority is not asked for another one.
func TestACertificateThatCannotBeKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		files, full, obtained, tries := kept{}, true, 0, 0
		s, last := newSource(t, files, "maps.example.org")
		s.spec.Save = func(name string, data []byte) error {
			shared.Lock()
			defer shared.Unlock()
			if tries++; full {
				return fault.New("test", fault.Internal, "the disk is full").Advise("Free space.")
			}
			return files.save(name, data)
		}
		s.obtain = func(_ context.Context, name string, _ challengeKind) (*tls.Certificate, error) {
			shared.Lock()
			defer shared.Unlock()
			obtained++
			return issue(t, name, 90*24*time.Hour), nil
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- s.Serve(ctx) }()
		state := last()
		if state.Err == nil || !strings.Contains(state.Err.Error(), "could not be kept") || !strings.HasPrefix(fault.NextOf(state.Err), "Free space.") || state.Next.After(time.Now().Add(5*time.Second)) {
			t.Fatalf("%v, next attempt %v", state.Err, state.Next)
		}
		if c, err := s.certificate(hello("maps.example.org")); err != nil || c.Leaf.NotAfter != state.Expires {
			t.Errorf("it is not in use: %v", err)
		}
		pause(30 * 24 * time.Hour)
		shared.Lock()
		if tries < 100 || tries > 6000 || obtained != 1 {
			t.Errorf("in a month it was tried %d times, and %d were obtained", tries, obtained)
		}
		full = false
		shared.Unlock()
		pause(savePause.Max + time.Second)
		if state = last(); state.Err != nil || state.Next != state.Expires.Add(-30*24*time.Hour) {
			t.Errorf("afterwards %v, next attempt %v", state.Err, state.Next)
		}
		shared.Lock()
		again, err := New(Spec{Names: []string{"maps.example.org"}, Directory: s.spec.Directory, Load: files.load, Save: files.save})
		shared.Unlock()
		if err != nil || again.States()[0].Expires != state.Expires || obtained != 1 {
			t.Errorf("after a restart %v %+v, %d obtained", err, again.States(), obtained)
		}
		stop()
		<-ended
	})
}

// The proofs are shown to who asks for them as the authority does, and to no one
// else.
func TestProofs(t *testing.T) {
	s, _ := newSource(t, kept{}, "maps.example.org")
	key, err := s.accountKey()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := s.accountKey(); err != nil || !again.Public().(*ecdsa.PublicKey).Equal(key.Public()) {
		t.Error("the account is another one", err)
	}
	a, client := &authority{source: s}, &acme.Client{Key: key}
	withdraw, err := a.present(client, "maps.example.org", byTLS, "token-1")
	if err != nil {
		t.Fatal(err)
	}
	if proof, err := s.certificate(hello("maps.example.org", alpnProto)); err != nil || proof == nil {
		t.Error(err)
	}
	for _, other := range []*tls.ClientHelloInfo{hello("other.example.org", alpnProto), hello("maps.example.org", "h2", alpnProto), hello("maps.example.org")} {
		if _, err := s.certificate(other); err == nil {
			t.Errorf("%s with %v got the proof", other.ServerName, other.SupportedProtos)
		}
	}
	withdraw()
	if _, err := s.certificate(hello("maps.example.org", alpnProto)); err == nil {
		t.Error("the proof stays")
	}
	if withdraw, err = a.present(client, "maps.example.org", byHTTP, "token-2"); err != nil {
		t.Fatal(err)
	}
	if proof, ok := s.Token("token-2"); !ok || !strings.HasPrefix(proof, "token-2.") {
		t.Errorf("%q", proof)
	}
	withdraw()
	if _, ok := s.Token("token-2"); ok {
		t.Error("the token stays")
	}
}

// The causes are those of the authority, with what to do.
func TestCausesAreExplained(t *testing.T) {
	limited := &acme.Error{StatusCode: 429, ProblemType: "urn:ietf:params:acme:error:rateLimited", Detail: "too many certificates"}
	for _, c := range []struct {
		err    error
		kind   fault.Kind
		detail string
	}{
		{&acme.AuthorizationError{Errors: []error{&acme.Error{Detail: "no A record"}}}, fault.RejectPolicy, "no A record"},
		{&acme.Error{StatusCode: 403, Detail: "caa"}, fault.RejectPolicy, "caa"},
		{&acme.Error{StatusCode: 503, Detail: "maintenance"}, fault.UpstreamFailed, "maintenance"},
		{limited, fault.RateLimited, "too many"},
		{context.DeadlineExceeded, fault.UpstreamFailed, "reached"},
		{fault.New("x", fault.StoreFull, "full"), fault.StoreFull, "full"},
	} {
		got := explain(t.Context(), "maps.example.org", c.err)
		if fault.KindOf(got) != c.kind || !strings.Contains(fault.DetailOf(got), c.detail) {
			t.Errorf("%v: %v", c.err, got)
		}
	}
	if fault.RetryAfterOf(explain(t.Context(), "x", limited)) < time.Hour {
		t.Error("the authority limits the rate, and is asked again soon")
	}
}
