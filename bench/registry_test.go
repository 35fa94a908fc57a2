package main

import (
	"os"
	"strings"
	"testing"

	"micronode/bench/peers"
	"micronode/bench/testbed"
)

// The rows and axes of the registry run as a whole, but none with etcd, which
// takes minutes to build; our side of those is measured alone.
func TestRegistryRows(t *testing.T) {
	t.Cleanup(longLogs.removeAll)
	few := short
	few.versions = []int{3, 70}
	works := append(registryRows(few), registryAxes(few)...)
	for _, work := range works {
		if row, ok := work.(Row); ok && strings.Contains(row.Peer.Name, "etcd") {
			row.Peer = Side{}
			work = row
		}
		result, err := measure(t.Context(), work)
		if err != nil {
			t.Errorf("%s: %v", work.Title(), err)
			continue
		}
		if figure := result.Ours.Figure; !(figure > 0) {
			t.Errorf("%s: %v", work.Title(), figure)
		}
	}
	for versions, folder := range longLogs.folders {
		if _, err := os.Stat(folder); err != nil {
			t.Errorf("the log of %d versions is gone before the end: %v", versions, err)
		}
	}
}

// A log has as many versions as it is said to have, and is made once.
func TestLongLogs(t *testing.T) {
	t.Cleanup(longLogs.removeAll)
	g, err := testbed.New()
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	first, err := longLogs.folderOf(t.Context(), g, 70)
	if err != nil {
		t.Fatal(err)
	}
	again, err := longLogs.folderOf(t.Context(), g, 70)
	if err != nil || again != first {
		t.Errorf("asked again, it is in %s and not in %s, %v", again, first, err)
	}
	registry, err := peers.StartRegistry(t.Context(), g, first)
	if err != nil {
		t.Fatal(err)
	}
	head, err := registry.Head(t.Context())
	if err != nil || !strings.Contains(string(head.Body), `"version":69,`) {
		t.Errorf("the head is %s, %v", head.Body, err)
	}
	folder := longLogs.folder
	longLogs.removeAll()
	if _, err := os.Stat(folder); !os.IsNotExist(err) {
		t.Errorf("the logs are still there: %v", err)
	}
}
