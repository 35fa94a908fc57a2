package spawn

func inTest() {
	go work()
	_ = make(chan int, 10)
}
