// SPDX-License-Identifier: GPL-2.0
/*
 * Break free memory into single pages: fragment MIB
 *
 * Takes so much, gives every other page back, says "ready", and keeps the rest
 * until it is killed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	size_t bytes = argc == 2 ? strtoul(argv[1], NULL, 10) << 20 : 0;
	size_t page = getpagesize(), at;
	char *memory;

	if (!bytes) {
		fputs("usage: fragment MIB\n", stderr);
		return 2;
	}
	memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (memory == MAP_FAILED || madvise(memory, bytes, MADV_NOHUGEPAGE)) {
		perror("fragment");
		return 1;
	}
	for (at = 0; at < bytes; at += page)
		memory[at] = 1;
	for (at = 0; at < bytes; at += 2 * page)
		madvise(memory + at, page, MADV_DONTNEED);
	puts("ready");
	fflush(stdout);
	for (;;)
		pause();
}
