package capability

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"micronode/fault"
	"micronode/internal/disk"
)

const (
	secretOp      = "capability.root"
	maxSecret     = 4096            // bytes of text; a secret is much shorter
	secretTimeout = 5 * time.Second // for the writer of a pipe
	howToMake     = "Make a secret with: head -c 32 /dev/urandom | base64."
)

// readSecret finds the text of a secret and decodes it. Errors never repeat
// the spec, because it may be the secret itself.
func readSecret(spec string) ([]byte, error) {
	text, err := SecretText(spec)
	if err != nil {
		return nil, err
	}
	defer clear(text)
	trimmed := bytes.TrimSpace(text)
	if bytes.HasPrefix(trimmed, []byte(Prefix)) { // it would pass for base64
		return nil, secretError(howToMake, "this is a token, not the secret under which tokens are minted")
	}
	if secret := decodeSecret(trimmed); len(secret) >= keySize {
		return secret, nil
	}
	return nil, secretError(howToMake+" Then name it as file:PATH, env:VAR or fd:N.",
		"the secret must be 32 bytes or more in hex or base64; what was given has %d characters and is not", len(trimmed))
}

// SecretText fetches the text from where the spec points.
func SecretText(spec string) ([]byte, error) {
	switch scheme, rest, _ := strings.Cut(spec, ":"); scheme {
	case "file":
		return fileSecret(rest)
	case "env":
		return envSecret(rest)
	case "fd":
		return descriptorSecret(rest)
	default:
		return []byte(spec), nil
	}
}

// decodeSecret reads hex or any of the four spellings of base64, or returns
// nil. Hex digits could be base64 too; hex wins, because a text of hex digits
// only is meant as hex.
func decodeSecret(text []byte) []byte {
	secret := make([]byte, len(text)) // enough for each
	if n, err := hex.Decode(secret, text); err == nil {
		return secret[:n]
	}
	for _, encoding := range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
		if n, err := encoding.Decode(secret, text); err == nil {
			return secret[:n]
		}
	}
	clear(secret)
	return nil
}

// redactName is how an error names the target of a spec. With env:$VAR instead
// of env:VAR the name is the secret itself.
func redactName(name string) string {
	if !strings.HasPrefix(name, "/") && len(decodeSecret([]byte(name))) >= keySize {
		return "(not shown, since it looks like a secret)"
	}
	return name
}

// fileSecret opens without blocking and reads with a deadline, so that a named
// pipe without a writer cannot hold up the start.
func fileSecret(path string) ([]byte, error) {
	file, err := disk.OpenAtOnce(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, secretError(howToMake+" Keep it in a file that only the node's user can read.", "there is no file %s", redactName(path))
	}
	if err != nil {
		return nil, wrapSecretError(err, "Make the file readable for the node's user, and for nobody else.", "the file %s cannot be read", path)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, wrapSecretError(err, "Check that it is there, and open for reading.", "the file %s cannot be read", path)
	}
	owner, known := disk.Owner(info)
	switch {
	case !info.Mode().IsRegular():
	case runtime.GOOS != "windows" && info.Mode().Perm()&0o006 != 0:
		return nil, secretError("Type: chmod 600 "+path, "every user may read or write the file %s (mode %04o)", path, info.Mode().Perm())
	case runtime.GOOS != "windows" && info.Mode().Perm()&0o020 != 0:
		return nil, secretError("Type: chmod 600 "+path, "its group may write the file %s (mode %04o)", path, info.Mode().Perm())
	case runtime.GOOS != "windows" && (!known || owner != 0 && owner != uint32(os.Geteuid())):
		return nil, secretError(fmt.Sprintf("If you trust its owner and its content, type: chown %d %s. Otherwise create your own.", os.Geteuid(), path), "the file %s belongs to another user, who may know its content", path)
	}
	_ = file.SetReadDeadline(time.Now().Add(secretTimeout)) // a regular file has none and needs none
	return readAll(file, "file "+path)
}

func envSecret(name string) ([]byte, error) {
	text, set := os.LookupEnv(name)
	if !set {
		return nil, secretError("Name the variable, without a dollar sign, and export it. "+howToMake, "the environment has no variable %s", redactName(name))
	}
	return []byte(text), nil
}

// descriptorSecret reads an inherited descriptor to its end and closes it, so
// that the secret can be read once.
func descriptorSecret(number string) ([]byte, error) {
	fd, err := strconv.ParseUint(number, 10, 16)
	if err != nil {
		return nil, secretError("Write fd:3 for what the shell opened with 3<FILE.", "fd: needs the number of a descriptor")
	}
	source := openInherited(uintptr(fd))
	defer source.Close()
	return readAll(source, "descriptor "+number)
}

// readAll reads a bounded text.
func readAll(from io.Reader, what string) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(from, maxSecret+1))
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, secretError("Write the secret into it and close it.", "the %s was not closed within %s", what, secretTimeout)
	case err != nil:
		return nil, wrapSecretError(err, "Check that it is there, and open for reading.", "the %s cannot be read", what)
	case len(text) > maxSecret:
		return nil, secretError(howToMake, "the %s holds more than %d bytes; that is no secret in hex or base64", what, maxSecret)
	}
	return text, nil
}

func secretError(next, format string, args ...any) error {
	return wrapSecretError(nil, next, format, args...)
}

func wrapSecretError(cause error, next, format string, args ...any) error {
	err := fault.New(secretOp, fault.Malformed, format, args...)
	err.Next, err.Err = next, cause
	return err
}
