package main

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// name is that of the program, of its package and of its image.
const name = "micronode"

// release is one release.
type release struct {
	// set by main
	folder, out, version, keyFile string
	toolchain                     string // the Go that compiles, as GOTOOLCHAIN has it
	log                           io.Writer

	// set by plan
	module    string // its path
	commit    string
	made      time.Time // the time that everything in it has
	platforms []platform
	host      platform           // which can run here
	key       ed25519.PrivateKey // nil if nobody signs

	work string // a folder for what is on the way; set by prepareOut, and removed at the end
}

// toolchain is the compiler of a release: another one makes other bytes. Go fetches it where it is not installed.
const toolchain = "go1.26.8"

// platform is what a program is compiled for.
type platform struct{ system, processor string }

func (p platform) String() string { return p.system + "_" + p.processor }

// everywhere is what a release is for if no platforms are named.
var everywhere = []string{"linux/amd64", "linux/arm64", "linux/arm", "darwin/arm64", "darwin/amd64", "windows/amd64", "windows/arm64"}

// versionPattern has the words for drafts that Alpine knows; Debian and RPM take any.
var versionPattern = regexp.MustCompile(`^\d+\.\d+\.\d+(-(alpha|beta|pre|rc)\d*)?$`)

// plan finds out what is released. A tree with changes in it has no commit, and can be built by nobody else.
func (r *release) plan(platforms []string) error {
	if len(platforms) == 0 {
		platforms = everywhere
	}
	for _, one := range platforms {
		system, processor, ok := strings.Cut(one, "/")
		if !ok {
			return fmt.Errorf("%q is no platform: want GOOS/GOARCH", one)
		}
		r.platforms = append(r.platforms, platform{system, processor})
	}
	r.host = platform{runtime.GOOS, runtime.GOARCH}

	module, err := r.command("go", "list", "-m", "-f", "{{.Path}}")
	if err != nil {
		return err
	}
	r.module = module
	if r.version == "" {
		text, err := os.ReadFile(filepath.Join(r.folder, "VERSION"))
		if err != nil {
			return err
		}
		r.version = strings.TrimSpace(string(text))
	}
	if !versionPattern.MatchString(r.version) {
		return fmt.Errorf("%q is no version: want something like 0.1.0", r.version)
	}
	if err := r.checkChangelog(); err != nil {
		return err
	}
	if err := r.readKey(); err != nil {
		return err
	}

	r.commit = "unknown"
	if status, err := r.command("git", "status", "--porcelain"); err == nil {
		if status != "" {
			return errors.New("there are changes that are not committed, which nobody else can build:\n" + status)
		}
		if r.commit, err = r.command("git", "rev-parse", "HEAD"); err != nil {
			return err
		}
	}
	seconds := os.Getenv("SOURCE_DATE_EPOCH")
	if seconds == "" {
		if seconds, err = r.command("git", "log", "-1", "--format=%ct"); err != nil {
			return fmt.Errorf("what time is it? Set SOURCE_DATE_EPOCH, or release from a clone of the repository: %w", err)
		}
	}
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil || n < 0 {
		return fmt.Errorf("SOURCE_DATE_EPOCH is %q: want seconds since 1970", seconds)
	}
	r.made = time.Unix(n, 0).UTC()
	return nil
}

// checkChangelog wants a chapter about the version, so that nobody has to guess what an upgrade brings.
func (r *release) checkChangelog() error {
	text, err := os.ReadFile(filepath.Join(r.folder, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	for line := range bytes.Lines(text) {
		title, found := strings.CutPrefix(strings.TrimSpace(string(line)), "## ")
		draft := title == "Unreleased" && strings.Contains(r.version, "-") // such as 0.2.0-rc1
		if found && (title == r.version || strings.HasPrefix(title, r.version+" ") || draft) {
			return nil
		}
	}
	return fmt.Errorf("CHANGELOG.md has no chapter %q: say what is new, what is mended and what an upgrade needs", "## "+r.version)
}

// environ is what is set where Go compiles for a platform: all that could make other bytes.
func (r *release) environ(p platform) []string {
	return append(os.Environ(), "GOTOOLCHAIN="+r.toolchain, "GOWORK=off", "GOFLAGS=-mod=readonly", "GOEXPERIMENT=", "GOFIPS140=off",
		"CGO_ENABLED=0", "GOOS="+p.system, "GOARCH="+p.processor, "GOARM=7", "GOAMD64=v1", "GOARM64=v8.0")
}

// command runs a program in the module's folder, for this machine, and returns what it prints.
func (r *release) command(program string, arguments ...string) (string, error) {
	return r.commandFor(r.host, program, arguments...)
}

// commandFor runs a program in the module's folder as where Go compiles for a platform.
func (r *release) commandFor(p platform, program string, arguments ...string) (string, error) {
	run := exec.Command(program, arguments...)
	run.Dir, run.Env = r.folder, r.environ(p)
	var failed bytes.Buffer
	run.Stderr = &failed
	out, err := run.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", program, strings.Join(arguments, " "), err, failed.Bytes())
	}
	return strings.TrimSpace(string(out)), nil
}
