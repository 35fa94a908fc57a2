package node

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/capability"
	"micronode/internal/testkit"
)

// forWholeAndSplit runs a test on a node of one process, and on one whose
// mailbox is in another: on a socket, and by URL.
func forWholeAndSplit(t *testing.T, test func(t *testing.T, gate *runningNode)) {
	t.Run("in one process", func(t *testing.T) {
		n := start(t, 2)
		n.waitReady(t)
		test(t, n)
		n.stopAndWait(t)
	})
	for _, by := range []string{"socket", "URL"} {
		t.Run("with the mailbox elsewhere, by "+by, func(t *testing.T) {
			k := newSplitNode(t, map[string][]string{"gateway": {"gateway", "store", "edge", "overlay", "registry", "index"}, "mailbox": {"mailbox"}})
			at := testkit.FreeAddress(t)
			if by == "URL" {
				k.urls["mailbox"] = "http://" + at
			}
			mailbox := startWith(t, func(o *Options) {
				*o = k.options("mailbox")
				o.set("http.addr", at)
			})
			gate := k.start("gateway")
			gate.waitReady(t)
			test(t, gate)
			gate.stopAndWait(t)
			mailbox.stopAndWait(t)
		})
	}
}

// mailboxCalls is every route of the mailbox, as a client uses it.
func mailboxCalls(c *client.Client, t *testing.T) map[string]func(box string) error {
	return map[string]func(box string) error{
		"mbox:send": func(box string) error {
			_, err := c.SendMail(t.Context(), box, []byte("x"), client.MailOptions{})
			return err
		},
		"mbox:recv receive": func(box string) error {
			_, err := c.ReceiveMail(t.Context(), box, client.ReceiveOptions{})
			return err
		},
		"mbox:recv ack":    func(box string) error { return c.AckMail(t.Context(), box, "r") },
		"mbox:recv nack":   func(box string) error { return c.NackMail(t.Context(), box, "r", 0, "") },
		"mbox:recv extend": func(box string) error { return c.ExtendMail(t.Context(), box, "r", time.Second) },
		"mbox:recv resend": func(box string) error { return c.ResendMail(t.Context(), box, "x") },
		"mbox:recv drop":   func(box string) error { return c.DropMail(t.Context(), box, "x") },
		"mbox:recv dlq": func(box string) error {
			_, err := c.DeadMail(t.Context(), box, "", 0)
			return err
		},
	}
}

// A token for one mailbox covers that one, on every route, wherever the mailbox
// runs; and the refusal names the missing scope.
func TestATokenForOneMailbox(t *testing.T) {
	forWholeAndSplit(t, func(t *testing.T, gate *runningNode) {
		mints := func(scopes ...string) string {
			return gate.mint(t, gate.localClient(t), client.MintRequest{Scopes: scopes, TTL: time.Hour})
		}
		narrowed, err := capability.Attenuate(mints("mbox:send", "mbox:recv"), capability.Caveats{Scopes: []capability.Scope{"mbox:send:jobs", "mbox:recv:jobs"}})
		if err != nil {
			t.Fatal(err)
		}
		for how, token := range map[string]string{"minted": mints("mbox:send:jobs", "mbox:recv:jobs"), "narrowed": narrowed, "minted for two": mints("mbox:send:jobs", "mbox:recv:jobs", "mbox:recv:done")} {
			for name, do := range mailboxCalls(gate.tokenClient(t, token), t) {
				scope, _, _ := strings.Cut(name, " ")
				if kind := fault.KindOf(do("jobs")); kind == fault.Forbidden || kind == fault.Unauthorized {
					t.Errorf("%s, %s of its own box: %v", how, name, do("jobs"))
				}
				for _, other := range []string{"job", "jobs2", "jobs/x", "other"} {
					err := do(other)
					if want := scope + ":" + other; fault.KindOf(err) != fault.Forbidden || !strings.Contains(err.Error(), want) || !strings.Contains(fault.NextOf(err), want) {
						t.Errorf("%s, %s of %s: %v; %s", how, name, other, err, fault.NextOf(err))
					}
				}
			}
		}
		// A token for sending receives nothing, one that was narrowed to two
		// boxes in turn covers neither, and one for all of them still covers
		// all.
		sender := gate.tokenClient(t, mints("mbox:send:jobs"))
		if _, err := sender.ReceiveMail(t.Context(), "jobs", client.ReceiveOptions{}); fault.KindOf(err) != fault.Forbidden {
			t.Errorf("a sender receives: %v", err)
		}
		both, err := capability.Attenuate(mints("mbox:send:jobs"), capability.Caveats{Scopes: []capability.Scope{"mbox:send:other"}})
		if err != nil {
			t.Fatal(err)
		}
		for _, box := range []string{"jobs", "other"} {
			if _, err := gate.tokenClient(t, both).SendMail(t.Context(), box, []byte("x"), client.MailOptions{}); fault.KindOf(err) != fault.Forbidden {
				t.Errorf("%s, with a token for no box: %v", box, err)
			}
			for _, wide := range []string{"mbox:send", "admin"} {
				if _, err := gate.tokenClient(t, mints(wide)).SendMail(t.Context(), box, []byte("x"), client.MailOptions{}); err != nil {
					t.Errorf("%s, with %s: %v", box, wide, err)
				}
			}
		}
	})
}

// A use of a token for one mailbox is one use of its rate, although it is
// checked twice.
func TestATokenForOneMailboxIsUsedOnce(t *testing.T) {
	n := start(t, 2)
	n.waitReady(t)
	token := n.mint(t, n.localClient(t), client.MintRequest{Scopes: []string{"mbox:send:jobs"}, TTL: time.Hour, Rate: "2/1h"})
	for i := range 3 {
		_, err := n.tokenClient(t, token).SendMail(t.Context(), "jobs", []byte("x"), client.MailOptions{})
		if want := i == 2; (fault.KindOf(err) == fault.RateLimited || fault.KindOf(err) == fault.QuotaExceeded) != want || !want && err != nil {
			t.Errorf("use %d: %v", i+1, err)
		}
	}
	n.stopAndWait(t)
}

// A scope for one mailbox covers nothing else: not on routes that do not check
// again.
func TestAScopeForOneMailboxOpensNothingElse(t *testing.T) {
	n := start(t, 2)
	n.waitReady(t)
	token := n.mint(t, n.localClient(t), client.MintRequest{Scopes: []string{"mbox:send:jobs"}, TTL: time.Hour})
	for _, path := range []string{"/admin/token/revoked", "/debug/inventory"} {
		request, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, n.Info().HTTP+path, nil)
		request.Header.Set("Authorization", "Bearer "+token)
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %s", path, answer.Status)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	n.stopAndWait(t)
}
