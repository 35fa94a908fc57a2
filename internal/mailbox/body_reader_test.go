package mailbox

import (
	"context"
	"testing"
	"time"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/testkit"
	"micronode/internal/wal"
)

// A body that has moved by the time it is read, because the log was compacted
// in between, is read at its new position.
func TestABodyThatHasMoved(t *testing.T) {
	config := DefaultConfig()
	spec := config.DiskSpec(t.TempDir())
	spec.CacheBytes = -1
	d, err := OpenDisk(flow.NewInventory(), spec)
	testkit.Must(t, err)
	defer d.Close()
	if _, err := d.Send(t.Context(), Message{Box: "jobs", Body: []byte("hello"), MaxDeliveries: 1}); err != nil {
		t.Fatal(err)
	}
	reads := 0
	d.readRecord = func(ctx context.Context, at wal.Position) ([]byte, error) {
		if reads++; reads == 1 {
			if err := d.Compact(ctx); err != nil {
				t.Error(err)
			}
		}
		return d.readerPool.read(ctx, at)
	}
	got, err := d.Receive(t.Context(), "jobs", time.Minute, 0)
	if err != nil || string(got.Body) != "hello" || reads != 2 {
		t.Errorf("%q after %d reads, %v", got.Body, reads, err)
	}
}

// An intact record of another message is not delivered.
func TestABodyOfAnotherMessage(t *testing.T) {
	own := logRecord{Kind: kindSent, ID: "a-1", Body: []byte("body")}
	msg := &storedMessage{id: "a-1", size: 4}
	if body, err := decodeBody(own.encode(), msg); err != nil || string(body) != "body" {
		t.Errorf("its own: %q, %v", body, err)
	}
	for name, r := range map[string]logRecord{"another": {Kind: kindSent, ID: "a-2", Body: []byte("body")}, "a shorter one": {Kind: kindSent, ID: "a-1", Body: []byte("bod")}} {
		if body, err := decodeBody(r.encode(), msg); fault.KindOf(err) != fault.IntegrityFail {
			t.Errorf("%s: %q, %v", name, body, err)
		}
	}
}
