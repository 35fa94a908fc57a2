package store

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/testkit"
)

// A damaged object is reported with where its file went, and is listed until it
// is here again or is deleted, also after a restart.
func TestADamagedObjectIsListed(t *testing.T) {
	folder := t.TempDir()
	var mu sync.Mutex
	var reported []Damage
	spec := DiskSpec{Folder: folder, Damaged: func(one Damage) {
		mu.Lock()
		defer mu.Unlock()
		reported = append(reported, one)
	}}
	d, err := OpenDisk(spec)
	testkit.Must(t, err)
	kept, lost := random(1, 300_000), random(2, 100)
	damage := func(data []byte, class Class) Damage {
		t.Helper()
		a := mustPut(t, d, data, class)
		flip(t, fileOf(t, d, a), 50)
		h := mustOpen(t, d, a)
		if _, err := h.WriteTo(io.Discard); fault.KindOf(err) != fault.IntegrityFail {
			t.Fatalf("it is read: %v", err)
		}
		_ = h.Close()
		all := d.Damaged()
		if len(all) == 0 {
			t.Fatal("it is not listed")
		}
		one := all[len(all)-1]
		if info, err := os.Stat(one.Path); err != nil || info.Size() != fileLength(int64(len(data))) || filepath.Dir(one.Path) != filepath.Join(folder, quarantineName) {
			t.Errorf("its file is not at %s: %v", one.Path, err)
		}
		if one.Address != a || one.Size != int64(len(data)) || one.Class != class {
			t.Errorf("listed is %+v", one)
		}
		return one
	}
	damage(kept, Pinned)
	gone := damage(lost, Named)
	if len(reported) != 2 || reported[1] != gone {
		t.Errorf("reported are %+v", reported)
	}

	testkit.Must(t, d.Close())
	d, err = OpenDisk(spec)
	testkit.Must(t, err)
	defer d.Close()
	if all := d.Damaged(); len(all) != 2 || all[0].Path == "" {
		t.Errorf("after a restart: %+v", all)
	}
	mustPut(t, d, kept, Pinned)
	if all := d.Damaged(); len(all) != 1 || all[0].Address != gone.Address {
		t.Errorf("after one is here again: %+v", all)
	}
	testkit.Must(t, d.Delete(context.Background(), gone.Address))
	if _, err := os.Stat(gone.Path); !os.IsNotExist(err) {
		t.Errorf("its file is still in quarantine: %v", err)
	}
	if all := d.Damaged(); len(all) != 0 {
		t.Errorf("after it was deleted: %+v", all)
	}
	if err := d.Delete(context.Background(), gone.Address); fault.KindOf(err) != fault.NotFound {
		t.Errorf("deleted again: %v", err)
	}

	// With an object that is here again goes the file of when it was not.
	testkit.Must(t, d.Delete(context.Background(), b3.Of(kept)))
	if left, err := os.ReadDir(filepath.Join(folder, quarantineName)); err != nil || len(left) != 0 {
		t.Errorf("%d files are left in quarantine, %v", len(left), err)
	}
}

// A file that somebody removes is a damage, too, and so is one of a wrong length
// at the start.
func TestAFileThatIsGoneIsListed(t *testing.T) {
	d := testDisk(t, DiskSpec{})
	defer d.Close()
	a := mustPut(t, d, random(1, 5000), Pinned)
	testkit.Must(t, os.Remove(fileOf(t, d, a)))
	if _, err := d.Open(context.Background(), a); fault.KindOf(err) != fault.NotFound {
		t.Fatal(err)
	}
	if all := d.Damaged(); len(all) != 1 || all[0].Address != a || all[0].Path != "" {
		t.Errorf("%+v", all)
	}
	cut := mustPut(t, d, random(2, 5000), Named)
	testkit.Must(t, os.Truncate(fileOf(t, d, cut), 10))
	folder := d.layout.root
	testkit.Must(t, d.Close())
	again, err := OpenDisk(DiskSpec{Folder: folder})
	testkit.Must(t, err)
	defer again.Close()
	if all := again.Damaged(); len(all) != 1 || all[0].Address != cut || all[0].Path == "" {
		t.Errorf("%+v", all)
	}
}

// However many are damaged, what is remembered is bounded.
func TestDamagesAreBounded(t *testing.T) {
	var m damages
	for i := range 2 * maxDamages {
		m.add(Damage{Address: b3.Of([]byte{byte(i), byte(i >> 8)})})
	}
	if n := len(m.list()); n != maxDamages {
		t.Errorf("%d are remembered", n)
	}
}
