package main

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// user is the user of the image: nobody on the host.
const user = 65532

// writeImage writes one image for all Linux platforms, as an OCI layout in a tar: `docker load`, `podman load` and `skopeo` read it. Beside it
// is a compose file that names this version.
func (r *release) writeImage() error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	index = mutate.Annotations(index, nil).(v1.ImageIndex)
	found := false
	for _, one := range r.platforms {
		if one.system != "linux" {
			continue
		}
		image, err := r.image(one)
		if err != nil {
			return err
		}
		found = true
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{
			MediaType: types.OCIManifestSchema1, Platform: imagePlatform(one),
			Annotations: map[string]string{"org.opencontainers.image.ref.name": r.version, "io.containerd.image.name": "docker.io/library/" + name + ":" + r.version},
		}})
	}
	if !found {
		return nil
	}
	folder := filepath.Join(r.work, "image")
	if _, err := layout.Write(folder, index); err != nil {
		return err
	}
	var files []file
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		body, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		below, err := filepath.Rel(folder, path)
		files = append(files, file{path: filepath.ToSlash(below), mode: 0o644, body: body})
		return err
	})
	if err != nil {
		return err
	}
	body, err := tarred(files, r.made)
	if err != nil {
		return err
	}
	if err := os.WriteFile(r.path(name+"_"+r.version+"_image.tar"), body, 0o644); err != nil {
		return err
	}
	compose, err := os.ReadFile(filepath.Join(r.folder, "packaging", "compose.yaml"))
	if err != nil {
		return err
	}
	return os.WriteFile(r.path("compose.yaml"), bytes.ReplaceAll(compose, []byte("VERSION"), []byte(r.version)), 0o644)
}

// image is the program and what it needs of a system: the authorities that sign certificates, a user, and a folder that this user may write.
// By itself it serves reads in the private network of the container; a node refuses to listen everywhere without TLS.
func (r *release) image(p platform) (v1.Image, error) {
	program, err := os.ReadFile(r.program(p))
	if err != nil {
		return nil, err
	}
	body, err := tarred([]file{
		{path: "usr/bin/" + name, mode: 0o755, body: program},
		{path: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, body: authorities()},
		{path: "etc/passwd", mode: 0o644, body: fmt.Appendf(nil, "root:x:0:0:root:/:/\n%s:x:%d:%[2]d:%[1]s:/data:/\n", name, user)},
		{path: "etc/group", mode: 0o644, body: fmt.Appendf(nil, "root:x:0:\n%s:x:%d:\n", name, user)},
		{path: "data", mode: fs.ModeDir | 0o700, owner: user}, // a node refuses a folder that others may write
		{path: "tmp", mode: fs.ModeDir | 0o700, owner: user},
	}, r.made)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil },
		tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
	if err != nil {
		return nil, err
	}
	platform, made := imagePlatform(p), v1.Time{Time: r.made}
	image, err := mutate.ConfigFile(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON), &v1.ConfigFile{
		Architecture: platform.Architecture, Variant: platform.Variant, OS: platform.OS, Created: made, Author: name,
		RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{
			User: fmt.Sprintf("%d:%[1]d", user), WorkingDir: "/data", Env: []string{"PATH=/usr/bin"},
			Entrypoint: []string{"/usr/bin/" + name}, Cmd: []string{"run", "--lan"},
			ExposedPorts: map[string]struct{}{"8080/tcp": {}},
			StopSignal:   "SIGTERM",
			Labels:       map[string]string{"org.opencontainers.image.title": name, "org.opencontainers.image.version": r.version, "org.opencontainers.image.revision": r.commit, "org.opencontainers.image.licenses": "MIT"},
			Healthcheck:  &v1.HealthConfig{Test: []string{"CMD", "/usr/bin/" + name, "status", "--wait", "2s"}, Interval: 10 * time.Second, Timeout: 5 * time.Second, StartPeriod: 5 * time.Second, Retries: 3},
		},
	})
	if err != nil {
		return nil, err
	}
	return mutate.Append(image, mutate.Addendum{Layer: layer, MediaType: types.OCILayer, History: v1.History{Created: made, CreatedBy: name + " release"}})
}

func imagePlatform(p platform) *v1.Platform {
	platform := &v1.Platform{OS: p.system, Architecture: p.processor}
	if p.processor == "arm" {
		platform.Variant = "v7"
	}
	return platform
}

// authorities are those that Mozilla trusts, without those that need rules beside the certificate.
func authorities() []byte {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // a buffer takes everything
		}
	}
	return out.Bytes()
}
