package observe

import (
	"context"
	"net/http/httptest"
	"testing"

	"micronode/internal/corr"
)

func TestCarryCorrID(t *testing.T) {
	carry := func(header string, ctx context.Context) (answer, carried string) {
		r := httptest.NewRequest("GET", "/", nil).WithContext(ctx)
		r.Header.Set(corr.Header, header)
		w := httptest.NewRecorder()
		r = ensureCorrID(w, r)
		return w.Header().Get(corr.Header), corr.From(r.Context())
	}
	if answer, carried := carry("client-chose-1", context.Background()); answer != "client-chose-1" || carried != answer {
		t.Errorf("a well-formed ID was not taken over: %q, %q", answer, carried)
	}
	if answer, carried := carry("bad id", context.Background()); len(answer) != 32 || carried != answer {
		t.Errorf("a malformed ID was not replaced: %q, %q", answer, carried)
	}
	marked := corr.With(context.Background(), "from-ingress")
	if answer, carried := carry("client-chose-1", marked); answer != "from-ingress" || carried != answer {
		t.Errorf("the ID that the ctx carries must win: %q, %q", answer, carried)
	}
}
