package certificate

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"micronode/fault"
	"micronode/internal/flow"
)

// Spec is what a source is made of.
type Spec struct {
	Names     []string
	Directory string         // URL of the ACME directory of the authority
	Email     string         // where the authority writes to; empty for nowhere
	PlainHTTP bool           // there is a listener without TLS, which can show a proof
	Roots     *x509.CertPool // for the directory's own certificate; nil: the system's

	// Load and Save keep keys and certificates, by names that are file names.
	// Load fails with fault.NotFound for what was never saved. Nil: they are
	// kept in memory only.
	Load func(name string) ([]byte, error)
	Save func(name string, data []byte) error

	// OnChange is called with the states of all names when one has changed, on
	// the goroutine of Serve: it must not block.
	OnChange func([]State)
}

// State is how one name fares.
type State struct {
	Name    string
	Expires time.Time // of the certificate in use; zero if there is none
	Issuer  string
	Err     error     // why there is none, or no newer one; nil if all is well
	Next    time.Time // when the next attempt begins
}

// challengeKind is how a name is proved.
type challengeKind string

const (
	byTLS  challengeKind = "tls-alpn-01"
	byHTTP challengeKind = "http-01"
)

// alpnProto is the protocol of a handshake that proves a name (RFC 8737).
const alpnProto = "acme-tls/1"

// Source is the certificates of a node. Its methods may be called concurrently;
// Serve is called once at a time.
type Source struct {
	// set at construction
	spec   Spec
	obtain func(ctx context.Context, name string, kind challengeKind) (*tls.Certificate, error)

	inUse atomic.Pointer[map[string]*tls.Certificate] // replaced by Serve

	// owned by Serve
	states   map[string]*State
	attempts map[string]int // that failed, since the last success
	unsaved  map[string]int // certificates in use that could not be kept: how often, one after the other

	mu     sync.Mutex //lockblock:leaf guards two small maps
	proofs map[string]*tls.Certificate
	tokens map[string]string
}

// New makes a source, with the certificates that were kept.
func New(spec Spec) (*Source, error) {
	s := &Source{spec: spec, states: map[string]*State{}, attempts: map[string]int{}, unsaved: map[string]int{}, proofs: map[string]*tls.Certificate{}, tokens: map[string]string{}}
	s.inUse.Store(&map[string]*tls.Certificate{})
	if s.spec.OnChange == nil {
		s.spec.OnChange = func([]State) {}
	}
	for _, name := range spec.Names {
		s.states[name] = &State{Name: name, Err: fault.New(opObtain, fault.NotReady, "no certificate for %s yet", name).Advise("Wait until it is obtained.")}
		kept, err := s.loadCertificate(name)
		switch {
		case err == nil:
			s.use(name, kept)
		case fault.KindOf(err) != fault.NotFound:
			return nil, err
		}
	}
	a := &authority{spec: spec, source: s}
	s.obtain = a.obtain
	return s, nil
}

// Names are those for which there are certificates, or will be.
func (s *Source) Names() []string { return slices.Clone(s.spec.Names) }

// States are how the names fare, in their order. It is for the time before
// Serve; later changes go to OnChange.
func (s *Source) States() []State {
	list := make([]State, 0, len(s.states))
	for _, name := range s.spec.Names {
		list = append(list, *s.states[name])
	}
	return list
}

// TLS completes a config with the certificates of the source.
func (s *Source) TLS(base *tls.Config) *tls.Config {
	base.GetCertificate = s.certificate
	base.NextProtos = append(slices.Clone(base.NextProtos), alpnProto)
	return base
}

// certificate finds the certificate of a handshake: the one of its name, or the
// proof for the authority.
func (s *Source) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	name := strings.ToLower(strings.TrimSuffix(hello.ServerName, "."))
	if slices.Equal(hello.SupportedProtos, []string{alpnProto}) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if proof := s.proofs[name]; proof != nil {
			return proof, nil
		}
		return nil, fault.New("tls.certificate", fault.NotFound, "no proof of this name is asked for")
	}
	all := *s.inUse.Load()
	if found := all[name]; found != nil {
		return found, nil
	}
	if name == "" && len(s.spec.Names) > 0 { // a client that names nobody, most often by address
		if found := all[s.spec.Names[0]]; found != nil {
			return found, nil
		}
	}
	return nil, fault.New("tls.certificate", fault.NotReady, "there is no certificate for this name")
}

// Token returns the proof that the authority asks for at
// /.well-known/acme-challenge/.
func (s *Source) Token(token string) (proof string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	proof, ok = s.tokens[token]
	return proof, ok
}

// use puts a certificate in force. Handshakes that have begun keep the old one.
func (s *Source) use(name string, c *tls.Certificate) {
	all := maps.Clone(*s.inUse.Load())
	all[name] = c
	s.inUse.Store(&all)
	state := s.states[name]
	state.Expires, state.Issuer, state.Err, state.Next = c.Leaf.NotAfter, c.Leaf.Issuer.String(), nil, renewalOf(c.Leaf)
}

// renewalOf is when a certificate has used two thirds of its time.
func renewalOf(leaf *x509.Certificate) time.Time {
	return leaf.NotBefore.Add(leaf.NotAfter.Sub(leaf.NotBefore) * 2 / 3)
}

// Pauses after failures. The authority limits how often a name may fail, so a
// refusal of it is followed by longer ones than a failure to reach it.
var (
	refusedPause = flow.Backoff{Min: time.Minute, First: 2 * time.Minute, Max: 2 * time.Hour}
	awayPause    = flow.Backoff{Min: 2 * time.Second, First: 4 * time.Second, Max: 10 * time.Minute}
	savePause    = flow.Backoff{Min: time.Second, First: 2 * time.Second, Max: 10 * time.Minute}
)

// attemptTimeout is the deadline of one attempt: an authority looks at a name
// from several places, one after the other.
const attemptTimeout = 3 * time.Minute

// Serve obtains and renews certificates until ctx ends.
func (s *Source) Serve(ctx context.Context) error {
	s.spec.OnChange(s.States())
	for {
		next := time.Now().Add(24 * time.Hour)
		for _, name := range s.spec.Names {
			state := s.states[name]
			if !state.Next.After(time.Now()) {
				s.step(ctx, state)
				s.spec.OnChange(s.States())
			}
			if state.Next.Before(next) {
				next = state.Next
			}
		}
		if err := flow.Sleep(ctx, max(time.Until(next), 0)); err != nil {
			return err
		}
	}
}

// step does what is due for a name: to keep the certificate in use, if that has
// failed, and otherwise to obtain one.
func (s *Source) step(ctx context.Context, state *State) {
	if inUse := (*s.inUse.Load())[state.Name]; s.unsaved[state.Name] > 0 && inUse != nil && renewalOf(inUse.Leaf).After(time.Now()) {
		s.keep(state, inUse)
		return
	}
	s.attempt(ctx, state)
}

// keep saves the certificate in use. If it cannot be saved, the next start would
// need another one from the authority, which gives a name only a few; so it is
// tried again soon.
func (s *Source) keep(state *State, c *tls.Certificate) {
	state.Err, state.Next = nil, renewalOf(c.Leaf)
	err := s.saveCertificate(state.Name, c)
	if err == nil {
		delete(s.unsaved, state.Name)
		return
	}
	state.Err = &fault.Error{Op: opKept, Kind: fault.KindOf(err), Detail: "the certificate of " + state.Name + " is in use, but could not be kept: " + fault.DetailOf(err), Err: err,
		Next: cmp.Or(fault.NextOf(err), "Make the folder certificates writable.") + " It is tried again soon; if the node is restarted before, it has to obtain another one."}
	if again := time.Now().Add(savePause.Delay(s.unsaved[state.Name])); again.Before(state.Next) {
		state.Next = again
	}
	s.unsaved[state.Name]++
}

// attempt obtains the certificate of a name, by one kind of proof and the next
// time by the other.
func (s *Source) attempt(ctx context.Context, state *State) {
	kinds := []challengeKind{byTLS}
	if s.spec.PlainHTTP {
		kinds = append(kinds, byHTTP)
	}
	n := s.attempts[state.Name]
	limited, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	obtained, err := s.obtain(limited, state.Name, kinds[n%len(kinds)])
	if err == nil {
		s.use(state.Name, obtained) // also if it cannot be kept
		s.attempts[state.Name] = 0
		delete(s.unsaved, state.Name)
		s.keep(state, obtained)
		return
	}
	pause := awayPause.Delay(n)
	if kind := fault.KindOf(err); kind != fault.UpstreamFailed && kind != fault.Timeout {
		pause = refusedPause.Delay(n / len(kinds)) // the other kind of proof may do
	}
	s.attempts[state.Name]++
	state.Err, state.Next = err, time.Now().Add(max(pause, fault.RetryAfterOf(err)))
}
