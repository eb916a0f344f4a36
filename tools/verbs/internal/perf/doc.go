// Package perf measures what perftest's ib_{send,write,read,atomic}_{bw,lat} measure.
package perf
