// SPDX-License-Identifier: GPL-2.0
/*
 * A plugin for QEMU's emulation: how many instructions the guest has executed,
 * and where.
 *
 *   qemu -plugin insn_count.so,out=PATH[,range=START+BYTES]...
 *
 * keeps numbers of 64 bits in the host's byte order in a file that anybody may
 * read meanwhile: all instructions first, then, range by range, those of every
 * 16 bytes of the guest's code there. What the emulator translates as one piece
 * counts where it begins: a function, or a part of one.
 */
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "qemu_plugin.h"

#define GRAIN		16	/* functions begin at multiples of it */
#define RANGES_MAX	4

EXPORT int qemu_plugin_version = 1;

static struct {
	uint64_t start;
	uint64_t bytes;
	uint64_t *executed;
} ranges[RANGES_MAX];
static unsigned int nr_ranges;
static uint64_t *executed;

/* With two CPUs a few additions may be lost: they are not atomic. */
static void count(struct qemu_plugin_tb *tb, uint64_t *counter)
{
	qemu_plugin_register_vcpu_tb_exec_inline(tb, INLINE_ADD, counter,
						 qemu_plugin_tb_n_insns(tb));
}

static void translated(uint64_t id, struct qemu_plugin_tb *tb)
{
	uint64_t at = qemu_plugin_tb_vaddr(tb);
	unsigned int i;

	(void)id;
	count(tb, executed);
	for (i = 0; i < nr_ranges; i++)
		if (at - ranges[i].start < ranges[i].bytes)
			count(tb, ranges[i].executed +
			      (at - ranges[i].start) / GRAIN);
}

static bool add_range(const char *text)
{
	char *end;

	if (nr_ranges == RANGES_MAX)
		return false;
	ranges[nr_ranges].start = strtoull(text, &end, 0);
	if (*end != '+')
		return false;
	ranges[nr_ranges].bytes = strtoull(end + 1, &end, 0);
	return !*end && ranges[nr_ranges++].bytes % GRAIN == 0;
}

/* What follows the option's name, or NULL. */
static const char *option(const char *word, const char *name)
{
	size_t length = strlen(name);

	return strncmp(word, name, length) ? NULL : word + length;
}

static bool map_file(const char *path)
{
	size_t counters = 1;
	unsigned int i;
	int fd;

	for (i = 0; i < nr_ranges; i++)
		counters += ranges[i].bytes / GRAIN;
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || ftruncate(fd, counters * sizeof(*executed)))
		return false;
	executed = mmap(NULL, counters * sizeof(*executed),
			PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (executed == MAP_FAILED)
		return false;
	for (i = 0, counters = 1; i < nr_ranges; i++) {
		ranges[i].executed = executed + counters;
		counters += ranges[i].bytes / GRAIN;
	}
	return true;
}

EXPORT int qemu_plugin_install(uint64_t id, const void *info, int argc, char **argv)
{
	const char *file = NULL;
	int i;

	(void)info;
	for (i = 0; i < argc; i++) {
		const char *range = option(argv[i], "range=");

		if (range && !add_range(range))
			return -1;
		if (!range)
			file = option(argv[i], "out=");
		if (!range && !file)
			return -1;
	}
	if (!file || !map_file(file))
		return -1;
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	return 0;
}
