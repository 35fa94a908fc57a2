package keyfile_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"filippo.io/age"
	"filippo.io/age/armor"
	"pgregory.net/rapid"

	"micronode/fault"
	"micronode/internal/registry/keyfile"
	"micronode/internal/testkit"
)

func TestPlainKeys(t *testing.T) {
	key := newKey(t, 7)
	plain := keyfile.FormatPlain(key)
	want := "ed25519-seed:" + base64.StdEncoding.EncodeToString(append(make([]byte, 31), 7)) + "\n"
	if string(plain) != want {
		t.Errorf("the plain form is %q", plain)
	}
	for _, data := range []string{want, strings.TrimSpace(want), strings.TrimSpace(want) + "\r\n"} {
		got, err := keyfile.Open([]byte(data), nil) // without a passphrase
		if testkit.Value(t, got, err); !got.Equal(key) {
			t.Errorf("another key came back from %q", data)
		}
	}
}

func TestSealedKeys(t *testing.T) {
	key := newKey(t, 7)
	sealed := seal(t, key, "ünter uns")
	if strings.Contains(string(sealed), "ed25519") {
		t.Error("the key is in the file")
	}
	got, err := keyfile.Open(sealed, fixedPassphrase("ünter uns"))
	if testkit.Value(t, got, err); !got.Equal(key) {
		t.Error("another key came back")
	}
	testkit.WantRefusal(t, testkit.ErrOf(keyfile.Open(sealed, fixedPassphrase("unter uns"))), fault.Unauthorized, "")
	testkit.WantRefusal(t, testkit.ErrOf(keyfile.Open(sealed, fixedPassphrase(""))), fault.Unauthorized, "")
	testkit.WantRefusal(t, testkit.ErrOf(keyfile.Open(sealed, nil)), fault.Unauthorized, "")
	testkit.WantRefusal(t, testkit.ErrOf(keyfile.SealWith(key, "", 2)), fault.Malformed, "")

	gone := fault.New("terminal.read", fault.Canceled, "interrupted")
	_, err = keyfile.Open(sealed, func() (string, error) { return "", gone })
	if fault.KindOf(err) != fault.Canceled {
		t.Errorf("the reason of the one who was asked became %v", err)
	}
	_, err = keyfile.Open(sealed, func() (string, error) { return "", io.ErrUnexpectedEOF })
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("the reason of the one who was asked became %v", err)
	}
}

// The product's own work factor, once: age writes it into the file.
func TestTheDefaultIsSlow(t *testing.T) {
	sealed, err := keyfile.Seal(newKey(t, 1), "pass")
	testkit.Value(t, sealed, err)
	raw, err := io.ReadAll(armor.NewReader(bytes.NewReader(sealed)))
	if testkit.Value(t, raw, err); !strings.Contains(string(raw[:80]), " 18\n") {
		t.Errorf("the file begins with %q", raw[:80])
	}
}

// Decrypted by age itself the file is the plain form, and what age encrypts is
// opened here.
func TestAgeOpensIt(t *testing.T) {
	key := newKey(t, 3)
	identity, err := age.NewScryptIdentity("pass")
	testkit.Value(t, identity, err)
	r, err := age.Decrypt(armor.NewReader(bytes.NewReader(seal(t, key, "pass"))), identity)
	testkit.Value(t, r, err)
	plain, err := io.ReadAll(r)
	if testkit.Value(t, plain, err); !bytes.Equal(plain, keyfile.FormatPlain(key)) {
		t.Errorf("age says %q", plain)
	}
	got, err := keyfile.Open(encrypt(t, keyfile.FormatPlain(key), scrypt(t, 3)), fixedPassphrase("pass"))
	if testkit.Value(t, got, err); !got.Equal(key) {
		t.Error("another key came back from age's file")
	}
}

// encrypt is `age -a`.
func encrypt(t testkit.T, plain []byte, to age.Recipient) []byte {
	t.Helper()
	var b bytes.Buffer
	a := armor.NewWriter(&b)
	w, err := age.Encrypt(a, to)
	testkit.Value(t, w, err)
	_, err = w.Write(plain)
	testkit.Value(t, 0, errors.Join(err, w.Close(), a.Close()))
	return b.Bytes()
}

func scrypt(t testkit.T, work int) *age.ScryptRecipient {
	t.Helper()
	r, err := age.NewScryptRecipient("pass")
	testkit.Value(t, r, err).SetWorkFactor(work)
	return r
}

func TestNotAKeyFile(t *testing.T) {
	x, err := age.GenerateX25519Identity()
	testkit.Value(t, x, err)
	plain := string(keyfile.FormatPlain(newKey(t, 1)))
	never := func() (string, error) {
		t.Error("asked for a passphrase that nothing needs")
		return "", nil
	}
	for name, data := range map[string]string{
		"nothing":          "",
		"a public key":     keyfile.FormatPublic(keyfile.PublicOf(newKey(t, 1))) + "\n",
		"another spelling": strings.Replace(plain, "AE=", "AF=", 1),
		"too short":        strings.Replace(plain, "AAAA", "", 1),
		"two lines":        plain + plain,
		"an age recipient": string(encrypt(t, []byte(plain), x.Recipient())),
		"half of a file":   string(seal(t, newKey(t, 1), "pass"))[:120],
		"very long":        armor.Header + strings.Repeat("\nAAAA", 20_000),
	} {
		if _, err := keyfile.Open([]byte(data), never); fault.KindOf(err) != fault.Malformed || fault.NextOf(err) == fault.Malformed.Next() {
			t.Errorf("%s: %v", name, err)
		}
	}
	testkit.WantRefusal(t, testkit.ErrOf(keyfile.Open(encrypt(t, []byte("a letter"), scrypt(t, 3)), fixedPassphrase("pass"))), fault.Malformed, "")
}

// A file that demands an insane amount of work is rejected at once.
func TestTooMuchWork(t *testing.T) {
	sealed := seal(t, newKey(t, 1), "pass")
	raw, err := io.ReadAll(armor.NewReader(bytes.NewReader(sealed)))
	testkit.Value(t, raw, err)
	var b bytes.Buffer
	w := armor.NewWriter(&b)
	_, err = w.Write([]byte(strings.Replace(string(raw), " 2\n", " 30\n", 1)))
	testkit.Value(t, 0, errors.Join(err, w.Close()))
	testkit.WantRefusal(t, testkit.ErrOf(keyfile.Open(b.Bytes(), fixedPassphrase("pass"))), fault.Malformed, "")

	over, err := keyfile.SealWith(newKey(t, 1), "pass", -1) // clamped to what is possible
	testkit.Value(t, over, err)
}

// No changed byte of a sealed file gives another key.
func TestChangedFiles(t *testing.T) {
	key := newKey(t, 1)
	sealed := seal(t, key, "pass")
	rapid.Check(t, func(t *rapid.T) {
		bad := slices.Clone(sealed)
		i := rapid.IntRange(0, len(bad)-1).Draw(t, "at")
		bad[i] ^= byte(rapid.IntRange(1, 255).Draw(t, "flip"))
		got, err := keyfile.Open(bad, fixedPassphrase("pass"))
		if err == nil && !got.Equal(key) {
			t.Fatalf("another key")
		}
		if kind := fault.KindOf(err); err != nil && kind != fault.Malformed && kind != fault.Unauthorized {
			t.Fatalf("%v", err)
		}
	})
}

func TestPublicKeys(t *testing.T) {
	public := keyfile.PublicOf(newKey(t, 1))
	text := keyfile.FormatPublic(public)
	if text != "ed25519:"+base64.StdEncoding.EncodeToString(public) {
		t.Errorf("the text is %q", text)
	}
	for _, s := range []string{text, text + "\n", text + "\r\n"} {
		got, err := keyfile.ParsePublic(s)
		if testkit.Value(t, got, err); !got.Equal(public) {
			t.Errorf("another key from %q", s)
		}
	}
	for _, s := range []string{"", text[8:], text + " ", " " + text, text + "\n\n", text[:51], text + "=", "ed25519:" + strings.Repeat("\n", 44),
		text[:len(text)-2] + string(text[len(text)-2]+1) + "="} {
		testkit.WantRefusal(t, testkit.ErrOf(keyfile.ParsePublic(s)), fault.Malformed, "")
	}
}

func TestGenerateNeedsRandom(t *testing.T) {
	if _, err := keyfile.Generate(iotest.ErrReader(io.ErrClosedPipe)); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("got %v", err)
	}
	if _, err := keyfile.Generate(strings.NewReader("short")); err == nil {
		t.Error("a key from five bytes")
	}
}

func contents(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	return testkit.Value(t, data, err)
}

func TestFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "alice.key")
	key := newKey(t, 1)
	testkit.Value(t, 0, keyfile.Write(path, seal(t, key, "pass"), keyfile.PublicOf(key)))

	got, err := keyfile.Open(contents(t, path), fixedPassphrase("pass"))
	if testkit.Value(t, got, err); !got.Equal(key) {
		t.Error("another key was read")
	}
	public, err := keyfile.ParsePublic(string(contents(t, path+".pub")))
	if testkit.Value(t, public, err); !public.Equal(keyfile.PublicOf(key)) {
		t.Error("another public key was read")
	}
	for file, mode := range map[string]os.FileMode{path: 0o600, path + ".pub": 0o644} {
		info, err := os.Stat(file)
		if testkit.Value(t, info, err); info.Mode().Perm()&^mode != 0 {
			t.Errorf("%s has mode %v", file, info.Mode())
		}
	}
	line, _ := os.ReadFile(path + ".pub")
	if string(line) != keyfile.FormatPublic(public)+"\n" {
		t.Errorf("the .pub file holds %q", line)
	}
	testkit.WantRefusal(t, testkit.ErrOf(keyfile.Open(contents(t, path+".pub"), fixedPassphrase("pass"))), fault.Malformed, "")
	testkit.WantRefusal(t, testkit.ErrOf(keyfile.ParsePublic(string(contents(t, path)))), fault.Malformed, "")
}

// An existing file is never touched, and nothing new is left beside it.
func TestNothingIsOverwritten(t *testing.T) {
	key := newKey(t, 1)
	for _, there := range []string{"a.key", "a.key.pub"} {
		dir := t.TempDir()
		path := filepath.Join(dir, "a.key")
		testkit.Value(t, 0, os.WriteFile(filepath.Join(dir, there), []byte("precious"), 0o644))
		testkit.WantRefusal(t, keyfile.Write(path, keyfile.FormatPlain(key), keyfile.PublicOf(key)), fault.Conflict, "")
		files, err := os.ReadDir(dir)
		if testkit.Value(t, files, err); len(files) != 1 {
			t.Errorf("left behind: %v", files)
		}
		if data, _ := os.ReadFile(filepath.Join(dir, there)); string(data) != "precious" {
			t.Errorf("%s now holds %q", there, data)
		}
	}
}

func TestFilesThatCannotBe(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none", "a.key")
	testkit.WantRefusal(t, keyfile.Write(none, nil, make(ed25519.PublicKey, 32)), fault.NotFound, "")
}

func TestSignerNames(t *testing.T) {
	long := strings.Repeat("ä", 40)
	for path, want := range map[string]string{
		"alice.key.pub":             "alice",
		"/home/a/keys/Alice.KEY":    "alice",
		"bob":                       "bob",
		"carol.example.org.key.age": "carol.example.org",
		"Dr Who.pub":                "dr-who",
		"e\u0301ve.pub":             "éve",
		"a\x00b\u200bc\xff.pem":     "abc",
		"":                          "signer",
		".pub":                      "signer",
		"/":                         "signer",
		long + ".key":               long[:64],
	} {
		if got := keyfile.SignerName(path); got != want {
			t.Errorf("%q is %q, want %q", path, got, want)
		}
	}
}

func FuzzOpen(f *testing.F) {
	key := newKey(f, 1)
	f.Add(keyfile.FormatPlain(key))
	f.Add(seal(f, key, "pass"))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := keyfile.Open(data, func() (string, error) { return "", fault.New("test", fault.Canceled, "") })
		if err == nil && len(got) != ed25519.PrivateKeySize {
			t.Fatalf("a key of %d bytes", len(got))
		}
	})
}

func FuzzSignerName(f *testing.F) {
	f.Add("alice.key.pub")
	f.Fuzz(func(t *testing.T, path string) {
		name := keyfile.SignerName(path)
		if name == "" || len(name) > 64 || strings.ToLower(name) != name || strings.ContainsAny(name, " \n\t\x00") {
			t.Fatalf("%q became %q", path, name)
		}
	})
}
