package store

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"micronode/b3"
	"micronode/client"
)

// The list has every object once, in pages, and rejects what is no page.
func TestObjectsAreListedInPages(t *testing.T) {
	f := newHTTPFixture(t, NewRAM(RAMSpec{Budget: 1 << 20, MaxObject: 1 << 16}), false)
	want := map[string]int64{}
	for i := range 5 {
		text := strings.Repeat("x", i+1)
		if _, _, err := f.store.Put(t.Context(), strings.NewReader(text), PutOptions{Size: Unknown, Class: Pinned}); err != nil {
			t.Fatal(err)
		}
		want[b3.Of([]byte(text)).String()] = int64(len(text))
	}
	after, pages := "", 0
	for ; pages < 10; pages++ {
		query := "limit=2"
		if after != "" {
			query += "&after=" + after
		}
		answer, err := f.client.Get(f.url + "/o?" + query)
		if err != nil {
			t.Fatal(err)
		}
		var page client.ObjectList
		err = json.NewDecoder(answer.Body).Decode(&page)
		answer.Body.Close()
		if err != nil || answer.StatusCode != http.StatusOK || answer.Header.Get("Cache-Control") != "no-store" {
			t.Fatal(err, answer.Status, answer.Header)
		}
		for _, one := range page.Objects {
			if size, known := want[one.Address.String()]; !known || size != one.Size || one.Class != Pinned.String() {
				t.Errorf("%+v", one)
			}
			delete(want, one.Address.String())
		}
		if after = page.Next; after == "" {
			break
		}
	}
	if len(want) != 0 || pages != 2 {
		t.Errorf("%d are missing after %d pages", len(want), pages)
	}
	for _, query := range []string{"limit=0", "limit=1025", "limit=x", "after=b3:zz"} {
		answer, err := f.client.Get(f.url + "/o?" + query)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %s", query, answer.Status)
		}
	}
}
