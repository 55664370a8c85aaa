//go:build !race

package evener

const raceDetector = false
