// Package openmetrics reads the OpenMetrics text format strictly, for tests of
// what writes it.
//
//	families, err := openmetrics.Parse(text)
//	if err != nil {
//		t.Fatal(err)
//	}
//	for _, f := range families {
//		for _, s := range f.Samples {
//			fmt.Println(f.Type, s.Name, s.Labels, s.Value)
//		}
//	}
//
// # Concurrency
//
// Any goroutine may call [Parse].
//
// # Errors
//
// Errors quote the line, or name the family, that breaks a rule of the format.
package openmetrics
