package capability_test

import (
	"fmt"
	"time"

	"micronode/fault"
	"micronode/internal/capability"
)

// The operator mints a token, its holder passes a narrower one on, and the
// node's refusals name what is missing.
func Example() {
	root, err := capability.NewRoot(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	authority := capability.NewAuthority(root)
	noon := time.Date(2026, 11, 14, 12, 0, 0, 0, time.UTC)

	team, _ := authority.Mint(capability.Caveats{
		Scopes:  []capability.Scope{capability.ObjectPut, capability.NameSet},
		Expires: noon.Add(time.Hour),
	})
	robot, _ := capability.Attenuate(team, capability.Caveats{Paths: []string{"/names/robot"}})

	try := func(scope capability.Scope, path string, now time.Time) {
		err := authority.Verify(robot, capability.Request{Scope: scope, Path: path, Now: now})
		if err == nil {
			fmt.Println(scope, path, "may")
			return
		}
		fmt.Println(scope, path, fault.KindOf(err).Status(), fault.DetailOf(err))
	}
	try(capability.NameSet, "/names/robot/arm", noon)
	try(capability.NameSet, "/names/robots", noon)
	try(capability.ObjectRm, "/names/robot", noon)
	try(capability.NameSet, "/names/robot", noon.Add(time.Hour))

	summary, _ := capability.Inspect(robot)
	for _, caveat := range summary.Caveats {
		fmt.Println(caveat)
	}
	// Output:
	// name:set /names/robot/arm may
	// name:set /names/robots 403 the token is for paths below "/names/robot" only
	// object:rm /names/robot 403 the token does not have the scope "object:rm"
	// name:set /names/robot 401 the token expired at 2026-11-14T13:00:00Z
	// scope name:set object:put
	// expires 2026-11-14T13:00:00Z
	// path "/names/robot"
}
