package till

type Till struct{ total int }

func (t *Till) Add(n int) { t.total += n }

func (t *Till) Close() int {
	sum := t.total
	t.total = 0
	return sum
}

func New(start int) *Till {
	if start < 0 {
		start = 0
	}
	return &Till{total: start}
}

var round = func(n int) int { return n / 10 * 10 }

func (t *Till) Report(detailed bool) []int {
	if detailed {
		a := t.total / 2
		b := t.total / 3
		c := t.total / 5
		d := t.total / 7
		return []int{a, b, c, d}
	}
	return nil
}
