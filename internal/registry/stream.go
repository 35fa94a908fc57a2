package registry

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/ingress"
	"micronode/internal/registry/ledger"
	"micronode/internal/registry/tree"
)

// maxReplay is how many versions are replayed one by one to a client that reconnects.
// One that missed more gets a lag event.
const maxReplay = 1024

func (r *Registry) serveStream(w http.ResponseWriter, req *http.Request) error {
	s, err := r.newSubscriber(req.Header.Get("Last-Event-ID"))
	if err != nil {
		return err
	}
	defer s.close()
	if ingress.IsUpgrade(req) {
		return ingress.WebSocket(w, req, s.next)
	}
	return ingress.SSE(w, req, s.next)
}

// subscriber is one client of the stream. It belongs to the goroutine of its
// request.
type subscriber struct {
	registry       *Registry
	reader         *flow.Reader[Committed]
	lastSent       *uint64 // the last version that the client has; nil if it has none
	replayUntil    uint64  // versions up to this one are read from the log, later ones from the bus
	foreignVersion bool    // the client's last version does not exist here: it is of another log

	cachedTile   uint64 // the tile of the tree that was read last
	cachedLeaves []byte // its leaves; nil before the first
}

// newSubscriber subscribes first and reads the head then, so that no version falls
// between the two. The client has seen all up to last, or begins now if that is empty.
func (r *Registry) newSubscriber(last string) (*subscriber, error) {
	reader, err := r.stream.Subscribe("stream", nil)
	if err != nil {
		return nil, err
	}
	s := &subscriber{registry: r, reader: reader}
	r.metrics.subscribers.Inc()
	if err := s.seek(last); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// seek finds where the events of the client begin: after the last one that it has,
// or after the head.
func (s *subscriber) seek(last string) error {
	head, any := s.registry.Head()
	if any {
		s.lastSent, s.replayUntil = &head.Version, head.Version
	}
	if last == "" {
		return nil
	}
	version, err := parseVersion("registry.stream", last)
	if err != nil {
		return err
	}
	if s.foreignVersion = !any || version > head.Version; !s.foreignVersion {
		s.lastSent = &version
	}
	return nil
}

func (s *subscriber) close() {
	s.reader.Close()
	s.registry.metrics.subscribers.Dec()
}

// next returns the next event for the client: first what it missed, then new commits.
func (s *subscriber) next(ctx context.Context) (ingress.Event, error) {
	if s.foreignVersion { // a registry in memory started again; a client that waits for the old numbers would wait for a long time
		s.foreignVersion = false
		return ingress.Event{}, &flow.LagError{Bus: "stream", Consumer: "stream"}
	}
	if s.lastSent != nil && *s.lastSent < s.replayUntil {
		return s.replay(ctx)
	}
	for {
		committed, err := s.reader.Recv(ctx)
		if errors.Is(err, fault.Lagging) && s.lastSent != nil {
			continue // the next version shows how many are missing, so that the lag is reported once
		}
		if err != nil {
			return ingress.Event{}, err
		}
		if s.lastSent != nil && committed.Version <= *s.lastSent {
			continue
		}
		if s.lastSent != nil && committed.Version > *s.lastSent+1 { // the publisher lost some, or another node wrote them
			missed := committed.Version - *s.lastSent - 1
			*s.lastSent = committed.Version - 1
			s.replayUntil = committed.Version // this one is read from the log
			return ingress.Event{}, &flow.LagError{Bus: "stream", Consumer: "stream", Missed: missed}
		}
		return s.updatedEvent(committed)
	}
}

// replay returns the event of one version from the log.
func (s *subscriber) replay(ctx context.Context) (ingress.Event, error) {
	if missed := s.replayUntil - *s.lastSent; missed > maxReplay {
		*s.lastSent = s.replayUntil - 1
		return ingress.Event{}, &flow.LagError{Bus: "stream", Consumer: "stream", Missed: missed - 1}
	}
	record, header, err := s.readRecord(ctx, *s.lastSent+1)
	if err != nil { // the version was pruned, or is not what was committed
		missed := s.replayUntil - *s.lastSent - 1
		*s.lastSent = s.replayUntil
		return ingress.Event{}, &flow.LagError{Bus: "stream", Consumer: "stream", Missed: missed + 1}
	}
	return s.updatedEvent(Committed{Version: record.Version, Hash: record.Head().Hash, At: header.CommittedAt})
}

// readRecord returns one version, verified to be the one that was committed. It caches
// the leaves of a tile, because the next version is most likely in it too, and many
// subscribers catch up at once.
func (s *subscriber) readRecord(ctx context.Context, version uint64) (record ledger.Record, header ledger.Header, err error) {
	defer func() { s.registry.metrics.countFailure("read", err) }()
	if record, err = s.registry.journal.Read(ctx, version); err != nil {
		return record, header, err
	}
	if header, err = record.VerifyHashes(); err != nil {
		return record, header, fault.WrapKind("registry.read", fault.IntegrityFail, err)
	}
	n, within := version/tree.TileWidth, version%tree.TileWidth
	if s.cachedTile != n || uint64(len(s.cachedLeaves)) <= within*tree.HashSize {
		v := s.registry.view.Load()
		width := min(tree.TileWidth, v.tree.Size()-n*tree.TileWidth)
		if s.cachedLeaves, err = s.registry.verifiedLeaves(ctx, v, n, int(width)); err != nil {
			s.cachedLeaves = nil
			return record, header, err
		}
		s.cachedTile = n
	}
	return record, header, checkLeaf(record, s.cachedLeaves)
}

// updatedEvent makes the event of a version.
func (s *subscriber) updatedEvent(committed Committed) (ingress.Event, error) {
	version := committed.Version
	s.lastSent = &version
	data, err := json.Marshal(committed)
	if err != nil {
		return ingress.Event{}, fault.Wrap("registry.stream", err)
	}
	return ingress.Event{Name: "RegistryUpdated", ID: strconv.FormatUint(version, 10), Data: data}, nil
}
