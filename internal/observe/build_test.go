package observe

import (
	"reflect"
	"runtime"
	"runtime/debug"
	"testing"
)

func TestBuildFromTheToolChain(t *testing.T) {
	info := &debug.BuildInfo{GoVersion: "go1.26.8", Main: debug.Module{Version: "v0.3.0"}, Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "abc123"}, {Key: "vcs.time", Value: "2026-11-15T01:00:00Z"}, {Key: "vcs.modified", Value: "true"},
	}}
	got := describe("micronode", info, []string{"s3", "dht", "s3"})
	want := Build{Service: "micronode", Version: "v0.3.0", Commit: "abc123+dirty", Build: "2026-11-15T01:00:00Z", Go: "go1.26.8", Features: []string{"dht", "s3"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestReleaseBuildWins(t *testing.T) {
	version, commit, built = "1.2.3", "f00", "today"
	defer func() { version, commit, built = "", "", "" }()
	got := describe("micronode", &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, nil)
	want := Build{Service: "micronode", Version: "1.2.3", Commit: "f00", Build: "today", Go: "unknown", Features: []string{}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestReadBuildOfThisProgram(t *testing.T) {
	features := []string{"dht"}
	got := ReadBuild("micronode", features...)
	if got.Service != "micronode" || got.Go != runtime.Version() || got.Version == "" || got.Commit == "" || got.Build == "" {
		t.Errorf("%+v", got)
	}
	want := []string{"dht"}
	if tracesBuiltIn {
		want = append(want, "traces")
	}
	if !reflect.DeepEqual(got.Features, want) {
		t.Errorf("features %q, want %q", got.Features, want)
	}
}
