package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const packaging = "../../packaging/"

func readPackaging(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(packaging + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// What a service or a container starts is a command of this program.
func TestWhatServicesStart(t *testing.T) {
	for name, pattern := range map[string]string{
		"micronode.service": `(?m)^ExecStart=/usr/bin/micronode (.*)$`,
		"micronode.plist":   `<string>exec /usr/local/bin/micronode (.*)</string>`,
		"compose.yaml":      `(?m)^ *command: \[(.*)\]$`,
	} {
		found := regexp.MustCompile(pattern).FindStringSubmatch(readPackaging(t, name))
		if found == nil {
			t.Errorf("%s starts nothing", name)
			continue
		}
		words := strings.NewReplacer(`"$HOME/Library/Application Support/micronode"`, "folder", `"`, "", ",", " ").Replace(found[1])
		line, err := newParser(t.Context(), newConsole()).Parse(strings.Fields(words))
		if err != nil || line.Command() != "run" {
			t.Errorf("%s starts %q: %v", name, words, err)
		}
	}
}

// The settings that the packaged file shows are settings, if somebody removes
// the mark before them.
func TestThePackagedSettings(t *testing.T) {
	text := regexp.MustCompile(`(?m)^# (\[\w+\]$|\w+ = )`).ReplaceAllString(readPackaging(t, "micronode.toml"), "$1")
	text = strings.ReplaceAll(text, "ID@HOST:PORT", "giqezx27uzky3gjhkewuaadwx63hqaj6znudhrysrtl4jzx5lnhq@192.0.2.1:9500")
	file := filepath.Join(t.TempDir(), "micronode.toml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, failed bytes.Buffer
	c := newConsole()
	c.out, c.err = &out, &failed
	if code := execute(t.Context(), c, []string{"config", "check", file}); code != 0 || strings.Count(text, " = ") < 6 {
		t.Errorf("%d: %s\n%s", code, failed.String(), text)
	}
}

// A script that does not parse leaves a package half installed.
func TestThePackagedScripts(t *testing.T) {
	for _, name := range []string{"postinstall.sh", "preremove.sh", "postremove.sh"} {
		if out, err := exec.Command("sh", "-n", packaging+name).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
}
