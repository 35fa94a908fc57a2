//go:build gates

package gates

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"micronode/b3"
	"micronode/client"
)

// newPack returns a new version of a pack: bytes are inserted in front, so that
// all others move, and 5 % are replaced by others, in pieces of 256 KiB.
func newPack(old []byte, seed byte) []byte {
	random := rand.New(rand.NewChaCha8([32]byte{seed}))
	fresh := make([]byte, 256<<10)
	now := []byte(fmt.Sprintf("version %d", seed))
	every := len(fresh) * 20
	for at := 0; at < len(old); at += every {
		part := old[at:min(at+every, len(old))]
		if len(part) < every {
			now = append(now, part...)
			break
		}
		cut := random.IntN(every - len(fresh))
		for i := range fresh {
			fresh[i] = byte(random.Uint32())
		}
		now = slices.Concat(now, part[:cut], fresh[:len(fresh)-random.IntN(1000)], part[cut+len(fresh):])
	}
	return now
}

// Of a new version of what a name stands for only what differs moves, as an
// object and in a folder; also when the node is killed in the middle, and when the
// old version is removed or damaged meanwhile.
func TestOnlyWhatDiffersMoves(t *testing.T) {
	const size = 192 << 20
	old := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{9}).Read(old)                                                                                          // it never fails
	giver := startWith(t, nil, []string{"--persist", t.TempDir()}, "MICRO_OVERLAY__OPEN=true", "MICRO_NODE__ADVERTISE=http://127.0.0.1:1") // so that nothing comes by HTTP, which is not counted
	addr, id := giver.overlayEndpoint()
	folder := t.TempDir()
	arguments, quick := []string{"--persist", folder}, []string{"MICRO_INDEX__CACHE__TTL=1s"}
	receiver := startWith(t, nil, arguments, quick...)
	if _, err := receiver.local().AddPeer(t.Context(), id+"@"+addr); err != nil {
		t.Fatal(err)
	}
	receiver.awaitSessions(1)

	publish := func(data []byte) b3.Address {
		t.Helper()
		object, err := giver.local().Put(t.Context(), bytes.NewReader(data), client.PutOptions{Size: int64(len(data)), Named: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := giver.local().SetName(t.Context(), "pack", object.Address); err != nil {
			t.Fatal(err)
		}
		return object.Address
	}
	// learn waits until the receiver knows what the name stands for.
	learn := func(want b3.Address) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
			resolved, err := receiver.local().Resolve(t.Context(), "name:pack@"+id, client.ResolveOptions{})
			if err == nil && resolved.Manifest == want {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("the name stands for %s, %v", resolved.Manifest, err)
			}
		}
	}
	moved := func() float64 { return giver.metric("object_stream_bytes_total", `dir="tx"`) }

	learn(publish(old))
	receiver.readUntil(b3.Of(old), old, 0, size)

	for i, c := range []struct {
		name   string
		atMost float64 // of the size
		during func(address b3.Address, data []byte) (at int64)
	}{
		{"a new version", 0.07, nil},
		{"killed half-way", 0.07 + 9.0/192, func(address b3.Address, data []byte) int64 {
			at := receiver.readUntil(address, data, 0, int64(len(data))/2)
			receiver.kill()
			<-receiver.exited
			receiver = startWith(t, nil, arguments, quick...)
			return at
		}},
		{"the old version is removed half-way", 0.65, func(address b3.Address, data []byte) int64 {
			at := receiver.readUntil(address, data, 0, int64(len(data))/2)
			if err := receiver.local().Delete(t.Context(), b3.Of(old)); err != nil {
				t.Fatal(err)
			}
			return at
		}},
	} {
		now := newPack(old, byte(i))
		address, before := publish(now), moved()
		learn(address)
		at := int64(0)
		if c.during != nil {
			at = c.during(address, now)
		}
		receiver.readUntil(address, now, at, int64(len(now)))
		share := (moved() - before) / float64(len(now))
		if share > c.atMost || share < 0.05 {
			t.Errorf("%s: %.2f %% of the bytes moved, want %.1f at most", c.name, 100*share, 100*c.atMost)
		}
		report(t, "5 % changed: "+c.name, fmt.Sprintf("at most %.1f %% move", 100*c.atMost), fmt.Sprintf("%.2f %%", 100*share))
		old = now
	}

	// The old version is damaged on the disk: what is wrong of it is fetched.
	damaged := 0
	err := filepath.WalkDir(folder, func(path string, one os.DirEntry, err error) error {
		if err != nil || !strings.HasPrefix(filepath.Base(path), b3.Of(old).String()[3:]+"-") {
			return err
		}
		file, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		damaged++
		_, err = file.WriteAt([]byte("these bytes are others"), int64(len(old)/2))
		return errors.Join(err, file.Close())
	})
	if err != nil || damaged != 1 {
		t.Fatalf("%d files, %v", damaged, err)
	}
	now := newPack(old, 100)
	learn(publish(now))
	receiver.readUntil(b3.Of(now), now, 0, int64(len(now)))
	receiver.stop(syscall.SIGTERM)
	giver.stop(syscall.SIGTERM)
}
