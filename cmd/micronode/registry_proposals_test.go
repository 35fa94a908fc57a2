package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/registry/approval"
	"micronode/internal/testkit"
)

// fakeProposalNode is a fake node that records what is proposed.
func fakeProposalNode(t *testing.T) *[]string {
	var got []string
	handle := func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		got = append(got, string(raw))
		respondJSON(202, newTestProposal().document())(w, r)
	}
	fakeNode(t, map[string]http.HandlerFunc{
		"POST /registry/proposals": handle,
		"POST /registry/supersede": handle,
		"GET /registry/head":       respondJSON(200, fmt.Sprintf(`{"version":7,"hash":%q}`, emptyID)),
	})
	return &got
}

func TestProposing(t *testing.T) {
	put := `{"item":{"addrs":["h:1"],"id":"edge-1","kind":"node"},"op":"put"}`
	remove := `{"id":"edge-2","op":"delete"}`
	file := filepath.Join(t.TempDir(), "change")
	for name, c := range map[string]struct {
		ending, text string
		args         []string
		want         string
	}{
		"JSON":          {".json", `{"ops":[{"op":"delete","id":"x"}]}`, nil, `{"schema_version":"1.0.0","ops":[{"op":"delete","id":"x"}]}`},
		"all of it":     {".json", `{"schema_version":"2","ops":[1],"base":{"version":3,"hash":"` + emptyID + `"},"ttl_s":9}`, nil, `{"schema_version":"2","ops":[1],"base":{"version":3,"hash":"` + emptyID + `"},"ttl_s":9}`},
		"by content":    {"", "\n {\"ops\":[1]}", []string{"--ttl", "90s"}, `{"schema_version":"1.0.0","ops":[1],"ttl_s":90}`},
		"TOML":          {".toml", "[[put]]\nkind='node'\nid='edge-1'\naddrs=['h:1']\n[[delete]]\nid='edge-2'\n", nil, `{"schema_version":"1.0.0","ops":[` + put + `,` + remove + `]}`},
		"TOML, content": {".txt", "[[delete]]\nid='edge-2'\n", nil, `{"schema_version":"1.0.0","ops":[` + remove + `]}`},
		"a base":        {".toml", "[[delete]]\nid='edge-2'\n", []string{"--base"}, `{"schema_version":"1.0.0","ops":[` + remove + `],"base":{"version":7,"hash":"` + emptyID + `"}}`},
		"JSON like it":  {".json", `{"delete":[{"id":"edge-2"}]}`, nil, `{"schema_version":"1.0.0","ops":[` + remove + `]}`},
	} {
		t.Run(name, func(t *testing.T) {
			got := fakeProposalNode(t)
			testkit.Must(t, os.WriteFile(file+c.ending, []byte(c.text), 0o600))
			s := newTestConsole(t)
			s.expect(t, t.Context(), 0, append([]string{"registry", "propose", file + c.ending}, c.args...))
			if len(*got) != 1 || (*got)[0] != c.want {
				t.Errorf("%q", *got)
			}
			for _, want := range []string{"  ~ name docs  manifest ", "\n  proposal  " + someProposalID + "\n  expires   2099-01-02T03:04:05.000Z (in ", "micronode registry approve " + someProposalID + " --key FILE\n"} {
				if !strings.Contains(s.stdout.String(), want) {
					t.Errorf("no %q in\n%s", want, &s.stdout)
				}
			}
		})
	}
	got := fakeProposalNode(t)
	piped := newTestConsole(t)
	piped.in = strings.NewReader(`{"ops":[1]}`)
	piped.expect(t, t.Context(), 0, []string{"registry", "propose", "-", "--json"})
	if len(*got) != 1 || !strings.HasPrefix(piped.stdout.String(), `{"proposal_id":"`+someProposalID+`"`) {
		t.Errorf("%q, %s", *got, &piped.stdout)
	}
}

func TestWhatCannotBeProposed(t *testing.T) {
	got := fakeProposalNode(t)
	file := filepath.Join(t.TempDir(), "change")
	for name, c := range map[string]struct {
		kind         fault.Kind
		ending, text string
		told         string
	}{
		"half": {fault.Malformed, ".json", `{"ops":[1]`, "it is not valid JSON"},
		"much": {fault.BodyTooLarge, ".json", strings.Repeat(" ", approval.MaxChangeBytes+1), "it has more than 1048576 bytes"},
	} {
		testkit.Must(t, os.WriteFile(file+c.ending, []byte(c.text), 0o600))
		s := newTestConsole(t)
		s.expect(t, t.Context(), c.kind.Exit(), []string{"registry", "propose", file + c.ending}, "micronode: "+file+c.ending+": "+c.told)
		if len(*got) > 0 {
			t.Errorf("%s: %q was proposed", name, *got)
		}
	}
	testkit.Must(t, os.WriteFile(file, []byte(`{"ops":[1]}`), 0o600))
	newTestConsole(t).expect(t, t.Context(), fault.Malformed.Exit(), []string{"registry", "propose", file, "--ttl", "10ms"}, "--ttl a duration such as 1h")
	newTestConsole(t).expect(t, t.Context(), fault.Malformed.Exit(), []string{"registry", "supersede", file, "--reason", "x", "--ttl=-1s"}, "--ttl")
	newTestConsole(t).expect(t, t.Context(), fault.NotFound.Exit(), []string{"registry", "propose", "/nowhere"}, "/nowhere: there is no such file")
	newTestConsole(t).expect(t, t.Context(), fault.NotFound.Exit(), []string{"registry", "supersede", "/nowhere", "--reason", "x"}, "/nowhere")
	broken := newTestConsole(t)
	broken.in = failingReader{}
	broken.expect(t, t.Context(), fault.Malformed.Exit(), []string{"registry", "propose", "-"}, "the keyboard is broken")
	fakeNode(t, map[string]http.HandlerFunc{"POST /registry/proposals": respondProblem(fault.Conflict, "putting it would change nothing")})
	newTestConsole(t).expect(t, t.Context(), fault.Conflict.Exit(), []string{"registry", "propose", file}, "micronode: "+file+": putting it would change nothing")
	newTestConsole(t).expect(t, t.Context(), fault.NotFound.Exit(), []string{"registry", "propose", file, "--base"})
	newTestConsole(t).expect(t, t.Context(), fault.NotFound.Exit(), []string{"registry", "supersede", "--reason", "x"})
}

func TestSuperseding(t *testing.T) {
	got := fakeProposalNode(t)
	file := filepath.Join(t.TempDir(), "right.json")
	testkit.Must(t, os.WriteFile(file, []byte(`{"ops":[1]}`), 0o600))
	newTestConsole(t).expect(t, t.Context(), 0, []string{"registry", "supersede", "--reason", "a slip"})
	newTestConsole(t).expect(t, t.Context(), 0, []string{"registry", "supersede", file, "--reason", "a slip", "--ttl", "1h"})
	if len(*got) != 2 || !strings.Contains((*got)[0], `"version":7,`) || !strings.Contains((*got)[0], `"reason":"a slip"`) || !strings.Contains((*got)[1], `"ops":[1],"ttl_s":3600`) {
		t.Errorf("%q", *got)
	}
	fakeNode(t, map[string]http.HandlerFunc{
		"GET /registry/head":       respondJSON(200, fmt.Sprintf(`{"version":7,"hash":%q}`, emptyID)),
		"POST /registry/supersede": respondProblem(fault.ChainMismatch, "the head is another"),
	})
	newTestConsole(t).expect(t, t.Context(), fault.ChainMismatch.Exit(), []string{"registry", "supersede", "--reason", "x"}, "the head is another")
}

// The samples are the same change, and the document shows them as they are.
func TestTheSampleChanges(t *testing.T) {
	document, err := os.ReadFile("../../docs/registry.md")
	testkit.Must(t, err)
	var changes []client.ProposalRequest
	for _, name := range []string{"change.toml", "change.json"} {
		file := filepath.Join("../../docs/samples", name)
		text, err := os.ReadFile(file)
		testkit.Must(t, err)
		if !bytes.Contains(document, append(append([]byte("```"+strings.TrimPrefix(filepath.Ext(name), ".")+"\n"), text...), "```"...)) {
			t.Errorf("docs/registry.md does not show %s", file)
		}
		change, err := newTestConsole(t).readChange(t.Context(), file)
		testkit.Must(t, err)
		changes = append(changes, change)
	}
	if len(changes[0].Ops) != 2 || len(changes[1].Ops) != 2 {
		t.Fatalf("%+v", changes)
	}
	for i := range changes[0].Ops {
		var ours, theirs any
		testkit.Must(t, json.Unmarshal(changes[0].Ops[i], &ours))
		testkit.Must(t, json.Unmarshal(changes[1].Ops[i], &theirs))
		if !reflect.DeepEqual(ours, theirs) {
			t.Errorf("operation %d is %v in TOML and %v in JSON", i+1, ours, theirs)
		}
	}
}
