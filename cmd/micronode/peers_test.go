package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/config"
	"micronode/internal/node"
)

func TestPeersAreShown(t *testing.T) {
	const peers = `{"peers":[
		{"id":"abc","addr":"10.0.0.1:9500","state":"active","pq":true,"rtt_ms":1.26,"dialed":true,"since":"2026-01-02T03:04:05Z"},
		{"id":"def","addr":"10.0.0.2:9500","state":"busy","pq":false,"rtt_ms":0,"dialed":false},
		{"id":"ghi","addr":"10.0.0.3:9500","state":"backoff","pq":true,"rtt_ms":5,"dialed":true,"last_error":"refused\u001b[2J","retry_in_ms":1500},
		{"id":"jkl","addr":"10.0.0.4:9500","state":"dialing","pq":false,"rtt_ms":0,"dialed":true,"last_error":"reset"}]}`
	const table = `  id   address        state    pq   rtt
  abc  10.0.0.1:9500  active   yes  1.3 ms
  def  10.0.0.2:9500  busy     no   -
  ghi  10.0.0.3:9500  backoff  -    -
  jkl  10.0.0.4:9500  dialing  -    -

  ghi: refused\x1b[2J
  The next attempt is in 1.5s.

  jkl: reset
`
	fakeNode(t, map[string]http.HandlerFunc{"GET /overlay/peers": respondJSON(http.StatusOK, peers)})
	for _, args := range [][]string{{"peers"}, {"peers", "list"}} {
		s := newTestConsole(t)
		s.expect(t, t.Context(), 0, args)
		if s.stdout.String() != table {
			t.Errorf("%q shows\n%s", args, &s.stdout)
		}
	}
	s := newTestConsole(t)
	s.expect(t, t.Context(), 0, []string{"peers", "--json"})
	var list []map[string]any
	if err := json.Unmarshal(s.stdout.Bytes(), &list); err != nil || len(list) != 4 || list[0]["rtt_ms"] != 1.26 || list[0]["pq"] != true || list[2]["state"] != "backoff" {
		t.Errorf("%v: %s", err, &s.stdout)
	}
	fakeNode(t, map[string]http.HandlerFunc{"GET /overlay/peers": respondJSON(http.StatusOK, `{"peers":null}`)})
	s = newTestConsole(t)
	s.expect(t, t.Context(), 0, []string{"peers", "--json"})
	if s.stdout.String() != "[]\n" {
		t.Errorf("no peers are %q", &s.stdout)
	}
	s = newTestConsole(t)
	s.expect(t, t.Context(), 0, []string{"peers"}, "the node has no peers\nAdd one: ")
	if s.stdout.Len() > 0 {
		t.Errorf("it printed %q", &s.stdout)
	}
	fakeNode(t, nil)
	newTestConsole(t).expect(t, t.Context(), fault.NotFound.Exit(), []string{"peers"})
}

// Who was introduced is shown by introducer, and who is nearby with the command that
// accepts it. No text of a stranger reaches the terminal as it is.
func TestFriendsOfFriendsAndNodesNearbyAreShown(t *testing.T) {
	fakeNode(t, map[string]http.HandlerFunc{
		"GET /overlay/peers":  respondJSON(http.StatusOK, `{"peers":[{"id":"abc","state":"active","introduced_by":"hub"},{"id":"def","state":"active"},{"id":"ghi","state":"active","introduced_by":"hub"}]}`),
		"GET /overlay/knocks": respondJSON(http.StatusOK, `{"knocks":[]}`),
		"GET /overlay/nearby": respondJSON(http.StatusOK, `{"nearby":[{"id":"jkl","addrs":["10.0.0.9:9500","10.0.1.9:9500\u001b[2J"],"last":"2026-01-02T03:04:05Z","accept":"micronode peers accept jkl"}]}`),
	})
	s := newTestConsole(t)
	s.expect(t, t.Context(), 0, []string{"peers"})
	for _, want := range []string{"\n  introduced by hub:\n    abc\n    ghi\n", "\n  jkl is nearby, at 10.0.0.9:9500, 10.0.1.9:9500\\x1b[2J\n", "accept this node there: micronode peers accept jkl\n"} {
		if !strings.Contains(s.stdout.String(), want) {
			t.Errorf("%q is not in\n%s", want, &s.stdout)
		}
	}
	s = newTestConsole(t)
	s.expect(t, t.Context(), 0, []string{"peers", "nearby"})
	if text := s.stdout.String(); !strings.Contains(text, "jkl") || strings.Contains(text, "\x1b") {
		t.Errorf("%q", text)
	}
	fakeNode(t, map[string]http.HandlerFunc{"GET /overlay/nearby": respondJSON(http.StatusOK, `{"nearby":null}`)})
	newTestConsole(t).expect(t, t.Context(), 0, []string{"peers", "nearby"}, "no other node is nearby")
	s = newTestConsole(t)
	s.expect(t, t.Context(), 0, []string{"peers", "nearby", "--json"})
	if s.stdout.String() != "[]\n" {
		t.Errorf("nobody nearby is %q", &s.stdout)
	}
}

func TestPeersAreAddedAndRemoved(t *testing.T) {
	var asked []string
	fakeNode(t, map[string]http.HandlerFunc{
		"POST /overlay/peers": func(w http.ResponseWriter, r *http.Request) {
			var ask client.PeerRequest
			_ = json.NewDecoder(r.Body).Decode(&ask)
			asked = append(asked, "+"+ask.Peer)
			respondJSON(http.StatusCreated, fmt.Sprintf(`{"id":%q,"addr":"h:1","state":"dialing"}`, someID))(w, r)
		},
		"DELETE /overlay/peers/{id}": func(w http.ResponseWriter, r *http.Request) {
			asked = append(asked, "-"+r.PathValue("id"))
			if len(asked) > 3 {
				respondProblem(fault.Conflict, "it is in the configuration")(w, r)
			}
		},
	})
	s := newTestConsole(t)
	s.expect(t, t.Context(), 0, []string{"peers", "add", someID + "@h:1"})
	s.expect(t, t.Context(), 0, []string{"peers", "add", someID + "@[::1]:1", "--json"})
	if want := someID + "  dialing\n" + `{"id":"` + someID + `","addr":"h:1","state":"dialing","pq":false,"rtt_ms":0,"dialed":false}` + "\n"; s.stdout.String() != want {
		t.Errorf("it printed %s", &s.stdout)
	}
	s = newTestConsole(t)
	s.expect(t, t.Context(), 0, []string{"peers", "rm", someID + "@h:1", "--json"})
	if want := `{"id":"` + someID + `","removed":true}` + "\n"; s.stdout.String() != want {
		t.Errorf("it printed %s", &s.stdout)
	}
	s = newTestConsole(t)
	s.expect(t, t.Context(), fault.Conflict.Exit(), []string{"peers", "rm", someID}, someID+": it is in the configuration")
	if s.stdout.Len() > 0 {
		t.Errorf("it printed %q", &s.stdout)
	}
	if want := []string{"+" + someID + "@h:1", "+" + someID + "@[::1]:1", "-" + someID, "-" + someID}; !slices.Equal(asked, want) {
		t.Errorf("asked for %q", asked)
	}
	for _, bad := range []string{"x", someID, "x@h:1", someID + "@h", someID + "@h:", "@h:1"} {
		newTestConsole(t).expect(t, t.Context(), fault.Malformed.Exit(), []string{"peers", "add", bad}, bad)
	}
	newTestConsole(t).expect(t, t.Context(), fault.Malformed.Exit(), []string{"peers", "rm", "x"}, `"x" is not a peer ID`)
	if len(asked) != 4 {
		t.Errorf("what cannot be a peer was asked for: %q", asked)
	}
	fakeNode(t, nil)
	newTestConsole(t).expect(t, t.Context(), fault.NotFound.Exit(), []string{"peers", "add", someID + "@h:1"})
}

func TestAnObjectOfAPeer(t *testing.T) {
	content := []byte("from afar")
	address := b3.Of(content).String()
	var asked []string
	there := false
	fakeNode(t, map[string]http.HandlerFunc{
		"POST /overlay/fetch/{address}": func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			asked = append(asked, string(body))
			there = true
			respondJSON(http.StatusCreated, fmt.Sprintf(`{"address":%q,"size":%d}`, r.PathValue("address"), len(content)))(w, r)
		},
		"GET /o/{address}": func(w http.ResponseWriter, r *http.Request) {
			if !there {
				respondProblem(fault.NotFound, "there is no such object")(w, r)
				return
			}
			_, _ = w.Write(content)
		},
	})
	newTestConsole(t).expect(t, t.Context(), fault.NotFound.Exit(), []string{"get", address})
	for _, peer := range []string{"any", someID, someID + "@h:1"} {
		s := newTestConsole(t)
		s.expect(t, t.Context(), 0, []string{"get", address, "--peer", peer})
		if s.stdout.String() != string(content) {
			t.Errorf("it printed %q", &s.stdout)
		}
	}
	if want := []string{`{}`, `{"peer":"` + someID + `"}`, `{"peer":"` + someID + `"}`}; !slices.Equal(asked, want) {
		t.Errorf("asked %q", asked)
	}
	newTestConsole(t).expect(t, t.Context(), fault.Malformed.Exit(), []string{"get", address, "--peer", "some"}, `"some" is not a peer ID`)
	fakeNode(t, map[string]http.HandlerFunc{"POST /overlay/fetch/{address}": respondProblem(fault.NotFound, "no peer has it")})
	newTestConsole(t).expect(t, t.Context(), fault.NotFound.Exit(), []string{"get", address, "--peer", "any"}, "micronode: no peer has it")
}

func TestTheFlagsOfTheOverlay(t *testing.T) {
	address := "127.0.0.1:0"
	got := (&runCommand{Overlay: &address, Peer: []string{"a@b:1", "c@d:2"}, Pack: []string{"x"}}).flags()
	want := []config.Flag{{Key: "overlay.addr", Name: "--overlay", Value: address}, {Key: "overlay.peers", Name: "--peer", Value: "a@b:1"},
		{Key: "overlay.peers", Name: "--peer", Value: "c@d:2"}, {Key: "edge.packs", Name: "--pack", Value: "x"}}
	if !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
}

// The banner names the overlay as another node's --peer takes it.
func TestTheBannerNamesTheOverlay(t *testing.T) {
	info := node.Info{PeerID: someID, HTTP: "http://127.0.0.1:1", Admin: "http://127.0.0.1:2", Socket: "x"}
	for overlay, want := range map[string]string{
		"127.0.0.1:9500": "\n  overlay  " + someID + "@127.0.0.1:9500\n",
		"[::1]:9500":     "\n  overlay  " + someID + "@[::1]:9500\n",
		"0.0.0.0:9500":   "\n  overlay  " + someID + "@HOST:9500\n",
		"[::]:9500":      "\n  overlay  " + someID + "@HOST:9500\n",
		":9500":          "\n  overlay  " + someID + "@HOST:9500\n",
	} {
		s := newTestConsole(t)
		s.printBanner(info, overlay, "")
		if !strings.Contains(s.stdout.String(), want) {
			t.Errorf("%s:\n%s", overlay, &s.stdout)
		}
	}
	s := newTestConsole(t)
	s.printBanner(info, "", "")
	if strings.Contains(s.stdout.String(), "overlay") {
		t.Errorf("it shows what is not there:\n%s", &s.stdout)
	}
	for overlay, has := range map[string]bool{"": false, "127.0.0.1:9500": true} {
		s := newTestConsole(t)
		s.json = true
		s.printBanner(info, overlay, "")
		if strings.Contains(s.stdout.String(), `"overlay":"`+someID+`@127.0.0.1:9500"`) != has {
			t.Error(s.stdout.String())
		}
	}
}
