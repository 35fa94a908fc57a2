package client

import (
	"io"
	"net/http"
	"testing"

	"micronode/fault"
	"micronode/internal/testkit"
)

func TestWatchingANode(t *testing.T) {
	const restarted = "event: node\ndata: {\"type\":\"service_restarted\",\"at\":\"2026-01-02T03:04:05Z\",\"name\":\"edge worker\"}\n\n"
	c, _ := scripted(t, Options{}, text(restarted+"event: lagged\ndata: {\"missed\":7}\n\nevent: new\ndata: x\n\n"+restarted))
	w, err := c.WatchNode(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for _, missed := range []uint64{0, 7, 0} {
		happened, err := w.Next(t.Context())
		lag, behind := err.(*Lagged)
		if behind != (missed > 0) || behind && lag.Missed != missed || !behind && (happened.Name != "edge worker" || happened.At.Year() != 2026) {
			t.Errorf("%+v, %v", happened, err)
		}
	}
	_, err = w.Next(t.Context())
	testkit.WantKind(t, err, fault.BrokenPipe, "the end")

	c, _ = scripted(t, Options{}, statusAnswer(403))
	_, err = c.WatchNode(t.Context())
	testkit.WantKind(t, err, fault.Forbidden, "a stranger")
}

func TestEndingANode(t *testing.T) {
	accepted := statusAnswer(202)
	var sent string
	c, _ := scripted(t, Options{}, func(r *http.Request) (*http.Response, error) {
		body, _ := io.ReadAll(r.Body)
		sent = r.Method + " " + r.URL.Path + " " + string(body)
		return accepted(r)
	})
	if err := c.Shutdown(t.Context(), "new kernel"); err != nil || sent != `POST /admin/shutdown {"reason":"new kernel"}` {
		t.Errorf("%v; sent %s", err, sent)
	}
}
