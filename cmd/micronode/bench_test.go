package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"micronode/b3"
	"micronode/fault"
)

// The flags reach the load, and its result and its errors reach the user. What
// it measures is tested where it is done.
func TestBench(t *testing.T) {
	var interrupt context.CancelCauseFunc
	left := map[string]bool{}
	fakeNode(t, map[string]http.HandlerFunc{
		"GET /admin/status": respondJSON(http.StatusOK, `{"peer_id":"abc","version":"1.0"}`),
		"POST /put": func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			address := b3.Of(body).String()
			if left[address] = true; interrupt != nil {
				interrupt(&interruptError{syscall.SIGINT})
			}
			respondJSON(http.StatusCreated, fmt.Sprintf(`{"address":%q,"size":%d}`, address, len(body)))(w, r)
		},
		"GET /o/{b3}": func(w http.ResponseWriter, _ *http.Request) {
			reply(w, 0, fault.New("fake", fault.Forbidden, "not you"))
		},
		"DELETE /o/{b3}": func(_ http.ResponseWriter, r *http.Request) { delete(left, r.PathValue("b3")) },
	})
	s := newTestConsole(t)
	s.expect(t, t.Context(), fault.Forbidden.Exit(), []string{"bench", "--time", "1h", "--count", "3", "--connections", "1", "--size", "5"}, "micronode: get: not you")
	if got := s.stdout.String(); !strings.HasPrefix(got, "1 connections for 3600s or 3 calls of a kind, objects of 5B, messages of 5B\n\n  what ") || !strings.Contains(got, "1 Forbidden") {
		t.Errorf("it printed\n%s", got)
	}

	var ctx context.Context
	ctx, interrupt = context.WithCancelCause(t.Context())
	defer interrupt(nil)
	s = newTestConsole(t)
	s.errTerminal = true
	s.expect(t, ctx, fault.Canceled.Exit(), []string{"bench", "--time", "1h", "--connections", "1"},
		"micronode: bench: 1 connections load the node abc for 1h0m0s; Ctrl-C stops it and cleans up\n", "stopped by SIGINT\nNo work was left half done.")
	if s.stdout.Len() > 0 || len(left) > 0 {
		t.Errorf("it printed %q, and left %v", &s.stdout, left)
	}
}

func TestBenchThatCannotBe(t *testing.T) {
	fakeNode(t, map[string]http.HandlerFunc{"GET /admin/status": respondJSON(http.StatusOK, `{"store":{"budget":1000}}`)})
	for args, wantStderr := range map[string]string{
		"--time 0s":                     "above zero",
		"--time 25h":                    "24h0m0s or less",
		"--count 0":                     "from 1 to 1000000000",
		"--connections 0":               "from 1 to 256",
		"--connections 257":             "from 1 to 256",
		"--connections 256 --size 1MiB": "256 concurrent objects of 1MiB exceed 64MiB",
	} {
		newTestConsole(t).expect(t, t.Context(), fault.Malformed.Exit(), append([]string{"bench"}, strings.Fields(args)...), wantStderr)
	}
	newTestConsole(t).expect(t, t.Context(), fault.StoreFull.Exit(), []string{"bench"}, "too little free space for 8 objects of 16KiB")
	for _, size := range []string{"", "0", "1MB", "x", "16KiBs", "99999999999999999999", "-1", "68719476736MiB"} {
		newTestConsole(t).expect(t, t.Context(), exitUsage, []string{"bench", "--size=" + size})
	}
	fakeNode(t, nil)
	newTestConsole(t).expect(t, t.Context(), fault.NotFound.Exit(), []string{"bench"})
	t.Setenv("MICRO_URL", "ftp://nowhere")
	newTestConsole(t).expect(t, t.Context(), fault.Malformed.Exit(), []string{"bench"}, "does not begin with http")
}
