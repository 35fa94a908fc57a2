package kong

import "reflect"

// methodOf finds a method by a constant, so that the linker sees which methods
// are called by name. With a name that it cannot see, it keeps every exported
// method of every type of the program.
func methodOf(v reflect.Value, name string) reflect.Value {
	switch name {
	case "AfterApply":
		return v.MethodByName("AfterApply")
	case "AfterRun":
		return v.MethodByName("AfterRun")
	case "BeforeApply":
		return v.MethodByName("BeforeApply")
	case "BeforeReset":
		return v.MethodByName("BeforeReset")
	case "BeforeResolve":
		return v.MethodByName("BeforeResolve")
	case "Run":
		return v.MethodByName("Run")
	}
	panic("kong: no method is called by the name " + name)
}

// methodOfType is methodOf for a type.
func methodOfType(t reflect.Type, name string) (reflect.Method, bool) {
	switch name {
	case "AfterApply":
		return t.MethodByName("AfterApply")
	case "AfterRun":
		return t.MethodByName("AfterRun")
	case "BeforeApply":
		return t.MethodByName("BeforeApply")
	case "BeforeReset":
		return t.MethodByName("BeforeReset")
	case "BeforeResolve":
		return t.MethodByName("BeforeResolve")
	case "Run":
		return t.MethodByName("Run")
	}
	panic("kong: no method is called by the name " + name)
}
