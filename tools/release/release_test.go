package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/crypto/blake2b"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sample is a module that is as small as one can be that is released: a program with a dependency, and one that only its tests would need,
// which nobody has fetched.
var sample = map[string]string{
	"go.mod":                           "module sample\n\ngo 1.26\n\nrequire (\n\texample.org/absent v1.0.0\n\texample.org/other v1.0.0\n)\n\nreplace example.org/other => ./other\n",
	"other/go.mod":                     "module example.org/other\n\ngo 1.26\n",
	"other/other.go":                   "package other\n\nconst Word = \"other\"\n",
	"other/LICENSE":                    "Permission is hereby granted, free of charge, to any person\n",
	"cmd/micronode/main.go":            "package main\n\nimport (\n\t\"os\"\n\n\t\"example.org/other\"\n\t\"sample/internal/observe\"\n)\n\nfunc main() { println(observe.Version()); if os.Args[1] == \"upgrade\" { os.Stdout.WriteString(`{\"here\":{\"format\":7}}`) } else { os.Stdout.WriteString(other.Word + os.Args[1]) } }\n",
	"internal/observe/observe.go":      "package observe\n\nvar version, commit string\n\nfunc Version() string { return version + commit }\n",
	"LICENSE":                          "MIT\n",
	"README.md":                        "# Sample\n",
	"CHANGELOG.md":                     "# Changes\n\n## Unreleased\n\n## 1.2.3 (2026-01-02)\n\n- Everything.\n",
	"VERSION":                          "1.2.3\n",
	"packaging/micronode.service":      "[Unit]\n",
	"packaging/micronode.toml":         "",
	"packaging/compose.yaml":           "image: micronode:VERSION\n",
	"packaging/postinstall.sh":         "#!/bin/sh\n",
	"packaging/preremove.sh":           "#!/bin/sh\n",
	"packaging/postremove.sh":          "#!/bin/sh\n",
	"packaging/not-in-any-package.txt": "x",
	"key":                              strings.Repeat("0123456789abcdef", 4) + "\n",
}

// releaseSample makes a release of the sample in a folder of its own, and returns what was made, by name.
func releaseSample(t *testing.T, change map[string]string) (made map[string][]byte, err error) {
	t.Helper()
	t.Setenv("GOPROXY", "off")
	folder := t.TempDir()
	files := maps.Clone(sample)
	maps.Copy(files, change)
	for path, text := range files {
		path = filepath.Join(folder, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := release{folder: folder, out: filepath.Join(t.TempDir(), "dist"), keyFile: filepath.Join(folder, "key"), toolchain: "local", log: io.Discard}
	if err := r.run([]string{runtime.GOOS + "/" + runtime.GOARCH}); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(r.out)
	if err != nil {
		t.Fatal(err)
	}
	made = map[string][]byte{}
	for _, entry := range entries {
		if made[entry.Name()], err = os.ReadFile(filepath.Join(r.out, entry.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return made, nil
}

// Two people in two folders make the same bytes, whatever their files' times and modes are.
func TestTwoBuildersMakeTheSame(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1767312000")
	one, err := releaseSample(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	two, err := releaseSample(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := slices.Sorted(maps.Keys(one)), slices.Sorted(maps.Keys(two)); !slices.Equal(a, b) || len(a) < 9 {
		t.Fatalf("one made %q, the other %q", a, b)
	}
	for title, body := range one {
		if !bytes.Equal(body, two[title]) {
			t.Errorf("%s is not the same", title)
		}
		if bytes.Contains(body, []byte(os.TempDir()+"/")) {
			t.Errorf("%s has a path of this machine in it", title)
		}
	}

	// An archive has everything in one folder, with the time of the release and nobody's name.
	system := runtime.GOOS + "_" + runtime.GOARCH
	inside := unpack(t, one["micronode_1.2.3_"+system+".tar.gz"])
	for _, path := range []string{"micronode", "LICENSE", "LICENSES-OF-OTHERS.txt", "man/micronode.1", "completions/micronode.ps1", "micronode.service"} {
		header := inside["micronode_1.2.3_"+system+"/"+path]
		if header == nil || header.ModTime.Unix() != 1767312000 || header.Uid != 0 || header.Uname != "" {
			t.Errorf("%s in the archive is %+v", path, header)
		}
	}
	var document spdxDocument
	if err := json.Unmarshal(one["micronode_1.2.3_"+system+".spdx.json"], &document); err != nil {
		t.Fatal(err)
	}
	licences := map[string]string{}
	for _, one := range document.Packages {
		licences[one.Name] = one.LicenceConcluded
	}
	if want := map[string]string{"micronode": "MIT", "std": "BSD-3-Clause", "example.org/other": "MIT"}; !maps.Equal(licences, want) {
		t.Errorf("what is inside is %v, want %v", licences, want)
	}
	if !bytes.Contains(one["micronode_1.2.3_"+system+".spdx.json"], []byte("v1.0.0-changed")) {
		t.Errorf("a changed copy of a module is not told from the module:\n%s", one["micronode_1.2.3_"+system+".spdx.json"])
	}
	if got := string(one["release.json"]); !strings.HasPrefix(got, `{"version":"1.2.3","commit":"`) || !strings.HasSuffix(got, "\"format\":7}\n") || !bytes.Contains(one["SHA256SUMS"], []byte("  release.json\n")) {
		t.Errorf("release.json is %q", got)
	}
	if got := string(one["registry-change.json"]); !regexp.MustCompile(`"id": "micronode-1.2.3",\s+"kind": "name",\s+"manifest": "b3:[0-9a-f]{64}"\s+}`).MatchString(got) {
		t.Errorf("the change for a registry is %s", got)
	}
	if got := string(one["compose.yaml"]); got != "image: micronode:1.2.3\n" {
		t.Errorf("the compose file is %q", got)
	}
	if !bytes.HasPrefix(one["micronode_1.2.3-1_"+runtime.GOARCH+".deb"], []byte("!<arch>\ndebian-binary   1767312000")) {
		t.Errorf("the package for Debian is not one: %q", slices.Sorted(maps.Keys(one)))
	}
}

func unpack(t *testing.T, archive []byte) map[string]*tar.Header {
	t.Helper()
	plain, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]*tar.Header{}
	for reader := tar.NewReader(plain); ; {
		header, err := reader.Next()
		if err == io.EOF {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		found[header.Name] = header
	}
}

// What may not be released is refused, and says what to do.
func TestWhatIsNotReleased(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1767312000")
	for title, c := range map[string]struct {
		change map[string]string
		want   string
	}{
		"a version without a chapter": {map[string]string{"VERSION": "2.0.0"}, `no chapter "## 2.0.0"`},
		"a draft has a chapter":       {map[string]string{"VERSION": "2.0.0-rc1", "CHANGELOG.md": "## 1.2.3\n"}, `no chapter "## 2.0.0-rc1"`},
		"a version that is none":      {map[string]string{"VERSION": "next"}, `"next" is no version`},
		"a draft that Alpine refuses": {map[string]string{"VERSION": "1.2.3-dev"}, `"1.2.3-dev" is no version`},
		"a key that is none":          {map[string]string{"key": "secret"}, "key is no key"},
		"a licence that binds us":     {map[string]string{"other/LICENSE": "GNU GENERAL PUBLIC LICENSE\n"}, "does not allow"},
	} {
		if _, err := releaseSample(t, c.change); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", title, err)
		}
	}

	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "mine"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := (&release{out: full}).prepareOut(); err == nil {
		t.Error("a folder with something in it is written to")
	}
}

func TestLicences(t *testing.T) {
	none := module{path: "example.org/none"}
	if err := none.readLicence(t.TempDir()); err == nil || !strings.Contains(err.Error(), "no licence file") {
		t.Errorf("a module without a licence: %v", err)
	}
	for text, want := range map[string]string{
		"/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */\n\nGNU GENERAL PUBLIC LICENSE": "BSD-3-Clause OR GPL-2.0-only",
		"Apache License\n Version 2.0, January 2004":                                                "Apache-2.0", "Mozilla Public License Version 2.0": "MPL-2.0",
		"GNU LESSER GENERAL PUBLIC LICENSE": "LGPL-3.0-only", "Permission is hereby\ngranted, free of charge": "MIT",
		"PERMISSION is hereby granted, free of charge":                                    "MIT",
		"Redistribution and use in source and\nbinary forms … Neither the name of Google": "BSD-3-Clause",
		"Redistribution and use in source and binary forms":                               "BSD-2-Clause",
		"Permission to use, copy, modify, and/or distribute":                              "ISC", "All rights reserved": "",
	} {
		if got := licenceOf(text); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}

// minisign would accept the signature: it is checked here as its document says.
func TestSignature(t *testing.T) {
	key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, 32))
	r := release{version: "1.2.3", made: time.Unix(1767312000, 0)}
	lines := strings.Split(string(r.minisign(key, []byte("the list"))), "\n")
	if len(lines) != 5 {
		t.Fatalf("%d lines", len(lines))
	}
	packed, _ := base64.StdEncoding.DecodeString(lines[1])
	global, _ := base64.StdEncoding.DecodeString(lines[3])
	public, _ := base64.StdEncoding.DecodeString(strings.Split(string(publicKey(key)), "\n")[1])
	hash := blake2b.Sum512([]byte("the list"))
	trusted := strings.TrimPrefix(lines[2], "trusted comment: ")
	if len(packed) != 74 || string(packed[:2]) != "ED" || !bytes.Equal(packed[2:10], public[2:10]) {
		t.Errorf("the signature is %x, the key %x", packed, public)
	}
	if !ed25519.Verify(public[10:], hash[:], packed[10:]) || !ed25519.Verify(public[10:], append(packed[10:], trusted...), global) {
		t.Error("the signature does not verify")
	}
	if program, err := exec.LookPath("minisign"); err == nil { // where there is one
		folder := t.TempDir()
		for title, body := range map[string][]byte{"list": []byte("the list"), "list.minisig": r.minisign(key, []byte("the list")), "key.pub": publicKey(key)} {
			if err := os.WriteFile(filepath.Join(folder, title), body, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		verify := exec.Command(program, "-Vm", "list", "-p", "key.pub")
		verify.Dir = folder
		if out, err := verify.CombinedOutput(); err != nil {
			t.Errorf("minisign: %v\n%s", err, out)
		}
	}
}

// The image runs as nobody, and that user alone may write its folder: a node refuses one that others may write.
func TestTheImage(t *testing.T) {
	r := release{work: t.TempDir(), version: "1.2.3", made: time.Unix(1767312000, 0)}
	linux := platform{"linux", "arm"}
	if err := os.MkdirAll(filepath.Dir(r.program(linux)), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(r.program(linux), []byte("program"), 0o600); err != nil {
		t.Fatal(err)
	}
	image, err := r.image(linux)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil || config.Config.User != "65532:65532" || config.Variant != "v7" || strings.Join(config.Config.Cmd, " ") != "run --lan" {
		t.Errorf("%+v, %v", config, err)
	}
	layers, err := image.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatal(layers, err)
	}
	layer, err := layers[0].Compressed()
	if err != nil {
		t.Fatal(err)
	}
	defer layer.Close()
	body, err := io.ReadAll(layer)
	if err != nil {
		t.Fatal(err)
	}
	inside := unpack(t, body)
	if data := inside["data/"]; data == nil || data.Uid != 65532 || data.Gid != 65532 || data.Mode != 0o700 {
		t.Errorf("the folder is %+v", data)
	}
	if program := inside["usr/bin/micronode"]; program == nil || program.Uid != 0 || program.Mode != 0o755 {
		t.Errorf("the program is %+v", program)
	}
}

func TestPlatforms(t *testing.T) {
	r := release{folder: t.TempDir(), version: "1.2.3", toolchain: "local"}
	if err := r.plan([]string{"linux"}); err == nil {
		t.Error("a system without a processor is a platform")
	}
}
