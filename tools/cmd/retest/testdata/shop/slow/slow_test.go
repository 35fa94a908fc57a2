package slow

import "testing"

func TestHangs(t *testing.T) { select {} }
