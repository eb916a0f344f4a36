// Package check has no code, only tests: of what the whole module promises
// rather than one package. Which package may import which, where unsafe may
// stand, what builds for which system, how large a program gets, and that the
// README's program works.
package check
