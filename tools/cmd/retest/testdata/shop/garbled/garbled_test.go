package garbled

import "testing"

func TestDoesNotCompile(t *testing.T) { missing() }
