// The program that rxevm bench -perf starts others through: what it takes to make a process is
// over when it reads the clock, and does not count as theirs.
//
//	launch PROGRAM ARG...
//
// It prints the time of CLOCK_MONOTONIC in ns, the eight bytes of a number, and becomes PROGRAM.
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	struct timespec t;

	if (argc < 2)
		return 2;
	clock_gettime(CLOCK_MONOTONIC, &t);
	int64_t now = t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
	if (write(1, &now, sizeof now) != sizeof now)
		return 1;
	execv(argv[1], argv + 1);
	perror(argv[1]);
	return 1;
}
