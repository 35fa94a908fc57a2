package cache

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"micronode/b3"
	"micronode/internal/index/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var noon = time.UnixMilli(1_800_000_000_000).UTC()

// generousSpec is a spec with limits that are never reached, and the TTLs of
// the contract.
var generousSpec = Spec{Entries: 100_000, Bytes: 64 << 20, TTL: 10 * time.Second, NegativeTTL: 2 * time.Second, StaleTTL: 5 * time.Minute}

// positiveEntry is an answer found at a time, with a provider.
func positiveEntry(id string, at time.Time) Entry {
	return Entry{
		Answer: record.Answer{Providers: []record.Provider{{
			ID: id, Overlay: []string{id + ".example:9000"}, HTTP: []string{"https://" + id + ".example:443"}, Region: "eu", Seen: at, Source: record.DHT,
		}}},
		Source: record.DHT, At: at,
	}
}

func negativeEntry(at time.Time) Entry {
	return Entry{Source: record.DHT, At: at, Negative: true}
}

// nameEntry is an answer with a name record.
func nameEntry(at, expires time.Time) Entry {
	return Entry{Source: record.Peer, At: at, Answer: record.Answer{NamedBy: record.Peer, Name: &record.Name{
		Name: "docs", Key: make([]byte, 32), Manifest: b3.Of(nil), Issued: at, Expires: expires, Sig: make([]byte, 64),
	}}}
}

func keyOf(n int) Key { return Key(b3.Of(fmt.Append(nil, n)).String()) }

// heapBytes is what a value retains outside itself, computed independently of
// the package: all strings, and the capacity of all lists.
func heapBytes(v reflect.Value) int64 {
	var sum int64
	switch v.Kind() {
	case reflect.String:
		return int64(v.Len())
	case reflect.Slice:
		sum = int64(v.Cap()) * int64(v.Type().Elem().Size())
		for i := range v.Len() {
			sum += heapBytes(v.Index(i))
		}
	case reflect.Pointer:
		if !v.IsNil() && v.Type() != reflect.TypeFor[*time.Location]() {
			sum = int64(v.Type().Elem().Size()) + heapBytes(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			sum += heapBytes(v.Field(i))
		}
	}
	return sum
}

// entryHeapBytes is that for an entry under its key, as Get returns it.
func entryHeapBytes(key Key, e Entry) int64 {
	return int64(len(key)) + int64(reflect.TypeFor[Entry]().Size()) + heapBytes(reflect.ValueOf(e))
}

// large is an entry of about so many bytes.
func large(bytes int, at time.Time) Entry {
	e := positiveEntry("a", at)
	e.Answer.Providers[0].Other = []string{"/" + strings.Repeat("x", bytes)}
	return e
}
