package peers

import (
	"path/filepath"
	"testing"

	"micronode/client"
)

// A change has a payload of the requested size, and all are different.
func TestRegistryChanges(t *testing.T) {
	ctx := t.Context()
	r, err := StartRegistry(ctx, newTestbed(t), "")
	if err != nil {
		t.Fatal(err)
	}
	sizes := []int{1 << 10, 1 << 10, 300, 0}
	for i, size := range sizes {
		ids, err := r.ProposeAndApprove(ctx, []Change{{Item: 7, Size: size}})
		if err != nil {
			t.Fatal(err)
		}
		done, err := r.Commit(ctx, ids, 1)
		if err != nil || done.Elapsed <= 0 || done.P50 <= 0 || done.P99 < done.P50 {
			t.Fatalf("%+v, %v", done, err)
		}
		version, err := r.writers[0].RegistryVersion(ctx, uint64(i+1), true)
		if err != nil {
			t.Fatal(err)
		}
		if size > 0 && len(version.Payload) != size {
			t.Errorf("a payload of %d bytes, want %d: %s", len(version.Payload), size, version.Payload)
		}
		if len(version.Items) != 2 {
			t.Errorf("%d items, want the signers and the one that was changed", len(version.Items))
		}
	}
	if _, err := r.Commit(ctx, []string{"nothing"}, 1); err == nil {
		t.Error("committed what nobody proposed")
	}
}

// With a folder for profiles, the node is profiled.
func TestRegistryProfiles(t *testing.T) {
	folder := t.TempDir()
	if err := Profile(folder); err != nil {
		t.Fatal(err)
	}
	defer func() { profileFolder = "" }()
	r, err := StartRegistry(t.Context(), newTestbed(t), "")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.WithProfile(t.Context(), "test", func() error {
		_, err := r.Change(t.Context(), []Change{{Item: 1}, {Item: 2}}, 2)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if found, _ := filepath.Glob(filepath.Join(folder, "registry-test-*.pprof")); len(found) != 1 {
		t.Errorf("profiles %v", found)
	}
	if stranger, err := client.New(client.Options{URL: "http://" + r.Address}); err != nil {
		t.Error(err)
	} else {
		defer stranger.Close()
		if now, err := stranger.RegistryHead(t.Context()); err != nil || now.Version != 2 {
			t.Errorf("%+v, %v", now, err)
		}
	}
}
