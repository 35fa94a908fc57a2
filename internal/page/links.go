package page

import (
	"crypto/rand"
	"sync"
	"time"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
)

// LinkLife is how long a link waits to be opened.
const LinkLife = time.Minute

// maxLinks is how many links wait at a time.
const maxLinks = 16

// Links are the links that wait to be opened. Each holds a capability, and
// works once. They are in memory only.
type Links struct {
	mu      sync.Mutex //lockblock:leaf guards a map
	waiting map[b3.Address]waitingLink
}

// waitingLink is one of them; its key is the hash of its code, so that a look-up takes
// as long for a nearly right code as for any other.
type waitingLink struct {
	session client.PageSession
	until   time.Time
}

func newLinks() *Links { return &Links{waiting: map[b3.Address]waitingLink{}} }

// Add makes a link with a capability and returns its code.
func (l *Links) Add(session client.PageSession) (code string, until time.Time, err error) {
	now := time.Now()
	code, until = rand.Text(), now.Add(LinkLife)
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, one := range l.waiting {
		if !now.Before(one.until) {
			delete(l.waiting, key)
		}
	}
	if len(l.waiting) >= maxLinks {
		return "", until, fault.New("page.link", fault.Busy, "%d links wait to be opened", maxLinks).Advise("Open one of them, or wait a minute: then they are void.")
	}
	l.waiting[b3.Of([]byte(code))] = waitingLink{session, until}
	return code, until, nil
}

// redeem returns the capability of a code, once.
func (l *Links) redeem(code string) (client.PageSession, error) {
	key := b3.Of([]byte(code))
	l.mu.Lock()
	defer l.mu.Unlock()
	one, found := l.waiting[key]
	delete(l.waiting, key)
	if !found || !time.Now().Before(one.until) {
		return client.PageSession{}, fault.New("page.session", fault.Forbidden, "the link was opened before, or is older than a minute").
			Advise("Run `micronode ui` again.")
	}
	return one.session, nil
}
