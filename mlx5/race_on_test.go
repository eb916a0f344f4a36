//go:build race

package mlx5

// raced says that the race detector watches, which makes tests a hundred times slower.
const raced = true
