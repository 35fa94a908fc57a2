package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func ask(h http.Handler, method, target, body string) (int, string) {
	recorder := httptest.NewRecorder()
	h.ServeHTTP(recorder, httptest.NewRequest(method, target, strings.NewReader(body)))
	text, _ := io.ReadAll(recorder.Result().Body)
	return recorder.Code, string(text)
}

func TestBodiesAreKeptByPath(t *testing.T) {
	h := newHandler()
	if code, _ := ask(h, "GET", "/o/a", ""); code != http.StatusNotFound {
		t.Errorf("before it was put: %d", code)
	}
	if code, _ := ask(h, "PUT", "/o/a", "hello"); code != http.StatusNoContent {
		t.Errorf("put: %d", code)
	}
	if code, body := ask(h, "GET", "/o/a", ""); code != http.StatusOK || body != "hello" {
		t.Errorf("get: %d %q", code, body)
	}
}

// What is posted is read and dropped.
func TestPostedBodiesAreDropped(t *testing.T) {
	h := newHandler()
	if code, body := ask(h, "POST", "/put", "hello"); code != http.StatusCreated || body != `{"size":5}` {
		t.Errorf("%d %q", code, body)
	}
	if len(h.bodies) != 0 {
		t.Error("it was kept")
	}
}

func TestBodiesThatAreRefused(t *testing.T) {
	for _, method := range []string{"PUT", "POST"} {
		if code, _ := ask(newHandler(), method, "/", strings.Repeat("x", maxBody+1)); code != http.StatusBadRequest {
			t.Errorf("%s of too much: %d", method, code)
		}
	}
}

func TestNowhereToListen(t *testing.T) {
	if err := serve("127.0.0.1:no-port"); err == nil {
		t.Error("it listens nowhere")
	}
}
