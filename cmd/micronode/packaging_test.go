package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"micronode/fault"
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

// What the unit allows is what a node needs. A node that cannot start with its
// settings stays down, and one that failed otherwise is started again: 2 is also
// the code of a Go program that crashed.
func TestTheUnit(t *testing.T) {
	unit := map[string]string{}
	for _, line := range regexp.MustCompile(`(?m)^(\w+)=(.*)$`).FindAllStringSubmatch(readPackaging(t, "micronode.service"), -1) {
		unit[line[1]] += line[2] + " "
	}
	wants := map[string]string{
		"RestrictAddressFamilies":  "AF_INET AF_INET6 AF_UNIX AF_NETLINK ", // the last for the addresses of the machine
		"RestartPreventExitStatus": fmt.Sprintf("%d %d ", fault.Malformed.Exit(), fault.RejectPolicy.Exit()),
		"Type":                     "notify ",
	}
	for key, want := range wants {
		if unit[key] != want {
			t.Errorf("%s is %q, want %q", key, unit[key], want)
		}
	}
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		return // the unit is judged where there is systemd
	}
	out, err := exec.Command(analyze, "security", "--offline=true", "--threshold=15", "--no-pager", packaging+"micronode.service").CombinedOutput()
	if err != nil && !strings.Contains(string(out), "unrecognized option") { // before systemd 250
		t.Errorf("the unit exposes more than 1.5 of 10: %v\n%s", err, out)
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
