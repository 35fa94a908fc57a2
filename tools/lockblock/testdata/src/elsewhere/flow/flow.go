package flow

type QueueSpec struct{ Service, Name string }
