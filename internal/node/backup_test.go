package node

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/config"
	"micronode/internal/registry"
	"micronode/internal/registry/approval"
	"micronode/internal/registry/keyfile"
	"micronode/internal/testkit"
)

// persistent starts a node on a folder, and a client of it.
func persistent(t *testing.T, folder string) (*runningNode, *client.Client) {
	t.Helper()
	n := startWith(t, func(o *Options) {
		o.Persist = folder
		o.Sources.Flags = append(o.Sources.Flags, config.Flag{Key: "facets.graph.enabled", Value: "true", Name: "test"})
	})
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

	signer, err := newTestSigner(c)
	testkit.Must(t, err)
	for i := range 5 {
		_, err := c.SetName(t.Context(), fmt.Sprint("name-", i), b3.Of(small))
		testkit.Must(t, err)
		_, err = c.Follow(t.Context(), "eve", fmt.Sprint("friend-", i))
		testkit.Must(t, err)
		testkit.Must(t, signer.commit(t.Context(), fmt.Sprint("kept-", i), b3.Of(small)))
	}

	// Other clients write until the backup is done.
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan int)
	go func() {
		count := 0
		for ; ctx.Err() == nil; count++ {
			_, _ = c.Put(ctx, strings.NewReader(fmt.Sprint("more ", count)), client.PutOptions{})
			_, _ = c.SendMail(ctx, "more", []byte("more"), client.MailOptions{})
			_, _ = c.SetName(ctx, fmt.Sprint("more-", count%50), b3.Of(large))
			_, _ = c.Follow(ctx, "eve", fmt.Sprint("more-", count%50))
		}
		ended <- count
	}()
	committed := make(chan int)
	go func() {
		count := 0
		for ; ctx.Err() == nil && signer.commit(ctx, fmt.Sprint("more-", count%20), b3.Of(large)) == nil; count++ {
		}
		committed <- count
	}()
	var file bytes.Buffer
	made, err := Backup(t.Context(), folder, &file)
	stop()
	t.Logf("written meanwhile: %d, versions: %d", <-ended, <-committed)
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

	head, err := c.RegistryHead(t.Context())
	testkit.Must(t, err)
	version, err := c.RegistryVersion(t.Context(), head.Version, true)
	testkit.Must(t, err)
	items, err := json.Marshal(version)
	testkit.Must(t, err)
	friends, err := c.Neighbours(t.Context(), "eve", client.NeighboursOptions{Max: 100})
	testkit.Must(t, err)
	for i := range 5 {
		named, err := c.Resolve(t.Context(), fmt.Sprint("name:name-", i), client.ResolveOptions{})
		if err != nil || named.Manifest != b3.Of(small) {
			t.Errorf("name %d: %+v, %v", i, named, err)
		}
		if !slices.ContainsFunc(friends.Neighbors, func(one client.Near) bool { return one.ID == fmt.Sprint("friend-", i) }) {
			t.Errorf("nobody follows friend %d: %+v", i, friends)
		}
		if !strings.Contains(string(items), fmt.Sprintf("kept-%d", i)) {
			t.Errorf("version %d does not have what was committed as %d", head.Version, i)
		}
	}
	if head.Version < 5 {
		t.Errorf("the registry is at version %d", head.Version)
	}
}

// testSigner governs the registry of a node alone.
type testSigner struct {
	client *client.Client
	key    ed25519.PrivateKey
}

func newTestSigner(c *client.Client) (*testSigner, error) {
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	_, err = c.InitRegistry(context.Background(), client.InitRequest{M: 1, Keys: []client.RegistryKey{{SignerID: "alice", Public: keyfile.FormatPublic(public)}}})
	return &testSigner{c, key}, err
}

// commit gives a name of the registry another manifest.
func (s *testSigner) commit(ctx context.Context, name string, manifest b3.Address) error {
	change := fmt.Sprintf(`{"op":"put","item":{"kind":"name","id":%q,"manifest":%q}}`, name, manifest)
	made, err := s.client.Propose(ctx, client.ProposalRequest{SchemaVersion: registry.SchemaVersion, Ops: []json.RawMessage{json.RawMessage(change)}})
	if err != nil {
		return err
	}
	proposal, err := s.client.Proposal(ctx, made.ProposalID)
	if err != nil {
		return err
	}
	request, err := approval.RequestOf(made.ProposalID, proposal)
	if err != nil {
		return err
	}
	one, err := request.Verify()
	if err != nil {
		return err
	}
	if _, err := s.client.Approve(ctx, made.ProposalID, one.Sign(s.key, "alice", time.Now()).Approval()); err != nil {
		return err
	}
	_, err = s.client.Commit(ctx, made.ProposalID)
	return err
}

// The folder of a service is a link: systemd keeps the real one where only root
// can enter. A backup through the link is that of the folder.
func TestABackupOfALink(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "node")
	f, err := OpenFolder(folder)
	testkit.Must(t, err)
	testkit.Must(t, f.write(seenFile, []byte("seen")))
	testkit.Must(t, f.Close())
	link := filepath.Join(t.TempDir(), "link")
	testkit.Must(t, os.Symlink(folder, link))
	direct, err := Backup(t.Context(), folder, io.Discard)
	testkit.Must(t, err)
	linked, err := Backup(t.Context(), link, io.Discard)
	testkit.Must(t, err)
	testkit.Equal(t, "files through the link", fmt.Sprint(linked.Files), fmt.Sprint(direct.Files))
	if len(linked.Files) == 0 {
		t.Error("the backup is empty")
	}
}

// A damaged object is left out of a backup, which names it; the rest is in it.
func TestABackupNamesWhatIsDamaged(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "node")
	first, c := persistent(t, folder)
	bad, err := c.Put(t.Context(), strings.NewReader("to be damaged"), client.PutOptions{Named: true})
	testkit.Must(t, err)
	good, err := c.Put(t.Context(), strings.NewReader("sound"), client.PutOptions{})
	testkit.Must(t, err)
	first.stop()
	<-first.ended
	digits := strings.TrimPrefix(bad.Address.String(), b3.Prefix)
	path := filepath.Join(folder, objectsFolder, "named", digits[:2], digits[2:3], digits+"-13")
	testkit.Must(t, os.WriteFile(path, []byte("it is damaged"), 0o600))

	var file bytes.Buffer
	made, err := Backup(t.Context(), folder, &file)
	testkit.Must(t, err)
	if len(made.Damaged) != 1 || made.Damaged[0].Address != bad.Address || fault.KindOf(made.DamageError()) != fault.IntegrityFail {
		t.Errorf("damaged are %+v, %v", made.Damaged, made.DamageError())
	}
	restored, err := Restore(t.Context(), &file, filepath.Join(t.TempDir(), "node"))
	testkit.Must(t, err)
	if !slices.ContainsFunc(restored.Files, func(one BackupFile) bool {
		return strings.Contains(one.Path, strings.TrimPrefix(good.Address.String(), b3.Prefix))
	}) {
		t.Error("the sound object is not in it")
	}
	whole := BackupReport{}
	if err := whole.DamageError(); err != nil {
		t.Errorf("of a whole backup: %v", err)
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

// Root backs up the folder of a service, which is another user's; a link that
// its owner puts there leads to nothing outside.
func TestRootBacksUpTheFolderOfAService(t *testing.T) {
	if os.Geteuid() != 0 {
		return
	}
	folder := filepath.Join(t.TempDir(), "node")
	f, err := OpenFolder(folder)
	testkit.Must(t, err)
	testkit.Must(t, f.write(seenFile, []byte("seen")))
	testkit.Must(t, f.Close())
	direct, err := Backup(t.Context(), folder, io.Discard)
	testkit.Must(t, err)
	testkit.Must(t, filepath.WalkDir(folder, func(path string, _ os.DirEntry, err error) error {
		return errors.Join(err, os.Chown(path, 61184, 61184))
	}))
	made, err := Backup(t.Context(), folder, io.Discard)
	testkit.Must(t, err)
	testkit.Equal(t, "files", fmt.Sprint(made.Files), fmt.Sprint(direct.Files))

	outside := filepath.Join(t.TempDir(), "shadow")
	testkit.Must(t, os.WriteFile(outside, []byte("secret"), 0o600))
	testkit.Must(t, os.Symlink(outside, filepath.Join(folder, "link")))
	root, err := os.OpenRoot(folder)
	testkit.Must(t, err)
	defer root.Close()
	b := &backup{ctx: t.Context(), root: folder, files: root, tar: tar.NewWriter(io.Discard), done: map[string]bool{}}
	if err := b.addFile(filepath.Join(folder, "link"), "link"); err == nil { // as if it took the place of a file that was just seen
		t.Error("a link was followed out of the folder")
	}
}
