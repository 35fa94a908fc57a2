// Package typo measures how near a mistyped word is to a known one, so that an
// error can name what was meant. What is near enough is up to the caller.
package typo

// Distance counts the typing errors between two words: a letter too many, too
// few, wrong, or swapped with its neighbour. It takes time for each pair of
// their letters, so bound words that come from outside.
func Distance(a, b string) int {
	older, old, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		older, old, row = old, row, older
		row[0] = i + 1
		for j := range len(b) {
			cost := old[j]
			if a[i] != b[j] {
				cost++
			}
			row[j+1] = min(cost, old[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], older[j-1]+1)
			}
		}
	}
	return row[len(b)]
}
