package many

import "testing"

func Test1(t *testing.T) { t.Fatal("no") }
func Test2(t *testing.T) { t.Fatal("no") }
func Test3(t *testing.T) { t.Fatal("no") }
