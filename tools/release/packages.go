package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/apk"
	_ "github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

// places says where each file of an archive goes in a package. What is not here is only in the archive.
var places = map[string]string{
	"micronode":                  "/usr/bin/micronode",
	"micronode.service":          "/usr/lib/systemd/system/micronode.service",
	"micronode.toml":             "/etc/micronode/micronode.toml",
	"man/micronode.1":            "/usr/share/man/man1/micronode.1.gz",
	"completions/micronode.bash": "/usr/share/bash-completion/completions/micronode",
	"completions/_micronode":     "/usr/share/zsh/site-functions/_micronode",
	"completions/micronode.fish": "/usr/share/fish/vendor_completions.d/micronode.fish",
	"LICENSE":                    "/usr/share/doc/micronode/copyright",
	"LICENSES-OF-OTHERS.txt":     "/usr/share/doc/micronode/LICENSES-OF-OTHERS.txt",
	"README.md":                  "/usr/share/doc/micronode/README.md",
	"CHANGELOG.md":               "/usr/share/doc/micronode/CHANGELOG.md",
}

// writePackages writes the packages of a Linux platform.
func (r *release) writePackages(p platform, all []file) error {
	folder := filepath.Join(r.work, p.String(), "package")
	var contents files.Contents
	for _, one := range byPath(all) {
		place, packed := places[one.path]
		if !packed {
			continue
		}
		if strings.HasSuffix(place, ".gz") {
			body, err := gzipped(one.body)
			if err != nil {
				return err
			}
			one.body = body
		}
		source := filepath.Join(folder, one.path)
		if err := os.MkdirAll(filepath.Dir(source), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(source, one.body, one.mode); err != nil {
			return err
		}
		kind := files.TypeFile
		if strings.HasPrefix(place, "/etc/") {
			kind = files.TypeConfigNoReplace // what an operator wrote there stays through an upgrade
		}
		contents = append(contents, &files.Content{Source: source, Destination: place, Type: kind,
			FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: one.mode, MTime: r.made}})
	}
	scripts := func(script string) string { return filepath.Join(r.folder, "packaging", script) }
	for _, kind := range []string{"deb", "rpm", "apk"} {
		info := nfpm.WithDefaults(&nfpm.Info{
			Name: name, Arch: strings.Replace(p.processor, "arm", "arm7", 1), Platform: "linux", Version: r.version, Release: "1", Section: "net", Priority: "optional",
			Maintainer: "The micronode project <micronode@localhost>", License: "MIT", DisableGlobbing: true, MTime: r.made,
			Description: "A node of a content network\nVerified content for places that you do not control: objects by their hash, map packs,\ncaches of origins, names, messages and a governed registry, in one program.",
			Overridables: nfpm.Overridables{
				Contents: contents, Umask: 0o022,
				RPM:     nfpm.RPM{BuildHost: name, Summary: "A node of a content network"},
				Scripts: nfpm.Scripts{PostInstall: scripts("postinstall.sh"), PreRemove: scripts("preremove.sh"), PostRemove: scripts("postremove.sh")},
			},
		})
		if p.processor == "arm64" {
			info.Arch = "arm64"
		}
		packager, err := nfpm.Get(kind)
		if err != nil {
			return err
		}
		if kind == "apk" {
			info.Scripts = nfpm.Scripts{} // they are about systemd, which Alpine has not
			info.Contents = withoutUnits(contents)
		}
		var body bytes.Buffer
		if err := packager.Package(info, &body); err != nil {
			return err
		}
		if err := os.WriteFile(r.path(packager.ConventionalFileName(info)), body.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func withoutUnits(all files.Contents) files.Contents {
	var rest files.Contents
	for _, one := range all {
		if !strings.Contains(one.Destination, "/systemd/") {
			rest = append(rest, one)
		}
	}
	return rest
}
