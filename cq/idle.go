package cq

// Idle says whether every posted request has ended. Any goroutine may call it;
// it looks at all places of the queue.
func (s *SharedRequests) Idle() bool {
	for _, b := range *s.blocks.Load() {
		for i := range b {
			if b[i].word.Load() != 0 {
				return false
			}
		}
	}
	return true
}
