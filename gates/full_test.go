//go:build gates

package gates

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"micronode/b3"
	"micronode/client"
)

// mountSmallDisk mounts a file system of that many bytes, if this user may.
func mountSmallDisk(t *testing.T, size int64) (folder string) {
	t.Helper()
	if os.Getuid() != 0 {
		skipGate(t, "to mount a file system takes root: what a full disk does was not tried")
	}
	folder = t.TempDir()
	line := []string{"mount", "-t", "tmpfs", "-o", fmt.Sprint("size=", size), "tmpfs", folder}
	if out, err := exec.Command(line[0], line[1:]...).CombinedOutput(); err != nil {
		skipGate(t, "%v: %v %s: what a full disk does was not tried", line, err, out)
	}
	t.Cleanup(func() { _ = exec.Command("umount", "-l", folder).Run() })
	return folder
}

// fillUp writes a file until the disk is full to the last byte.
func fillUp(t *testing.T, name string) {
	t.Helper()
	file, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for size := 1 << 20; size > 0; {
		if _, err = file.Write(make([]byte, size)); err != nil {
			size /= 2
		}
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("filling the disk up: %v", err)
	}
}

// acknowledgedWrites is what a node has acknowledged.
type acknowledgedWrites struct {
	objects map[b3.Address][]byte
	names   map[string]b3.Address
	mails   map[string]bool // bodies
	edges   map[string]bool // the users that user a follows
}

// doRequest sends a request and returns the answer's status, and the code if it is a
// problem.
func doRequest(ctx context.Context, web *http.Client, method, url, token string, body []byte, header ...string) (status int, code string, text []byte, err error) {
	r, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return 0, "", nil, err
	}
	r.Header.Set("Authorization", "Bearer "+token)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	answer, err := web.Do(r)
	if err != nil {
		return 0, "", nil, err
	}
	defer answer.Body.Close()
	text, err = io.ReadAll(answer.Body)
	if answer.StatusCode >= 400 {
		code = problemCode(text)
	}
	return answer.StatusCode, code, text, err
}

// writeAll tries one write of each kind, and records those that were
// acknowledged. It returns the codes of the others.
func (a *acknowledgedWrites) writeAll(p *process, token string, try int) (refused map[string]string) {
	refused = map[string]string{}
	write := func(what, method, path string, body []byte, header ...string) bool {
		status, code, text, err := doRequest(p.t.Context(), http.DefaultClient, method, p.http+path, token, body, header...)
		if err != nil || status >= 400 {
			refused[what] = fmt.Sprint(status, " ", code)
			if err != nil || code == "" {
				p.t.Errorf("%s is refused without a type: %d %s, %v", what, status, text, err)
			}
		}
		return err == nil && status < 400
	}
	random := rand.NewChaCha8([32]byte{byte(try)})
	small, large := make([]byte, 64<<10), make([]byte, 3<<20)
	_, _ = random.Read(small)
	_, _ = random.Read(large)
	if write("put", "POST", "/put", small) {
		a.objects[b3.Of(small)] = small
	}
	if write("upload", "POST", "/o", large) {
		a.objects[b3.Of(large)] = large
	}
	const json, typed = "Content-Type", "application/json"
	name, target := fmt.Sprint("name-", try), b3.Of(small)
	if write("name", "PUT", "/names/"+name, fmt.Appendf(nil, `{"manifest":%q}`, target), json, typed) {
		a.names[name] = target
	}
	if write("mail", "POST", "/mbox/send", fmt.Appendf(nil, `{"box":"b","body":"bWFpbCAw%s"}`, strings.Repeat("AAAA", 2+try)), json, typed, "Idempotency-Key", fmt.Sprint("mail ", try)) {
		a.mails["mail 0"+strings.Repeat("\x00\x00\x00", 2+try)] = true
	}
	if write("edge", "PUT", fmt.Sprintf("/graph/a/follows/b%d", try), nil) {
		a.edges[fmt.Sprint("b", try)] = true
	}
	return refused
}

// checkReads reads everything that was acknowledged.
func (a *acknowledgedWrites) checkReads(p *process) (wrong error) {
	ctx, c := p.t.Context(), p.local()
	defer c.Close()
	for address, body := range a.objects {
		answer, got, err := fetch(p.http + "/o/" + address.String())
		if err != nil || answer.StatusCode != http.StatusOK || !bytes.Equal(got, body) {
			wrong = errors.Join(wrong, fmt.Errorf("object %s of %d bytes: %v, %v, %d bytes", address, len(body), answer, err, len(got)))
		}
	}
	for name, target := range a.names {
		if got, err := c.Resolve(ctx, "name:"+name, client.ResolveOptions{}); err != nil || got.Manifest != target {
			wrong = errors.Join(wrong, fmt.Errorf("%s: %+v, %v", name, got, err))
		}
	}
	return wrong
}

// With a disk that is full to the last byte, each write is rejected with a
// typed error, reads continue, and readiness reports it with the next step.
// When space is freed, the node resumes by itself. After a kill and a restart
// everything that was acknowledged is there, and nothing else.
func TestFullDisk(t *testing.T) {
	disk := mountSmallDisk(t, 48<<20)
	arguments := []string{"--persist", filepath.Join(disk, "node")}
	p := startWith(t, nil, arguments, "MICRO_FACETS__GRAPH__ENABLED=true")
	token := p.token(allScopes...)
	all := &acknowledgedWrites{map[b3.Address][]byte{}, map[string]b3.Address{}, map[string]bool{}, map[string]bool{}}
	if refused := all.writeAll(p, token, 0); len(refused) != 0 {
		t.Fatalf("with room: %v", refused)
	}
	filler := filepath.Join(disk, "filler")
	fillUp(t, filler)
	notReadyAfter := p.awaitNotWriteReady("node/disk", 10*time.Second)
	codes := map[string]int{}
	for try := 1; try <= 3; try++ {
		for what, code := range all.writeAll(p, token, try) {
			codes[code]++
			if code != "507 StoreFull" {
				t.Errorf("%s on a full disk: %s", what, code)
			}
		}
	}
	if codes["507 StoreFull"] == 0 {
		t.Error("nothing was refused")
	}
	if err := all.checkReads(p); err != nil {
		t.Errorf("reads on a full disk: %v", err)
	}

	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	back := p.awaitWhole(20 * time.Second)
	if refused := all.writeAll(p, token, 4); len(refused) != 0 {
		t.Errorf("with room again: %v", refused)
	}
	report(t, "full disk", "writes refused with 507, reads go on; readiness tells within 10s and is back within 20s",
		fmt.Sprintf("%d refused with 507; told after %s, back after %s", codes["507 StoreFull"], rounded(notReadyAfter), rounded(back)))

	p.kill()
	p.awaitEnd()
	p = startWith(t, nil, arguments, "MICRO_FACETS__GRAPH__ENABLED=true")
	all.checkAfterRestart(p)
	p.stop(syscall.SIGTERM)
}

// checkAfterRestart checks that a restarted node has everything that was
// acknowledged, and nothing else.
func (a *acknowledgedWrites) checkAfterRestart(p *process) {
	p.t.Helper()
	if err := a.checkReads(p); err != nil {
		p.t.Errorf("after the restart: %v", err)
	}
	if n := int(p.metric("store_objects", "")); n != len(a.objects) {
		p.t.Errorf("%d objects are stored after the restart, and %d were acknowledged", n, len(a.objects))
	}
	c := p.local()
	defer c.Close()
	for range len(a.mails) {
		mail, err := c.ReceiveMail(p.t.Context(), "b", client.ReceiveOptions{})
		if err != nil || !a.mails[string(mail.Body)] {
			p.t.Fatalf("after the restart: %q, %v; %d messages were acknowledged", mail.Body, err, len(a.mails))
		}
		delete(a.mails, string(mail.Body))
		if err := c.AckMail(p.t.Context(), "b", mail.Receipt); err != nil {
			p.t.Error(err)
		}
	}
	if mail, err := c.ReceiveMail(p.t.Context(), "b", client.ReceiveOptions{}); errorCode(err) != "NotFound" {
		p.t.Errorf("a message that was refused is there after the restart: %q, %v", mail.Body, err)
	}
	page, err := c.Neighbours(p.t.Context(), "a", client.NeighboursOptions{})
	if err != nil || len(page.Neighbors) != len(a.edges) {
		p.t.Errorf("after the restart a follows %+v (%v), and %v was acknowledged", page, err, a.edges)
	}
}
