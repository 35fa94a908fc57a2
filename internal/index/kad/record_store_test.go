package kad

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	ds "github.com/ipfs/go-datastore"
	dsq "github.com/ipfs/go-datastore/query"
	"pgregory.net/rapid"

	"micronode/internal/testkit"
)

// modelRecord is a record of the model, which keeps them in the order of puts.
type modelRecord struct{ folder, owner, value string }

// TestRecordStoreAgainstModel puts, deletes and reads at random, and compares
// with a plain list that has the same limits.
func TestRecordStoreAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ctx := context.Background()
		const most, inFolder, ofOwner = 7, 3, 2
		s := newRecordStore(most, inFolder, ofOwner)
		var model []modelRecord
		is := func(folder, owner string) func(modelRecord) bool {
			return func(k modelRecord) bool {
				return (folder == "" || k.folder == folder) && (owner == "" || k.owner == owner)
			}
		}
		count := func(match func(modelRecord) bool) (n int) {
			for _, k := range model {
				if match(k) {
					n++
				}
			}
			return n
		}
		drop := func(match func(modelRecord) bool) {
			if i := slices.IndexFunc(model, match); i >= 0 {
				model = slices.Delete(model, i, i+1)
			}
		}
		word := rapid.SampledFrom([]string{"a", "b", "c", "d"})
		at := func(t *rapid.T) (folder, owner string, key ds.Key) {
			folder, owner = "/providers/"+word.Draw(t, "folder"), word.Draw(t, "owner")
			return folder, owner, ds.NewKey(folder + "/" + owner)
		}
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				folder, owner, key := at(t)
				value := rapid.String().Draw(t, "value")
				err := s.Put(ctx, key, []byte(value))
				known := count(is(folder, owner)) == 1
				if !known && count(is("", owner)) >= ofOwner {
					if !errors.Is(err, errProviderQuota) {
						t.Fatalf("one too many of an owner: %v", err)
					}
					return
				}
				testkit.Must(t, err)
				drop(is(folder, owner))
				if count(is(folder, "")) >= inFolder {
					drop(is(folder, ""))
				}
				if len(model) >= most {
					drop(is("", ""))
				}
				model = append(model, modelRecord{folder, owner, value})
			},
			"delete": func(t *rapid.T) {
				folder, owner, key := at(t)
				testkit.Must(t, s.Delete(ctx, key))
				drop(is(folder, owner))
			},
			"get": func(t *rapid.T) {
				folder, owner, key := at(t)
				value, err := s.Get(ctx, key)
				size, _ := s.GetSize(ctx, key)
				has, _ := s.Has(ctx, key)
				i := slices.IndexFunc(model, is(folder, owner))
				if has != (i >= 0) || (err == nil) != has {
					t.Fatalf("has %t, %v; the model %d", has, err, i)
				}
				if has && (string(value) != model[i].value || size != len(value)) || !has && size != -1 {
					t.Fatalf("value %q of %d", value, size)
				}
			},
			"": func(t *rapid.T) {
				if s.size() != len(model) {
					t.Fatalf("%d records, the model has %d", s.size(), len(model))
				}
				for _, prefix := range []string{"/providers/a", "/providers/b/", "/providers/", "/elsewhere", ""} {
					want := []string{}
					for _, k := range model {
						if folder := k.folder + "/"; prefix == "" || len(folder) >= len(prefix) && folder[:len(prefix)] == prefix {
							want = append(want, k.folder+"/"+k.owner+"="+k.value)
						}
					}
					if got := below(t, s, prefix); !slices.Equal(got, sorted(want)) {
						t.Fatalf("below %q: %q, want %q", prefix, got, want)
					}
				}
			},
		})
	})
}

func below(t *rapid.T, s *recordStore, prefix string) []string {
	results, err := s.Query(context.Background(), dsq.Query{Prefix: prefix})
	testkit.Must(t, err)
	entries, err := results.Rest()
	testkit.Must(t, err)
	got := []string{}
	for _, e := range entries {
		got = append(got, e.Key+"="+string(e.Value))
	}
	return sorted(got)
}

func sorted(list []string) []string { slices.Sort(list); return list }

func TestRecordStoreIsADatastore(t *testing.T) {
	ctx := t.Context()
	s := newRecordStore(10, 0, 0)
	batch, err := s.Batch(ctx)
	testkit.Must(t, err)
	for i := range 3 {
		if err := batch.Put(ctx, ds.NewKey(fmt.Sprint("/micronode/", i)), []byte{byte(i)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(batch.Commit(ctx), s.Sync(ctx, ds.NewKey("/")), s.Close()); err != nil || s.size() != 3 {
		t.Errorf("%d records, %v", s.size(), err)
	}
}
