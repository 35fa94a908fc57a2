package fine

func milk() int { return 1 }
