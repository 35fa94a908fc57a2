package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// program is where the program for a platform lies.
func (r *release) program(p platform) string {
	file := filepath.Join(r.work, p.String(), name)
	if p.system == "windows" {
		file += ".exe"
	}
	return file
}

// tags leaves a page of grpc's own out, which nobody is shown. It is made from a template, and templates call methods by names that the linker
// cannot see: it would keep every method of the program (ADR 81).
const tags = "grpcnotrace"

// largest is what a program may have. It is exceeded when something keeps every method again, so that 15 MB more are there which nobody calls.
const largest = 50e6

// build compiles the program for a platform: static, without paths, without a build ID, without what only debuggers need. Panics still name
// functions and lines.
func (r *release) build(p platform) error {
	flags := fmt.Sprintf("-s -w -buildid= -X %[1]s/internal/observe.version=%[2]s -X %[1]s/internal/observe.commit=%[3]s", r.module, r.version, r.commit)
	if _, err := r.commandFor(p, "go", "build", "-tags", tags, "-trimpath", "-buildvcs=false", "-ldflags", flags, "-o", r.program(p), "./cmd/"+name); err != nil {
		return fmt.Errorf("%s: %w", p, err)
	}
	info, err := os.Stat(r.program(p))
	if err != nil {
		return err
	}
	if info.Size() > largest {
		return fmt.Errorf("%s: the program has %.1f MB, at most %.0f are wanted: docs/adr/0081-what-is-never-called.md says what to look for", p, float64(info.Size())/1e6, largest/1e6)
	}
	_, err = fmt.Fprintf(r.log, "%-16s %5.1f MB\n", p, float64(info.Size())/1e6)
	return err
}

// file is a file of an archive, a package or the image, at a path below its root.
type file struct {
	path  string
	mode  os.FileMode
	body  []byte
	owner int // of user and group; only the image has any but root
}

// sharedFiles are those that every platform gets. The program prints the man page and the completions, from the tree of its commands.
func (r *release) sharedFiles() ([]file, error) {
	var files []file
	for _, one := range []struct {
		path      string
		arguments []string
	}{
		{"man/" + name + ".1", []string{"man", "--date", r.made.Format("2006-01-02")}},
		{"completions/" + name + ".bash", []string{"completion", "bash"}},
		{"completions/_" + name, []string{"completion", "zsh"}},
		{"completions/" + name + ".fish", []string{"completion", "fish"}},
		{"completions/" + name + ".ps1", []string{"completion", "powershell"}},
	} {
		out, err := exec.Command(r.program(r.host), one.arguments...).Output()
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", name, strings.Join(one.arguments, " "), err)
		}
		files = append(files, file{path: one.path, mode: 0o644, body: out})
	}
	for _, path := range []string{"LICENSE", "README.md", "CHANGELOG.md"} {
		body, err := os.ReadFile(filepath.Join(r.folder, path))
		if err != nil {
			return nil, err
		}
		files = append(files, file{path: path, mode: 0o644, body: body})
	}
	return files, nil
}

// filesOf are all files of a platform's archive.
func (r *release) filesOf(p platform, shared []file, licences []byte) ([]file, error) {
	body, err := os.ReadFile(r.program(p))
	if err != nil {
		return nil, err
	}
	files := append([]file{{path: filepath.Base(r.program(p)), mode: 0o755, body: body}, {path: "LICENSES-OF-OTHERS.txt", mode: 0o644, body: licences}}, shared...)
	for _, path := range services[p.system] {
		body, err := os.ReadFile(filepath.Join(r.folder, "packaging", path))
		if err != nil {
			return nil, err
		}
		files = append(files, file{path: path, mode: 0o644, body: bytes.ReplaceAll(body, []byte("\r\n"), []byte("\n"))})
	}
	return files, nil
}

// services are the files of packaging/ by which each system starts the program by itself.
var services = map[string][]string{
	"linux":  {"micronode.service", "micronode.toml"},
	"darwin": {"micronode.plist"},
}
