package main

import "fmt"

// A benchRow is one thing to measure.
type benchRow struct {
	What  string `json:"what"` // poll, receive, error, empty or post
	Batch int    `json:"batch"`
	QPs   int    `json:"qps"`
	Ring  int    `json:"ring"` // entries of the completion queue
	// Cold is a ring that another processor wrote than the one that polls.
	Cold bool `json:"cold"`

	// plain and fastest are the design's targets for the ratios to libibverbs' plain form and to
	// its fastest, 0 if there is none.
	plain, fastest float64
}

// String is the row's name, which -run is compared with.
func (r *benchRow) String() string {
	switch r.What {
	case "post":
		return fmt.Sprintf("post/batch=%d", r.Batch)
	case "empty":
		return fmt.Sprintf("empty/batch=%d", r.Batch)
	}
	where := "warm"
	if r.Cold {
		where = "cold"
	}
	return fmt.Sprintf("%s/batch=%d/qps=%d/ring=%d/%s", r.What, r.Batch, r.QPs, r.Ring, where)
}

// benchGroup are rows that are measured on the same objects.
type benchGroup struct {
	qps, ring int
	rows      []benchRow
}

// depth is how many requests each queue pair takes at a time: so many that all fill the ring, or as
// many as libmlx5 gives a queue pair with such sends.
func (g *benchGroup) depth() int { return min(g.ring/g.qps, 4096) }

// benchRows is all that there is to measure, as groups.
func benchRows() []benchGroup {
	var all []benchGroup
	for _, ring := range []int{256, 4096, 65536} {
		for _, qps := range []int{1, 64} {
			g := benchGroup{qps: qps, ring: ring}
			for _, cold := range []bool{false, true} {
				for _, batch := range []int{1, 16, 32, 64} {
					r := benchRow{What: "poll", Batch: batch, QPs: qps, Ring: ring, Cold: cold}
					switch {
					case qps != 64:
					case batch == 32 && !cold && ring < 65536:
						r.plain, r.fastest = 0.25, 0.4
					case batch == 1 && !cold && ring < 65536:
						r.plain = 0.5
					case batch == 32 && cold && ring == 65536:
						r.fastest = 0.6
					}
					g.rows = append(g.rows, r)
				}
			}
			if ring == 4096 {
				for _, what := range []string{"receive", "error"} {
					for _, batch := range []int{1, 32} {
						g.rows = append(g.rows, benchRow{What: what, Batch: batch, QPs: qps, Ring: ring})
					}
				}
			}
			if ring == 256 && qps == 1 {
				g.rows = append(g.rows,
					benchRow{What: "empty", Batch: 1, QPs: qps, Ring: ring, plain: 0.5},
					benchRow{What: "empty", Batch: 32, QPs: qps, Ring: ring, plain: 0.5},
					benchRow{What: "post", Batch: 1, QPs: qps, Ring: ring, plain: 0.8},
					benchRow{What: "post", Batch: 32, QPs: qps, Ring: ring, plain: 0.4})
			}
			all = append(all, g)
		}
	}
	return all
}

// chooseRows are the groups with the rows that are wanted.
func chooseRows(all []benchGroup, want func(*benchRow) bool) []benchGroup {
	var chosen []benchGroup
	for _, g := range all {
		some := benchGroup{qps: g.qps, ring: g.ring}
		for _, r := range g.rows {
			if want(&r) {
				some.rows = append(some.rows, r)
			}
		}
		if len(some.rows) > 0 {
			chosen = append(chosen, some)
		}
	}
	return chosen
}
