// SPDX-License-Identifier: GPL-2.0
/*
 * A program that needs memory: memtouch MIB [SECONDS]
 *
 * Writes every page of MIB mebibytes, holds them for a while, checks that each
 * page still says what was written to it, and tells how long that took and how
 * long the worst MiB did. MAP_NORESERVE: without DEFLATE_ON_OOM a balloon makes
 * MemTotal smaller, and the overcommit heuristic would refuse a mapping that
 * the test is about.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define MIB	(1024UL * 1024)

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

/* Different for every page, and never zero. */
static unsigned long mark(size_t offset)
{
	return offset + 1;
}

static void touch_mib(char *mib, size_t offset, size_t page)
{
	size_t at;

	for (at = 0; at < MIB; at += page) {
		unsigned long value = mark(offset + at);

		memcpy(mib + at, &value, sizeof(value));
	}
}

static size_t count_damaged(const char *memory, size_t size, size_t page)
{
	size_t at, damaged = 0;

	for (at = 0; at < size; at += page) {
		unsigned long value = mark(at);

		damaged += !!memcmp(memory + at, &value, sizeof(value));
	}
	return damaged;
}

/* How long the worst MiB took, in seconds. */
static double touch_all(char *memory, size_t size, size_t page)
{
	double worst = 0, before = now();
	size_t at;

	for (at = 0; at < size; at += MIB) {
		double after;

		touch_mib(memory + at, at, page);
		after = now();
		if (after - before > worst)
			worst = after - before;
		before = after;
	}
	return worst;
}

static size_t parse(const char *text)
{
	char *end;
	unsigned long value = strtoul(text, &end, 10);

	if (*end || end == text) {
		fprintf(stderr, "\"%s\" is not a number\n", text);
		exit(2);
	}
	return value;
}

int main(int argc, char **argv)
{
	size_t page = sysconf(_SC_PAGESIZE), mib, hold, damaged;
	double start = now(), worst, seconds;
	char *memory;

	if (argc < 2 || argc > 3) {
		fprintf(stderr, "usage: memtouch MIB [SECONDS]\n");
		return 2;
	}
	mib = parse(argv[1]);
	hold = argc > 2 ? parse(argv[2]) : 0;
	memory = mmap(NULL, mib * MIB, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (memory == MAP_FAILED) {
		perror("memtouch: mmap");
		return 1;
	}
	worst = touch_all(memory, mib * MIB, page);
	seconds = now() - start;
	sleep(hold);
	damaged = count_damaged(memory, mib * MIB, page);
	printf("mib=%zu seconds=%.3f worst_ms=%.1f damaged=%zu\n",
	       mib, seconds, worst * 1000, damaged);
	return damaged ? 1 : 0;
}
