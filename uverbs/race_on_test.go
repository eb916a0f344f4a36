//go:build race

package uverbs

const raceDetector = true
