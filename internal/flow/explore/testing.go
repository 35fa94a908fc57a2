package explore

import (
	"os"
	"testing"
)

// ScheduleVariable is the environment variable that makes [Test] replay one
// schedule instead of exploring.
const ScheduleVariable = "EXPLORE_SCHEDULE"

// Test explores a model and fails the test if a run fails or if the search did
// not get to its end. The message has all it takes to see the failure again.
func Test(t *testing.T, options Options, setup func(*World)) {
	t.Helper()
	if schedule := os.Getenv(ScheduleVariable); schedule != "" {
		failure, err := Replay(options, schedule, setup)
		if err != nil {
			t.Fatal(err)
		}
		if failure != nil {
			t.Fatal(failure)
		}
		t.Log("the schedule does not fail")
		return
	}
	result := Run(options, setup)
	switch {
	case result.Failure != nil:
		t.Fatalf("run %d: %v\nto see it again: %s=%s go test -run '^%s$'",
			result.Runs, result.Failure, ScheduleVariable, result.Failure.Schedule, t.Name())
	case !result.Complete:
		t.Fatalf("stopped after %d runs with more to explore: raise MaxRuns, or make the model smaller", result.Runs)
	default:
		t.Logf("%d interleavings, all of them with up to %d preemptions", result.Runs, options.Preemptions)
	}
}
