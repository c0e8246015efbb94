// SPDX-License-Identifier: GPL-2.0
/*
 * A program that needs memory: memtouch [-t THREADS] [-r] [-h] [-l] MIB [SECONDS]
 *
 * Writes every page of MIB mebibytes, holds them for a while, checks that each
 * page still says what was written to it, and tells how long that took and how
 * long the worst MiB did. MAP_NORESERVE: without DEFLATE_ON_OOM a balloon makes
 * MemTotal smaller, and the overcommit heuristic would refuse a mapping that
 * the test is about.
 *
 *   -t  so many threads share the pages
 *   -r  in a scattered order, as a garbage collector's heap is used
 *   -h  asks for huge pages
 *   -l  locks the memory
 *
 * A thread's worst MiB is the longest that it took for a MiB's worth of pages.
 * In a scattered order the first ones may each get a huge page, so that this is
 * to be compared between balloons rather than with none.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define MIB		(1024UL * 1024)
#define BLOCK		(2 * MIB)	/* a huge page begins at a multiple of it */
#define THREADS_MAX	64
#define USAGE		"usage: memtouch [-t THREADS] [-r] [-h] [-l] MIB [SECONDS]\n"

struct work {
	char *memory;
	size_t pages;
	size_t page;		/* bytes */
	unsigned int threads;
	bool scattered;
};

struct share {
	pthread_t thread;
	const struct work *work;
	unsigned int number;
	unsigned long long worst_ns;
};

static unsigned long long now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ULL + ts.tv_nsec;
}

/* Different for every page, and never zero. */
static unsigned long mark(size_t index)
{
	return index + 1;
}

static void touch_page(const struct work *work, size_t index)
{
	unsigned long value = mark(index);

	memcpy(work->memory + index * work->page, &value, sizeof(value));
}

static size_t count_damaged(const struct work *work)
{
	size_t index, damaged = 0;

	for (index = 0; index < work->pages; index++) {
		unsigned long value = mark(index);

		damaged += !!memcmp(work->memory + index * work->page, &value, sizeof(value));
	}
	return damaged;
}

static unsigned int bits_for(size_t count)
{
	unsigned int bits = 2;

	while (count > 1UL << bits)
		bits++;
	return bits;
}

/* Each number below 2^bits has another one: odd factors and shifts can be undone. */
static size_t scatter(size_t at, unsigned int bits)
{
	size_t mask = (1UL << bits) - 1;

	at = at * 0x9e3779b97f4a7c15UL & mask;
	at ^= at >> (bits / 2);
	at = at * 0xbf58476d1ce4e5b9UL & mask;
	return at ^ at >> (bits / 2);
}

/* Every page in turn, those of one thread only; numbers beyond the last are left out. */
static void *touch_share(void *data)
{
	struct share *share = data;
	const struct work *work = share->work;
	unsigned int bits = bits_for(work->pages);
	size_t end = work->scattered ? 1UL << bits : work->pages;
	unsigned long long before = now_ns();
	size_t i, touched = 0;

	for (i = 0; i < end; i++) {
		size_t index = work->scattered ? scatter(i, bits) : i;
		unsigned long long took;

		/* Whole MiBs to each thread where the order is the natural one */
		if ((work->scattered ? i : i * work->page / MIB) % work->threads != share->number ||
		    index >= work->pages)
			continue;
		touch_page(work, index);
		if (++touched * work->page % MIB)
			continue;
		took = now_ns() - before;
		if (took > share->worst_ns)
			share->worst_ns = took;
		before += took;
	}
	return NULL;
}

/* How long the worst MiB of all threads took. */
static unsigned long long touch_all(const struct work *work)
{
	struct share shares[THREADS_MAX] = { 0 };
	unsigned long long worst_ns = 0;
	unsigned int i;

	for (i = 0; i < work->threads; i++) {
		shares[i].work = work;
		shares[i].number = i;
		if (pthread_create(&shares[i].thread, NULL, touch_share, &shares[i])) {
			fprintf(stderr, "memtouch: no thread could be started\n");
			exit(1);
		}
	}
	for (i = 0; i < work->threads; i++) {
		pthread_join(shares[i].thread, NULL);
		if (shares[i].worst_ns > worst_ns)
			worst_ns = shares[i].worst_ns;
	}
	return worst_ns;
}

static char *map(size_t bytes, bool huge)
{
	char *memory = mmap(NULL, bytes + BLOCK, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (memory == MAP_FAILED) {
		perror("memtouch: mmap");
		exit(1);
	}
	memory += -(size_t)memory & (BLOCK - 1);
	if (huge && madvise(memory, bytes, MADV_HUGEPAGE)) {
		perror("memtouch: MADV_HUGEPAGE");
		exit(1);
	}
	return memory;
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

static void usage(void)
{
	fprintf(stderr, USAGE);
	exit(2);
}

int main(int argc, char **argv)
{
	struct work work = { .page = sysconf(_SC_PAGESIZE), .threads = 1 };
	bool huge = false, lock = false;
	unsigned long long start, took, worst_ns;
	size_t mib, hold, damaged;
	int option;

	while ((option = getopt(argc, argv, "t:rhl")) != -1) {
		if (option == 't')
			work.threads = parse(optarg);
		else if (option == 'r')
			work.scattered = true;
		else if (option == 'h')
			huge = true;
		else if (option == 'l')
			lock = true;
		else
			usage();
	}
	if (argc - optind < 1 || argc - optind > 2 || !work.threads ||
	    work.threads > THREADS_MAX)
		usage();
	mib = parse(argv[optind]);
	hold = argc - optind > 1 ? parse(argv[optind + 1]) : 0;
	start = now_ns();
	work.memory = map(mib * MIB, huge);
	work.pages = mib * MIB / work.page;
	worst_ns = touch_all(&work);
	if (lock && mlock(work.memory, mib * MIB)) {
		perror("memtouch: mlock");
		return 1;
	}
	took = now_ns() - start;
	/* At once: whoever waits for this need not wait for the end */
	printf("mib=%zu seconds=%.3f worst_ns=%llu\n", mib, took / 1e9, worst_ns);
	fflush(stdout);
	sleep(hold);
	damaged = count_damaged(&work);
	printf("damaged=%zu\n", damaged);
	return damaged ? 1 : 0;
}
