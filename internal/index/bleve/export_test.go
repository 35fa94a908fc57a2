package bleve

// Segments is how many pieces a search looks into.
func Segments(c *Catalogue) int {
	snapshot, err := c.snapshot()
	if err != nil {
		panic(err)
	}
	defer snapshot.Close()
	return len(snapshot.Segments())
}

// SetFormat notes another format.
func SetFormat(c *Catalogue, to string) error { return c.scorch.SetInternal(formatKey, []byte(to)) }
