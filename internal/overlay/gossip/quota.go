package gossip

import "time"

// quota is the topics that a peer has named of late. It is guarded by the
// link's mutex.
type quota struct {
	most  int
	last  map[string]int64 // when each was named, in ms
	swept int64
}

// admit tells whether a letter on a topic may come from this peer. A topic that
// was not named for a ttl makes room for another.
func (q *quota) admit(topic string, clock int64, ttl time.Duration) bool {
	if q.renew(topic, clock) {
		return true
	}
	if len(q.last) >= q.most {
		q.sweep(clock, ttl)
	}
	if len(q.last) >= q.most {
		return false
	}
	if q.last == nil {
		q.last = map[string]int64{}
	}
	q.last[topic] = clock
	return true
}

// renew tells whether a topic was named before, and that it is again.
func (q *quota) renew(topic string, clock int64) bool {
	at, named := q.last[topic]
	if named && at != clock {
		q.last[topic] = clock
	}
	return named
}

// sweep forgets old topics, once a second at most: a peer with too many must not
// make us look through all of them for each letter.
func (q *quota) sweep(clock int64, ttl time.Duration) {
	if clock-q.swept < time.Second.Milliseconds() && clock >= q.swept {
		return
	}
	q.swept = clock
	for topic, at := range q.last {
		if clock-at > ttl.Milliseconds() {
			delete(q.last, topic)
		}
	}
}

// named tells whether the peer has named a topic before, and so may again.
func (l *link) named(topic string, clock int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.topics.renew(topic, clock)
}

// admits asks the quota of a peer.
func (l *link) admits(topic string, clock int64, ttl time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.topics.admit(topic, clock, ttl)
}
