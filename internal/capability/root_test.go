package capability

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"micronode/fault"
	"micronode/internal/testkit"
)

func TestFreshRootsDiffer(t *testing.T) {
	a, b := freshAuthority(t), freshAuthority(t)
	if a.root.ID() == b.root.ID() || *a.root.key == *b.root.key {
		t.Error("two random roots are the same")
	}
}

// secretBytes is the value of fixedSecret, which every spelling of it must
// decode to.
func secretBytes(t *testing.T) []byte {
	t.Helper()
	secret, err := hex.DecodeString(fixedSecret)
	if err != nil {
		t.Fatal(err)
	}
	return secret
}

func TestRootFrom(t *testing.T) {
	folder := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	secret := secretBytes(t)
	t.Setenv("TEST_ROOT", " "+fixedSecret+"\n")
	pipe := func(text string) string {
		var fds [2]int
		if err := unix.Pipe2(fds[:], 0); err != nil {
			t.Fatal(err)
		}
		_, _ = unix.Write(fds[1], []byte(text))
		_ = unix.Close(fds[1])
		return fmt.Sprint("fd:", fds[0])
	}
	want := fixedAuthority(t).root.ID()
	for name, spec := range map[string]string{
		"hex":                fixedSecret,
		"upper case hex":     strings.ToUpper(fixedSecret),
		"base64":             base64.StdEncoding.EncodeToString(secret),
		"base64, no padding": base64.RawStdEncoding.EncodeToString(secret),
		"base64 for URLs":    base64.URLEncoding.EncodeToString(secret),
		"file":               "file:" + write("hex", fixedSecret+"\n"),
		"file of base64":     "file:" + write("base64", base64.StdEncoding.EncodeToString(secret)),
		"environment":        "env:TEST_ROOT",
		"descriptor":         pipe(fixedSecret + "\n"),
	} {
		root, err := RootFrom(spec, nil)
		if err != nil || root.ID() != want {
			t.Errorf("%s: %v, %v", name, root, err)
		}
	}
}

func TestRootFromRefuses(t *testing.T) {
	folder := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	fifo := filepath.Join(folder, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TEST_SHORT", "abcd")
	for name, c := range map[string]struct{ spec, detail, next string }{
		"nothing":                  {"", "32 bytes or more", "/dev/urandom"},
		"too short":                {"abcd", "32 bytes or more", "/dev/urandom"},
		"31 bytes":                 {fixedSecret[2:], "32 bytes or more", "/dev/urandom"},
		"a sentence":               {"correct horse battery staple correct horse battery staple", "32 bytes or more", "/dev/urandom"},
		"a token":                  {savedToken, "is a token", "/dev/urandom"},
		"an unknown scheme":        {"vault:" + fixedSecret, "32 bytes or more", "file:PATH"},
		"a missing file":           {"file:/nowhere/root", "no file /nowhere/root", "/dev/urandom"},
		"a folder":                 {"file:" + folder, "cannot be read", "open for reading"},
		"a file under a file":      {"file:" + write("plain", "", 0o600) + "/x", "cannot be read", "readable"},
		"a file for everybody":     {"file:" + write("open", fixedSecret, 0o644), "every user may read or write", "chmod 600"},
		"a file that all write":    {"file:" + write("writable", fixedSecret, 0o602), "every user may read or write", "chmod 600"},
		"a file its group writes":  {"file:" + write("group", fixedSecret, 0o620), "its group may write", "chmod 600"},
		"a long file":              {"file:" + write("long", strings.Repeat("a", maxSecret+1), 0o600), "more than 4096", "/dev/urandom"},
		"a pipe nobody writes to":  {"file:" + fifo, "32 bytes or more", "/dev/urandom"},
		"a missing variable":       {"env:TEST_NO_SUCH", "no variable TEST_NO_SUCH", "export"},
		"a short variable":         {"env:TEST_SHORT", "has 4 characters", "/dev/urandom"},
		"a dollar too many":        {"env:" + fixedSecret, "looks like a secret", "without a dollar"},
		"a file named by a secret": {"file:" + fixedSecret, "looks like a secret", "/dev/urandom"},
		"no descriptor":            {"fd:three", "number of a descriptor", "fd:3"},
		"a negative one":           {"fd:-1", "number of a descriptor", "fd:3"},
		"a closed one":             {"fd:9999", "descriptor 9999 cannot be read", "open for reading"},
	} {
		root, err := RootFrom(c.spec, nil)
		testkit.WantKind(t, err, fault.Malformed, name)
		if root != nil || err == nil || !strings.Contains(err.Error(), c.detail) || !strings.Contains(fault.NextOf(err), c.next) {
			t.Errorf("%s: %v; next: %s", name, err, fault.NextOf(err))
		}
		if err != nil && strings.Contains(fmt.Sprintf("%v %#v %s", err, err, fault.NextOf(err)), fixedSecret[2:40]) {
			t.Errorf("%s: the error repeats the secret", name)
		}
	}
}

// A secret that another user wrote is one that another user knows.
func TestASecretOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can play another user")
	}
	path := filepath.Join(t.TempDir(), "root")
	if err := os.WriteFile(path, []byte(fixedSecret), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(path, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	_, err := RootFrom("file:"+path, nil)
	testkit.WantKind(t, err, fault.Malformed, "another's")
	if err == nil || !strings.Contains(err.Error(), "belongs to another user") || !strings.Contains(fault.NextOf(err), "chown") {
		t.Errorf("%v; next: %s", err, fault.NextOf(err))
	}
}

// A descriptor with data but without an end must not hold up the start for
// ever.
func TestAPipeThatStaysOpenIsGivenUp(t *testing.T) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], 0); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	_, _ = unix.Write(fds[1], []byte(fixedSecret))
	_, err := readAll(&pollReader{fd: fds[0]}, "descriptor") // its deadline is long past
	testkit.WantKind(t, err, fault.Malformed, "no end")
	if !strings.Contains(err.Error(), "was not closed within 5s") {
		t.Errorf("%v", err)
	}
}

func TestDescriptorsAreReadOnce(t *testing.T) {
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Dup(int(reader.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(writer, fixedSecret)
	_ = writer.Close()
	_ = reader.Close()
	spec := fmt.Sprint("fd:", fd)
	if _, err := RootFrom(spec, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != unix.EBADF {
		t.Errorf("the descriptor is still open: %v", err)
	}
}

func TestTheKeyLivesInTheGivenMemory(t *testing.T) {
	memory := bytes.Repeat([]byte{0xff}, keySize)
	root, err := NewRoot(func(n int) ([]byte, error) { return memory[:n], nil })
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(memory, bytes.Repeat([]byte{0xff}, keySize)) {
		t.Error("the key is not in the memory that was given")
	}
	a := NewAuthority(root)
	token := mint(t, a, Caveats{Scopes: []Scope{Admin}})
	testkit.WantKind(t, a.Verify(token, Request{Scope: Admin}), none, "before Close")

	root.Close()
	root.Close()
	if !bytes.Equal(memory, make([]byte, keySize)) {
		t.Error("Close leaves the key in memory")
	}
	testkit.WantKind(t, a.Verify(token, Request{Scope: Admin}), fault.Canceled, "Verify after Close")
	_, err = a.Mint(Caveats{Scopes: []Scope{Admin}})
	testkit.WantKind(t, err, fault.Canceled, "Mint after Close")
}

func TestNoMemoryForTheKey(t *testing.T) {
	_, err := NewRoot(func(int) ([]byte, error) { return nil, fault.StoreFull })
	testkit.WantKind(t, err, fault.StoreFull, "no memory")
}

// However a root is printed, its key does not show.
func TestTheKeyIsNeverPrinted(t *testing.T) {
	a := fixedAuthority(t)
	key := a.root.key[:]
	var texts []string
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%o", "%b", "%c", "%U", "%t", "%p", "%e"} {
		texts = append(texts, fmt.Sprintf(verb, a.root), fmt.Sprintf(verb, a), fmt.Sprintf(verb, *a))
	}
	encoded, err := json.Marshal(map[string]any{"root": a.root})
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("root", "root", a.root)
	slog.New(slog.NewTextHandler(&log, nil)).Info("root", "root", a.root, "authority", a)
	texts = append(texts, string(encoded), log.String(), a.root.String(), a.root.GoString())

	for _, form := range []string{string(key), hex.EncodeToString(key), strings.ToUpper(hex.EncodeToString(key)),
		base64.StdEncoding.EncodeToString(key), strings.Trim(fmt.Sprint(key[:8]), "[]"), fmt.Sprintf("%#v", key[:4])[7:20]} {
		for _, text := range texts {
			if strings.Contains(text, form) {
				t.Errorf("the key shows in: %s", text)
			}
		}
	}
	if !strings.Contains(log.String(), "redacted") {
		t.Errorf("the log does not say that something was left out: %s", log.String())
	}
}
