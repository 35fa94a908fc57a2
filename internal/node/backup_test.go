package node

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/testkit"
)

// persistent starts a node on a folder, and a client of it.
func persistent(t *testing.T, folder string) (*runningNode, *client.Client) {
	t.Helper()
	n := startWith(t, func(o *Options) { o.Persist = folder })
	n.waitReady(t)
	c, err := client.New(client.Options{Socket: n.options.Socket})
	testkit.Must(t, err)
	t.Cleanup(c.Close)
	return n, c
}

// What was acknowledged before a backup began is in the node that is restored
// from it, although the first node went on writing.
func TestABackupUnderLoad(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "node")
	first, c := persistent(t, folder)
	small, large := []byte("kept"), bytes.Repeat([]byte("large "), 100_000)
	for _, body := range [][]byte{small, large} {
		_, err := c.Put(t.Context(), bytes.NewReader(body), client.PutOptions{Size: int64(len(body))})
		testkit.Must(t, err)
	}
	for i := range 20 {
		_, err := c.SendMail(t.Context(), "jobs", fmt.Appendf(nil, "message %d", i), client.MailOptions{})
		testkit.Must(t, err)
	}

	// Another client writes until the backup is done.
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan int)
	go func() {
		count := 0
		for ; ctx.Err() == nil; count++ {
			_, _ = c.Put(ctx, strings.NewReader(fmt.Sprint("more ", count)), client.PutOptions{})
			_, _ = c.SendMail(ctx, "more", []byte("more"), client.MailOptions{})
		}
		ended <- count
	}()
	var file bytes.Buffer
	made, err := Backup(t.Context(), folder, &file)
	stop()
	t.Logf("written meanwhile: %d", <-ended)
	testkit.Must(t, err)
	if slices.ContainsFunc(made.Files, func(one BackupFile) bool {
		return strings.HasPrefix(one.Path, searchFolder) || strings.HasSuffix(one.Path, lockFile)
	}) {
		t.Errorf("it has what is made anew: %v", made.Files)
	}
	was := first.Info().PeerID
	first.stop()
	<-first.ended

	other := filepath.Join(t.TempDir(), "elsewhere", "node")
	restored, err := Restore(t.Context(), bytes.NewReader(file.Bytes()), other)
	testkit.Must(t, err)
	testkit.Equal(t, "files", len(restored.Files), len(made.Files))
	second, c := persistent(t, other)
	testkit.Equal(t, "the node", second.Info().PeerID, was)
	for _, body := range [][]byte{small, large} {
		object, err := c.Get(t.Context(), b3.Of(body), client.GetOptions{})
		testkit.Must(t, err)
		got, err := io.ReadAll(object)
		if err != nil || !bytes.Equal(got, body) {
			t.Errorf("%d of %d bytes came back: %v", len(got), len(body), err)
		}
		_ = object.Close()
	}
	for i := range 20 {
		if mail, err := c.ReceiveMail(t.Context(), "jobs", client.ReceiveOptions{}); err != nil {
			t.Fatalf("of 20 messages %d came back: %+v, %v", i, mail, err)
		}
	}
}

// A backup that is not whole restores nothing.
func TestADamagedBackup(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "node")
	f, err := OpenFolder(folder)
	testkit.Must(t, err)
	testkit.Must(t, f.write(seenFile, bytes.Repeat([]byte("seen"), 1000)))
	testkit.Must(t, f.Close())
	var file bytes.Buffer
	_, err = Backup(t.Context(), folder, &file)
	testkit.Must(t, err)
	whole := file.Bytes()
	flipped := bytes.Clone(whole)
	flipped[bytes.Index(flipped, []byte("seenseen"))] ^= 1
	wrongVersion := bytes.Replace(whole, []byte(`{"version":1`), []byte(`{"version":2`), 1)
	escaping := bytes.Clone(whole)
	target := filepath.Join(t.TempDir(), "restored")
	for name, c := range map[string]struct {
		file []byte
		want string
	}{
		"nothing":         {nil, "cut short"},
		"cut in a file":   {whole[:2048], ""},
		"without a list":  {whole[:bytes.Index(whole, []byte(backupList))/512*512], "cut short"},
		"a bit":           {flipped, seenFile + " is not what was written"},
		"another version": {wrongVersion, "version 2"},
		"no tar":          {bytes.Repeat([]byte("x"), 2048), "damaged"},
		"another path":    {bytes.Replace(escaping, []byte(seenFile+"\x00\x00\x00"), []byte("../"+seenFile), 1), ""},
	} {
		_, err := Restore(t.Context(), bytes.NewReader(c.file), target)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Lstat(target); err == nil {
			t.Errorf("%s: a folder is left", name)
		}
	}
	if _, err := Restore(t.Context(), bytes.NewReader(whole), folder); fault.KindOf(err) != fault.Conflict {
		t.Errorf("over a folder that exists: %v", err)
	}
	if _, err := Restore(t.Context(), bytes.NewReader(whole), target); err != nil {
		t.Error("the whole one is refused:", err)
	}
	if _, err := Backup(t.Context(), t.TempDir(), &file); fault.KindOf(err) != fault.NotFound {
		t.Errorf("a backup of a folder that is no node's: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Backup(ctx, folder, &file); fault.KindOf(err) != fault.Canceled {
		t.Errorf("cancelled: %v", err)
	}
	if _, err := Restore(ctx, bytes.NewReader(whole), target+"-2"); fault.KindOf(err) != fault.Canceled {
		t.Errorf("cancelled: %v", err)
	}
}
