package observe

import (
	"cmp"
	"runtime/debug"
	"slices"

	"micronode/client"
)

// Set by the release build with
//
//	-ldflags "-X micronode/internal/observe.version=1.2.3 -X …commit=… -X …built=…"
//
// What is left empty is read from what the Go tool chain recorded.
var version, commit, built string

// unknown stands for what neither the release build nor the tool chain
// recorded.
const unknown = "unknown"

// Build says which program this is: the answer of GET /version, in the shape
// that clients read.
type Build = client.Version

// ReadBuild describes the running program. The features are what was compiled
// in and could have been left out; traces add themselves.
func ReadBuild(service string, features ...string) Build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	if tracesBuiltIn {
		features = append(slices.Clone(features), "traces")
	}
	return describe(service, info, features)
}

func describe(service string, info *debug.BuildInfo, features []string) Build {
	recorded := map[string]string{}
	for _, setting := range info.Settings {
		recorded[setting.Key] = setting.Value
	}
	revision := recorded["vcs.revision"]
	if revision != "" && recorded["vcs.modified"] == "true" {
		revision += "+dirty"
	}
	sorted := append([]string{}, features...)
	slices.Sort(sorted)
	return Build{
		Service:  service,
		Version:  cmp.Or(version, info.Main.Version, unknown),
		Commit:   cmp.Or(commit, revision, unknown),
		Build:    cmp.Or(built, recorded["vcs.time"], unknown),
		Go:       cmp.Or(info.GoVersion, unknown),
		Features: slices.Compact(sorted),
	}
}
