package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"os"
	"slices"
	"strings"
	"time"
)

// writeArchive writes a platform's archive: a .zip for Windows, else a .tar.gz. Everything is in one folder, so that it can be unpacked anywhere.
func (r *release) writeArchive(p platform, files []file) error {
	folder := name + "_" + r.version + "_" + p.String()
	inside := make([]file, len(files))
	for i, one := range files {
		one.path = folder + "/" + one.path
		inside[i] = one
	}
	var body []byte
	var err error
	extension := ".tar.gz"
	if p.system == "windows" {
		extension = ".zip"
		body, err = zipped(inside, r.made)
	} else {
		body, err = tarred(inside, r.made)
		if err == nil {
			body, err = gzipped(body)
		}
	}
	if err != nil {
		return err
	}
	return os.WriteFile(r.path(folder+extension), body, 0o644)
}

// tarred is a tar of the files by name, of nobody in particular. Folders that none of them names are made by unpacking.
func tarred(files []file, made time.Time) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, one := range byPath(files) {
		header := tar.Header{Name: one.path, Uid: one.owner, Gid: one.owner, Mode: int64(one.mode.Perm()), Size: int64(len(one.body)), ModTime: made, Format: tar.FormatUSTAR}
		if one.mode.IsDir() {
			header.Typeflag, header.Name = tar.TypeDir, one.path+"/"
		}
		if err := w.WriteHeader(&header); err != nil {
			return nil, err
		}
		if _, err := w.Write(one.body); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}

func gzipped(body []byte) ([]byte, error) {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression) // its header has neither time nor name
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(body); err != nil {
		return nil, err
	}
	err = w.Close()
	return out.Bytes(), err
}

func zipped(files []file, made time.Time) ([]byte, error) {
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for _, one := range byPath(files) {
		header := zip.FileHeader{Name: one.path, Method: zip.Deflate, Modified: made}
		header.SetMode(one.mode)
		part, err := w.CreateHeader(&header)
		if err != nil {
			return nil, err
		}
		if _, err := part.Write(one.body); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}

func byPath(files []file) []file {
	return slices.SortedFunc(slices.Values(files), func(a, b file) int { return strings.Compare(a.path, b.path) })
}
