package terminal

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"micronode/client"
	"micronode/fault"
)

// SortReasons puts what is missing before mere remarks: people follow the
// first next step.
func SortReasons(r client.Readiness) []client.Reason {
	list := append([]client.Reason{}, r.Reasons...)
	rank := func(one client.Reason) int {
		if slices.Contains(r.Missing, one.Dep) {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(list, func(a, b client.Reason) int { return cmp.Compare(rank(a), rank(b)) })
	return list
}

// ReadinessText is the readiness of a node in a few words, and their colour.
func ReadinessText(ready, writeReady, degraded bool) (string, Colour) {
	switch {
	case !ready:
		return "not ready", Red
	case !writeReady:
		return "ready for reads only", Yellow
	case degraded:
		return "ready, but degraded", Yellow
	default:
		return "ready", Green
	}
}

// NotReadyError is the readiness of a node that is not ready, as an error.
func NotReadyError(r client.Readiness) error {
	err := fault.New("status", fault.NotReady, "the node is not ready")
	var reasons []error
	for _, one := range SortReasons(r) {
		reasons = append(reasons, fmt.Errorf("%s: %s", one.Dep, one.Reason))
		if err.Next == "" {
			err.Next = one.Next
		}
	}
	err.Err = errors.Join(reasons...)
	return err
}
