package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"

	"golang.org/x/mod/semver"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/registry"
)

// What a release consists of is what tools/release makes: archives, the list of
// their hashes, and the proof that the quorum of a registry approved the list.

const (
	checksumsFile = "SHA256SUMS"
	maxChecksums  = 1 << 20

	// aboutFile says what the checksums do not. They list it.
	aboutFile = "release.json"
	maxAbout  = 64 << 10

	// In a registry a release is a name, micronode-VERSION, which stands for the
	// list of its checksums.
	releaseKind   = "name"
	releasePrefix = "micronode-"

	// maxLogWalk is how many versions of a log are looked through for the one
	// that released something.
	maxLogWalk = 10_000
)

func proofFile(version string) string { return releasePrefix + version + ".json" }

// archivePattern finds the version and the platform in the name of an archive.
var archivePattern = regexp.MustCompile(`^micronode_(\d+\.\d+\.\d+(?:-[a-z]+\d*)?)_([a-z]+_[a-z0-9]+)\.(?:tar\.gz|zip)$`)

// releaseItem is a release in a registry.
type releaseItem struct {
	Kind      string     `json:"kind"`
	ID        string     `json:"id"`
	Checksums b3.Address `json:"manifest"`
}

// version is that of the release; empty if the item is another.
func (r releaseItem) version() string {
	version, ok := strings.CutPrefix(r.ID, releasePrefix)
	if !ok || r.Kind != releaseKind || compareVersions(version, version) != orderSame {
		return ""
	}
	return version
}

// The order of two versions.
const (
	orderNewer   = "newer"
	orderSame    = "same"
	orderOlder   = "older"
	orderUnknown = "unknown" // one of them is not that of a release
)

// draftNumber separates the number of a draft, so that rc10 is newer than rc9.
var draftNumber = regexp.MustCompile(`(-[a-z]+)(\d+)$`)

// compareVersions says what an offered version is, compared with the one here.
func compareVersions(offered, here string) string {
	form := func(version string) string {
		return "v" + draftNumber.ReplaceAllString(strings.TrimPrefix(version, "v"), "$1.$2")
	}
	a, b := form(offered), form(here)
	if !semver.IsValid(a) || !semver.IsValid(b) {
		return orderUnknown
	}
	return map[int]string{-1: orderOlder, 0: orderSame, 1: orderNewer}[semver.Compare(a, b)]
}

// offerOfFiles reads a release in a folder or at a URL. Of an archive at a URL
// it reads only the hash.
func offerOfFiles(ctx context.Context, source string, trust registry.Trust) (*upgradeOffer, error) {
	remote := strings.HasPrefix(source, "http://") || strings.HasPrefix(source, "https://")
	read := func(name string, most int64) ([]byte, error) {
		if remote {
			return readURL(ctx, strings.TrimSuffix(source, "/")+"/"+name, most)
		}
		return readReleaseFile(filepath.Join(source, name), most)
	}
	checksums, err := read(checksumsFile, maxChecksums)
	if errors.Is(err, fault.NotFound) {
		return nil, &fault.Error{Op: upgradeOp, Kind: fault.NotFound, Detail: "there is no release: " + checksumsFile + " is missing", Next: "Name the folder or the URL in which " + checksumsFile + " is."}
	}
	if err != nil {
		return nil, err
	}
	version, sums, err := parseChecksums(checksums)
	if err != nil {
		return nil, err
	}
	archive := archiveIn(sums)
	offer := &upgradeOffer{Version: version, Archive: archive, Checksums: b3.Of(checksums), Signature: signatureNone, Claims: []string{}, OnTrust: []string{}}

	// The archive, if it is at hand, has the bytes that are listed.
	if archive != "" && !remote {
		switch is, err := sumFile(filepath.Join(source, archive)); {
		case errors.Is(err, fault.NotFound): // not everybody copies all of them
		case err != nil:
			return nil, err
		case is != sums[archive]:
			return nil, &fault.Error{Op: upgradeOp, Kind: fault.IntegrityFail, Detail: archive + " does not have the bytes that " + checksumsFile + " lists", Next: "Do not install it. Get the archive anew."}
		default:
			offer.Compared = true
		}
	}

	// What its folders are like is in another file that is listed.
	if sums[aboutFile] != "" {
		text, err := read(aboutFile, maxAbout)
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(text)
		var about struct{ Format int }
		if hex.EncodeToString(sum[:]) != sums[aboutFile] || json.Unmarshal(text, &about) != nil {
			return nil, &fault.Error{Op: upgradeOp, Kind: fault.IntegrityFail, Detail: aboutFile + " does not have the bytes that " + checksumsFile + " lists", Next: "Do not install it. Get the release anew."}
		}
		offer.Format = about.Format
	}

	// The list is what the quorum has approved.
	proof, err := read(proofFile(version), maxBundle)
	if errors.Is(err, fault.NotFound) {
		return offer, nil
	}
	if err != nil {
		return nil, err
	}
	return offer, offer.verify(proof, trust, checksums)
}

// parseChecksums reads the hashes of the files of a release by their names, and
// its version out of the names of its archives.
func parseChecksums(list []byte) (version string, sums map[string]string, err error) {
	bad := func(detail string) error {
		return &fault.Error{Op: upgradeOp, Kind: fault.Malformed, Detail: checksumsFile + " is not that of a release: " + detail, Next: "Name the folder or the URL of a release of micronode."}
	}
	sums = map[string]string{}
	for line := range strings.Lines(string(list)) {
		hash, name, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		if _, err := hex.DecodeString(hash); err != nil || len(hash) != 2*sha256.Size || !ok {
			return "", nil, bad(fmt.Sprintf("%.80q is not a hash and a name", line))
		}
		sums[name] = hash
		found := archivePattern.FindStringSubmatch(name)
		if found == nil {
			continue
		}
		if version != "" && version != found[1] {
			return "", nil, bad("it lists " + version + " and " + found[1])
		}
		version = found[1]
	}
	if version == "" {
		return "", nil, bad("it lists no archive")
	}
	return version, sums, nil
}

// archiveIn is the archive for this platform; empty if there is none.
func archiveIn(sums map[string]string) string {
	for name := range sums {
		if found := archivePattern.FindStringSubmatch(name); found != nil && found[2] == runtime.GOOS+"_"+runtime.GOARCH {
			return name
		}
	}
	return ""
}

// releaseIn finds the release in a version of a registry that was verified.
func releaseIn(found registry.BundleReport, version string) (releaseItem, error) {
	for _, op := range found.Ops {
		var item releaseItem
		if op.Delete || op.ID != releasePrefix+version || json.Unmarshal(op.Item.JSON, &item) != nil {
			continue
		}
		if item.version() == version {
			return item, nil
		}
	}
	return releaseItem{}, &fault.Error{Op: upgradeOp, Kind: fault.IntegrityFail, Detail: fmt.Sprintf("%s proves version %d of a registry, which does not release %s", proofFile(version), found.Head.Version, version),
		Next: "Get the proof of this release: `micronode registry bundle N` with the version that released it."}
}

// findRelease finds a release in the registry of a node, and the bundle of the
// version that put it there. Without a version it is the newest.
func findRelease(ctx context.Context, n *client.Client, version string) (proof []byte, found string, err error) {
	head, err := n.RegistryHead(ctx)
	if err != nil {
		return nil, "", err
	}
	last, err := n.RegistryVersion(ctx, head.Version, true)
	if err != nil {
		return nil, "", err
	}
	for _, raw := range last.Items {
		var item releaseItem
		if json.Unmarshal(raw, &item) != nil || item.version() == "" {
			continue
		}
		if one := item.version(); one == version || version == "" && (found == "" || compareVersions(one, found) == orderNewer) {
			found = one
		}
	}
	if found == "" {
		return nil, "", &fault.Error{Op: upgradeOp, Kind: fault.NotFound, Detail: "the registry of the node has no such release", Next: "See what it has: micronode registry show"}
	}
	for at, walked := head.Version, 0; walked < maxLogWalk; at, walked = at-1, walked+1 {
		one, err := n.RegistryVersion(ctx, at, false)
		if err != nil {
			return nil, "", err
		}
		for _, raw := range one.Ops {
			var op struct{ Item releaseItem }
			if json.Unmarshal(raw, &op) == nil && op.Item.ID == releasePrefix+found {
				proof, err := n.RegistryBundle(ctx, at)
				return proof, found, err
			}
		}
		if at == 0 {
			break
		}
	}
	return nil, "", &fault.Error{Op: upgradeOp, Kind: fault.NotFound, Detail: fmt.Sprintf("the last %d versions of the registry do not have the release of %s", maxLogWalk, found),
		Next: "Name the folder or the URL of the release."}
}

// readReleaseFile reads a file of a release in a folder.
func readReleaseFile(path string, most int64) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, withSubject(upgradeOp, path, newOpenError(err))
	}
	defer file.Close()
	return readBounded(file, path, most)
}

// readURL reads a file of a release that the operator has named.
func readURL(ctx context.Context, url string, most int64) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, &fault.Error{Op: upgradeOp, Kind: fault.Malformed, Detail: url + " is not a URL", Err: err, Next: "Give one such as https://example.org/micronode/0.2.0."}
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		kind := fault.NoRoute
		if fault.KindOf(err) == fault.Timeout || fault.KindOf(err) == fault.Canceled {
			kind = fault.KindOf(err)
		}
		return nil, &fault.Error{Op: upgradeOp, Kind: kind, Detail: url + " cannot be reached", Err: err, Next: "Check the URL and the network."}
	}
	defer answer.Body.Close()
	switch answer.StatusCode {
	case http.StatusOK:
		return readBounded(answer.Body, url, most)
	case http.StatusNotFound, http.StatusGone:
		return nil, &fault.Error{Op: upgradeOp, Kind: fault.NotFound, Detail: url + " is not there", Next: "Check the URL."}
	default:
		return nil, &fault.Error{Op: upgradeOp, Kind: fault.UpstreamFailed, Detail: url + " answers " + answer.Status, Next: "Try again later, or get the release from another place."}
	}
}

// readBounded reads all of a small file.
func readBounded(from io.Reader, name string, most int64) ([]byte, error) {
	var body bytes.Buffer
	n, err := io.Copy(&body, io.LimitReader(from, most+1))
	if err != nil {
		return nil, withSubject(upgradeOp, name, err)
	}
	if n > most {
		return nil, &fault.Error{Op: upgradeOp, Kind: fault.BodyTooLarge, Detail: fmt.Sprintf("%s has more than %d bytes", name, most), Next: "Check that it is a release of micronode."}
	}
	return body.Bytes(), nil
}

// sumFile is the SHA-256 of a file, as hexadecimal digits.
func sumFile(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", newOpenError(err)
	}
	defer file.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return "", withSubject(upgradeOp, path, err)
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}
