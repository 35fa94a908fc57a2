// Command recording writes the first five minutes with a node as a picture: it types
// what the README says, on a real node in a folder of its own, and draws a
// terminal with what was answered. The lines appear one after another, and all
// of them stay; who prefers less motion sees them at once. It runs in a network
// of its own (make recording sees to that), so that no other node is in the way.
//
//	recording -micronode .build/micronode -readme README.md -out docs/first-five-minutes.svg
package main

import (
	"bytes"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"
)

func main() {
	program := flag.String("micronode", ".build/micronode", "the program")
	readme := flag.String("readme", "README.md", "the file that is put")
	out := flag.String("out", "docs/first-five-minutes.svg", "the picture to write")
	flag.Parse()
	if err := record(*program, *readme, *out); err != nil {
		fmt.Fprintln(os.Stderr, "recording:", err)
		os.Exit(1)
	}
}

// step is something that is typed, and how many lines of the answer are shown.
type step struct {
	note  string // a remark above it
	typed string // ADDRESS stands for what the first put printed
	most  int
}

var steps = []step{
	{note: "in a second terminal", typed: "micronode put README.md", most: 3},
	{typed: "micronode get ADDRESS -o copy.md && cmp README.md copy.md && echo the same bytes", most: 3},
	{typed: "micronode status", most: 12},
	{typed: "TOKEN=$(micronode token mint --scope object:put --ttl 1h)", most: 1},
	{typed: `echo hello | curl -s -H "Authorization: Bearer $TOKEN" --data-binary @- $GATEWAY/put`, most: 2},
	{typed: "micronode stop", most: 2},
}

// record runs the steps and writes the picture.
func record(program, readme, out string) (err error) {
	folder, err := os.MkdirTemp("", "micronode-recording-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	text, err := os.ReadFile(readme)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, "README.md"), text, 0o600); err != nil {
		return err
	}
	if program, err = filepath.Abs(program); err != nil {
		return err
	}
	if err := os.Symlink(program, filepath.Join(folder, "micronode")); err != nil {
		return err
	}
	s := &session{folder: folder}
	defer s.end()
	if err := s.start(); err != nil {
		return err
	}
	for _, one := range steps {
		if err := s.take(one); err != nil {
			return err
		}
	}
	if err := s.stopped(); err != nil {
		return err
	}
	return os.WriteFile(out, s.picture(), 0o644)
}

// session is a node, and the lines that were seen so far.
type session struct {
	folder         string
	address        string // of the first object
	token, gateway string
	node           *exec.Cmd
	banner, log    *os.File // what the node prints
	lines          []line
	at             time.Duration // when the next line appears
}

// line is one line of the terminal.
type line struct {
	kind string // note, typed, more of what is typed, or said
	text string
	at   time.Duration
}

func (s *session) command(typed string) *exec.Cmd {
	command := exec.Command("bash", "-c", typed)
	command.Dir = s.folder
	for _, one := range os.Environ() {
		if !strings.HasPrefix(one, "MICRO_") && !strings.HasPrefix(one, "PATH=") {
			command.Env = append(command.Env, one)
		}
	}
	command.Env = append(command.Env, "PATH="+s.folder+":"+os.Getenv("PATH"), "HOME="+s.folder, "TOKEN="+s.token, "GATEWAY="+s.gateway)
	return command
}

// start starts the node and waits until it serves. What it prints goes to files:
// a file can be read while it is written.
func (s *session) start() (err error) {
	if s.banner, err = os.Create(filepath.Join(s.folder, "banner")); err != nil {
		return err
	}
	if s.log, err = os.Create(filepath.Join(s.folder, "log")); err != nil {
		return err
	}
	const typed = "micronode run"
	s.node = s.command("exec " + typed)
	s.node.Stdout, s.node.Stderr = s.banner, s.log
	if err := s.node.Start(); err != nil {
		return err
	}
	if said, err := s.command("micronode status --wait 30s").CombinedOutput(); err != nil {
		return fmt.Errorf("the node does not start: %w: %s", err, said)
	}
	gateway, err := s.command(`micronode status --json | grep -o '"http":"[^"]*"' | cut -d '"' -f 4`).Output()
	if err != nil {
		return fmt.Errorf("where the node listens: %w", err)
	}
	s.gateway = "http://" + strings.TrimSpace(string(gateway))
	said, err := os.ReadFile(s.banner.Name())
	if err != nil {
		return err
	}
	s.show(typed, string(said), 18)
	return nil
}

// take types one line, which must succeed.
func (s *session) take(one step) error {
	if one.note != "" {
		s.add("note", "# "+one.note, time.Second)
	}
	typed := strings.ReplaceAll(one.typed, "ADDRESS", s.address)
	run := typed
	if name, value, set := strings.Cut(typed, "=$("); set { // a variable lives as long as its shell: here for one line
		run = strings.TrimSuffix(value, ")")
		if name != "TOKEN" {
			return fmt.Errorf("%s: only TOKEN is kept", typed)
		}
	}
	var said, problem bytes.Buffer
	command := s.command(run)
	command.Stdout, command.Stderr = &said, &problem
	if err := command.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s%s", typed, err, &said, &problem)
	}
	shown := said.String()
	if run != typed {
		s.token, shown = strings.TrimSpace(shown), ""
	}
	if s.address == "" {
		s.address, _, _ = strings.Cut(shown, " ")
	}
	s.show(strings.Replace(typed, "$GATEWAY", s.gateway, 1), shown, one.most)
	return nil
}

// stopped shows the last line of the node.
func (s *session) stopped() error {
	err := s.node.Wait()
	s.node = nil
	if err != nil {
		return fmt.Errorf("the node ends with %w", err)
	}
	said, err := os.ReadFile(s.log.Name())
	if err != nil {
		return err
	}
	last := strings.Split(strings.TrimSpace(string(said)), "\n")
	s.add("note", "# in the first terminal", time.Second)
	s.add("said", last[len(last)-1], time.Second)
	return nil
}

// end kills a node that still runs, because a step failed.
func (s *session) end() {
	if s.node != nil && s.node.Process != nil {
		_ = s.node.Process.Kill()
		_ = s.node.Wait()
	}
	_, _ = s.banner.Close(), s.log.Close()
}

// show adds what was typed and the beginning of what was answered.
func (s *session) show(typed, said string, most int) {
	s.add("typed", typed, 1500*time.Millisecond)
	lines := strings.Split(strings.Trim(said, "\n"), "\n")
	if said == "" {
		lines = nil
	}
	for _, one := range lines[:min(len(lines), most)] {
		s.add("said", one, 80*time.Millisecond)
	}
	if len(lines) > most {
		s.add("said", "…", 80*time.Millisecond)
	}
}

const columns = 110

func (s *session) add(kind, text string, pause time.Duration) {
	text = strings.ReplaceAll(strings.TrimRight(text, " "), "\t", "    ")
	s.at += pause
	for utf8.RuneCountInString(text) > columns {
		runes := []rune(text)
		cut := max(strings.LastIndex(string(runes[:columns]), " "), columns/2)
		s.lines = append(s.lines, line{kind, text[:cut], s.at})
		kind, text = strings.Replace(kind, "typed", "more", 1), "  "+strings.TrimSpace(text[cut:])
	}
	s.lines = append(s.lines, line{kind, text, s.at})
}

const style = `
svg { --paper: #ffffff; --edge: #d0d7de; --ink: #1f2328; --quiet: #59636e; --typed: #0550ae; }
@media (prefers-color-scheme: dark) { svg { --paper: #0d1117; --edge: #3d444d; --ink: #e6edf3; --quiet: #9198a1; --typed: #79c0ff; } }
rect { fill: var(--paper); stroke: var(--edge); }
text { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; white-space: pre; fill: var(--ink); animation: appear 0.2s both; }
.note { fill: var(--quiet); }
.typed, .more { fill: var(--typed); font-weight: 600; }
@keyframes appear { from { opacity: 0; } to { opacity: 1; } }
@media (prefers-reduced-motion: reduce) { text { animation: none; } }
`

// picture draws the lines.
func (s *session) picture() []byte {
	const lineHeight, margin, wide = 19, 18, 7.9
	height := 2*margin + lineHeight*len(s.lines)
	width := 2*margin + int(wide*columns)
	var b bytes.Buffer
	fmt.Fprintf(&b, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%[1]d\" height=\"%[2]d\" role=\"img\" aria-label=\"A terminal: the first five minutes with a node\">\n", width, height)
	fmt.Fprintf(&b, "<!-- Written by make recording from a real run. -->\n<style>%s</style>\n<rect x=\"0.5\" y=\"0.5\" width=\"%d\" height=\"%d\" rx=\"8\"/>\n", style, width-1, height-1)
	for i, one := range s.lines {
		text := one.text
		if one.kind == "typed" {
			text = "$ " + text
		}
		fmt.Fprintf(&b, "<text x=\"%d\" y=\"%d\" class=\"%s\" style=\"animation-delay:%.1fs\">%s</text>\n", margin, margin+lineHeight*i+13, one.kind, one.at.Seconds(), escape(cmp.Or(text, " ")))
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// escape makes a text part of a document in XML. What no such document may have
// is shown as a question mark.
func escape(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == utf8.RuneError {
			return '?'
		}
		return r
	}, text)
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(text)
}
