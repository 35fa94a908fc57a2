package main

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/crypto/blake2b"
	"lukechampine.com/blake3"
)

const checksums = "SHA256SUMS"

// about is what a release says about itself, besides its bytes: `micronode upgrade --check` reads it.
type about struct {
	Version string `json:"version"`
	Commit  string `json:"commit"`
	Format  int    `json:"format"` // of the folders that its programs read and write
}

// writeAbout asks the program itself.
func (r *release) writeAbout() error {
	out, err := exec.Command(r.program(r.host), "upgrade", "--check", "--json").Output()
	if err != nil {
		return fmt.Errorf("%s upgrade --check: %w", name, err)
	}
	var said struct{ Here struct{ Format int } }
	if err := json.Unmarshal(out, &said); err != nil || said.Here.Format == 0 {
		return fmt.Errorf("%s upgrade --check says %q: %w", name, out, err)
	}
	text, err := json.Marshal(about{r.version, r.commit, said.Here.Format})
	if err != nil {
		return err
	}
	return os.WriteFile(r.path("release.json"), append(text, '\n'), 0o644)
}

// writeChecksums lists the hashes of everything that was made, as sha256sum does.
func (r *release) writeChecksums() error {
	entries, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	var list bytes.Buffer
	for _, entry := range entries {
		body, err := os.ReadFile(r.path(entry.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&list, "%x  %s\n", sha256.Sum256(body), entry.Name())
	}
	return os.WriteFile(r.path(checksums), list.Bytes(), 0o644)
}

// sign says who made the list, in two ways. The first is a change for a registry: once its signers have approved it, `micronode registry
// bundle` is a proof for everybody that this quorum released these bytes. The second is a signature by one key, which minisign verifies.
func (r *release) sign() error {
	list, err := os.ReadFile(r.path(checksums))
	if err != nil {
		return err
	}
	address := blake3.Sum256(list)
	change, err := json.MarshalIndent(map[string]any{"ops": []any{map[string]any{"op": "put", "item": map[string]any{
		"kind": "name", "id": name + "-" + r.version, "manifest": "b3:" + hex.EncodeToString(address[:]), // the members that a registry accepts, and no others
	}}}}, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(r.path("registry-change.json"), append(change, '\n'), 0o644); err != nil {
		return err
	}
	if r.key == nil {
		fmt.Fprintln(r.log, "not signed: no -key")
		return nil
	}
	if err := os.WriteFile(r.path(checksums+".minisig"), r.minisign(r.key, list), 0o644); err != nil {
		return err
	}
	return os.WriteFile(r.path(name+".pub"), publicKey(r.key), 0o644)
}

// readKey reads the key before anything is built, so that a wrong one costs nobody a quarter of an hour.
func (r *release) readKey() error {
	if r.keyFile == "" {
		return nil
	}
	text, err := os.ReadFile(r.keyFile)
	if err != nil {
		return err
	}
	seed, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(seed) != ed25519.SeedSize {
		return fmt.Errorf("%s is no key: want 64 hex digits, as from `openssl rand -hex 32`", r.keyFile)
	}
	r.key = ed25519.NewKeyFromSeed(seed)
	return nil
}

// minisign signs as minisign does, with the hash of the file. The time is that of the release, so that the signature is the same each time.
func (r *release) minisign(key ed25519.PrivateKey, body []byte) []byte {
	hash := blake2b.Sum512(body)
	signature := ed25519.Sign(key, hash[:])
	trusted := fmt.Sprintf("timestamp:%d\tfile:%s\thashed\t%s %s", r.made.Unix(), checksums, name, r.version)
	global := ed25519.Sign(key, append(bytes.Clone(signature), trusted...))
	packed := append(append([]byte("ED"), keyID(key)...), signature...)
	return fmt.Appendf(nil, "untrusted comment: signature of %s %s\n%s\ntrusted comment: %s\n%s\n", name, r.version,
		base64.StdEncoding.EncodeToString(packed), trusted, base64.StdEncoding.EncodeToString(global))
}

// publicKey is the file that minisign -p reads.
func publicKey(key ed25519.PrivateKey) []byte {
	packed := append(append([]byte("Ed"), keyID(key)...), key.Public().(ed25519.PublicKey)...)
	return fmt.Appendf(nil, "untrusted comment: public key of the releases of %s\n%s\n", name, base64.StdEncoding.EncodeToString(packed))
}

// keyID tells keys apart; it is made of the key, so that nobody has to keep it.
func keyID(key ed25519.PrivateKey) []byte {
	hash := blake2b.Sum256(key.Public().(ed25519.PublicKey))
	return hash[:8]
}
