package main

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"micronode/fault"
	"micronode/internal/registry/keyfile"
	"micronode/internal/testkit"
)

func TestPassphrases(t *testing.T) {
	alice := newSigner(t, "alice")
	sealed, err := keyfile.SealWith(alice.key, "open sesame", 1)
	testkit.Must(t, err)
	folder := t.TempDir()
	locked, pass, wrong := filepath.Join(folder, "alice.key"), filepath.Join(folder, "pass"), filepath.Join(folder, "wrong")
	for path, data := range map[string]string{locked: string(sealed), pass: "open sesame\r\nmore\n", wrong: "open barley\n"} {
		testkit.Must(t, os.WriteFile(path, []byte(data), 0o600))
	}
	p := newTestProposal(alice)
	p.serve(t)
	line := func(more ...string) []string {
		return append([]string{"registry", "approve", someProposalID, "--key", locked, "--yes"}, more...)
	}
	typed := newTestConsole(t)
	typed.inTerminal, typed.in = true, strings.NewReader("open sesame\n")
	typed.expect(t, t.Context(), 0, line(), "passphrase of "+locked+": ")
	newTestConsole(t).expect(t, t.Context(), 0, line("--passphrase-file", pass))
	piped := newTestConsole(t)
	piped.in = strings.NewReader("open sesame\n")
	piped.expect(t, t.Context(), 0, line("--passphrase-file", "-"))
	p.wantApproval(t, 3, alice)
	newTestConsole(t).expect(t, t.Context(), fault.Unauthorized.Exit(), line("--passphrase-file", wrong), "the passphrase is wrong")
	newTestConsole(t).expect(t, t.Context(), fault.NotFound.Exit(), line("--passphrase-file", "/nowhere"), "/nowhere: there is no such file")
	newTestConsole(t).expect(t, t.Context(), fault.Unauthorized.Exit(), line(), "there is no terminal to ask for it\nRun the command in a terminal, or name a file with --passphrase-file")
	gone := newTestConsole(t)
	gone.inTerminal = true
	gone.expect(t, t.Context(), fault.Canceled.Exit(), line(), "there was no answer")
	long := newTestConsole(t)
	long.inTerminal, long.in = true, strings.NewReader(strings.Repeat("x", maxPassphrase+2))
	long.expect(t, t.Context(), fault.Malformed.Exit(), line(), "the line is too long")
	t.Setenv("MICRO_PASSPHRASE_FILE", pass)
	newTestConsole(t).expect(t, t.Context(), 0, line())
	p.wantApproval(t, 4, alice)
}

// answerPrompts answers the prompts on a terminal, and records its output. A
// prompt without an answer is interrupted.
func answerPrompts(master *os.File, interrupt func(), answers ...string) func() string {
	shown, done := strings.Builder{}, make(chan struct{})
	go func() {
		defer close(done)
		seen, part := 0, make([]byte, 100)
		for {
			n, err := master.Read(part)
			shown.Write(part[:n])
			if err != nil {
				return
			}
			if asked := strings.Count(shown.String(), ": "); asked > seen && seen < len(answers) {
				_, _ = io.WriteString(master, answers[seen])
				seen++
			} else if asked > seen {
				interrupt()
			}
		}
	}()
	return func() string {
		<-done
		return shown.String()
	}
}

// A passphrase is not echoed, and the terminal is restored, also after Ctrl-C.
func TestAPassphraseIsNotShown(t *testing.T) {
	for name, c := range map[string]struct {
		answers []string
		want    string
		err     fault.Kind
	}{
		"typed twice": {[]string{"hush hush\n", "hush hush\n"}, "new passphrase: \r\nthe same again: \r\n", 0},
		"interrupted": {nil, "new passphrase: ", fault.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			master, slave, err := openTerminal()
			testkit.Must(t, err)
			defer master.Close()
			before, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
			testkit.Must(t, err)
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			shown := answerPrompts(master, interrupt, c.answers...)
			s := newTestConsole(t)
			s.in, s.err, s.inTerminal = slave, slave, true
			got, err := passphraseFlags{}.newPassphrase(ctx, s.console)
			if fault.KindOf(err) != c.err || c.err == 0 && got != "hush hush" {
				t.Errorf("%q, %v", got, err)
			}
			if after, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS); err != nil || after.Lflag != before.Lflag {
				t.Errorf("the terminal is another than before: %v", err)
			}
			_ = slave.Close()
			if text := shown(); text != c.want {
				t.Errorf("it shows %q", text)
			}
		})
	}
	s := newTestConsole(t)
	file, err := os.Open(os.DevNull)
	testkit.Must(t, err)
	defer file.Close()
	s.in, s.inTerminal = file, true
	if _, err := s.prompt(t.Context(), "x: ", true); err == nil {
		t.Error("what is no terminal is taken for one")
	}
}

func TestMakingAKey(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "Alice.key")
	differ := newTestConsole(t)
	differ.inTerminal, differ.in = true, strings.NewReader("one\ntwo\n")
	differ.expect(t, t.Context(), fault.Malformed.Exit(), []string{"registry", "keygen", "--out", file}, "new passphrase: the same again: micronode: the two passphrases differ\nNothing was written.")
	for _, typed := range []string{"", "one\n"} {
		gone := newTestConsole(t)
		gone.inTerminal, gone.in = true, strings.NewReader(typed)
		gone.expect(t, t.Context(), fault.Canceled.Exit(), []string{"registry", "keygen", "--out", file}, "there was no answer")
	}
	empty := newTestConsole(t)
	empty.inTerminal, empty.in = true, strings.NewReader("\n\n")
	empty.expect(t, t.Context(), fault.Malformed.Exit(), []string{"registry", "keygen", "--out", file}, "the passphrase is empty")
	newTestConsole(t).expect(t, t.Context(), fault.Unauthorized.Exit(), []string{"registry", "keygen", "--out", file}, "there is no terminal")
	if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	s := newTestConsole(t)
	s.expect(t, t.Context(), 0, []string{"registry", "keygen", "--out", file, "--no-passphrase", "--json"})
	var made signerKey
	line, _ := os.ReadFile(file + ".pub")
	public, err := keyfile.ParsePublic(string(line))
	if json.Unmarshal(s.stdout.Bytes(), &made) != nil || err != nil || made != (signerKey{"alice", keyfile.FormatPublic(public), file}) {
		t.Errorf("%s, %v", &s.stdout, err)
	}
	plain, _ := os.ReadFile(file)
	key, err := keyfile.Open(plain, nil)
	if err != nil || !keyfile.PublicOf(key).Equal(public) {
		t.Errorf("the two files do not belong together: %v", err)
	}
	for _, there := range []string{file, strings.TrimSuffix(file, ".key")} {
		if there != file {
			testkit.Must(t, os.WriteFile(there+".pub", nil, 0o600))
		}
		newTestConsole(t).expect(t, t.Context(), fault.Conflict.Exit(), []string{"registry", "keygen", "--out", there, "--no-passphrase"}, "is there already\nChoose another file.")
	}
	newTestConsole(t).expect(t, t.Context(), fault.NotFound.Exit(), []string{"registry", "keygen", "--out", "/nowhere/key", "--no-passphrase"}, "/nowhere/key.pub cannot be written")
}
