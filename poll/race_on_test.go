//go:build race

package poll

const raceDetector = true
