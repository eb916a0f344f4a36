// Package top is what verbs top does: it looks at every RDMA object of the
// machine, whoever owns it, joins what RDMA netlink, /proc, /sys and the
// tracer say, and makes rates out of two looks.
//
//	c := top.NewCollector(conn, top.ThisHost(), nil) // conn is a *nldev.Conn
//	if _, err := c.Look(""); err != nil {
//		return err
//	}
//	time.Sleep(time.Second)
//	look, err := c.Look("") // now with rates
//	if err != nil {
//		return err
//	}
//	return top.WriteText(os.Stdout, look, top.Page{})
//
// A [Look] is also the JSON object that verbs top -json prints. [WriteMetrics]
// makes OpenMetrics out of it, and a [Server] hands those out by HTTP.
//
// # Hostile input
//
// What comes from processes (their names) and from the kernel is not trusted:
// every text is made printable where it enters, numbers that went backwards
// give no rate, and what one device refuses is said of that device and leaves
// the others alone. A look takes time and memory in proportion to the objects.
//
// # Concurrency
//
// A [Collector] is for one goroutine. A [Look] does not change once it is made
// and may be read from any. A [Server] may be given texts from any goroutine.
//
// # Errors
//
// [Collector.Look] fails where the list of devices cannot be had. All else that
// is missing stands in [Look.Notes] and [Device.Missing] as sentences.
package top
