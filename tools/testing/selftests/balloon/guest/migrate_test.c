// SPDX-License-Identifier: GPL-2.0
/* Ballooned pages move away where memory is wanted in one piece. */
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "kselftest_harness.h"
#include "balloon_test.h"

#define MEMORY		"/sys/devices/system/memory"
#define HUGE		"/sys/kernel/mm/hugepages/hugepages-%dkB/nr_hugepages"
#define HUGE_2M		2048
#define HUGE_1G		1048576
#define BLOCKS		3
#define CYCLES		6

FIXTURE(migrate)
{
	long long migrated;
	long long managed[8];
	pid_t child;
	int offline[BLOCKS];	/* memory blocks, 0 for none */
	struct buffer buffer;
};

/* Each zone's pages that the kernel counts as its own */
static void read_managed(long long managed[8])
{
	static char text[262144];
	char *line = text;
	int zone = 0;

	memset(managed, 0, 8 * sizeof(*managed));
	if (read_file("/proc/zoneinfo", text, sizeof(text)) < 0)
		return;
	while (zone < 8 && (line = strstr(line, " managed "))) {
		line += strlen(" managed ");
		managed[zone++] = atoll(line);
	}
}

FIXTURE_SETUP(migrate)
{
	const char *missing = balloon_missing();

	if (missing)
		SKIP(return, "%s", missing);
	if (access("/proc/sys/vm/compact_memory", W_OK))
		SKIP(return, "this kernel does not compact");
	ASSERT_TRUE(start_at(memory_bytes(), ""));
	read_managed(self->managed);
	self->migrated = vm_counter("balloon_migrate");
}

static void huge_pages(int kib, int count)
{
	char path[96], text[16];

	snprintf(path, sizeof(path), HUGE, kib);
	snprintf(text, sizeof(text), "%d", count);
	write_file(path, text);
}

static long long huge_pages_got(int kib)
{
	char path[96];

	snprintf(path, sizeof(path), HUGE, kib);
	return read_number(path);
}

static bool block_state(int block, const char *state)
{
	char path[96];

	snprintf(path, sizeof(path), MEMORY "/memory%d/state", block);
	return write_file(path, state);
}

FIXTURE_TEARDOWN(migrate)
{
	int i;

	if (self->child > 0) {
		kill(self->child, SIGKILL);
		waitpid(self->child, NULL, 0);
	}
	for (i = 0; i < BLOCKS; i++)
		if (self->offline[i])
			block_state(self->offline[i], "online_movable");
	huge_pages(HUGE_2M, 0);
	huge_pages(HUGE_1G, 0);
	buffer_unmap(&self->buffer);
	start_over();
}

#define MIGRATED()	(vm_counter("balloon_migrate") - self->migrated)

/*
 * F10, F25: nothing is isolated, the driver has seen as many moves as the
 * kernel, and each zone has its pages back when the balloon is empty.
 */
static bool nothing_astray(long long migrated, const long long managed[8])
{
	long long now_is[8];

	if (debugfs_number("status", "isolated") ||
	    debugfs_number("counters", "pages migrated") != migrated) {
		printf("# isolated %lld, moves %lld, the kernel says %lld\n",
		       debugfs_number("status", "isolated"),
		       debugfs_number("counters", "pages migrated"), migrated);
		return false;
	}
	if (!target_reach(memory_bytes()))
		return false;
	read_managed(now_is);
	if (!memcmp(now_is, managed, sizeof(now_is)))
		return true;
	printf("# managed pages of the zones: %lld %lld %lld %lld, were %lld %lld %lld %lld\n",
	       now_is[0], now_is[1], now_is[2], now_is[3],
	       managed[0], managed[1], managed[2], managed[3]);
	return false;
}

static pid_t compact_always(void)
{
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid)
		return pid;
	while (write_file("/proc/sys/vm/compact_memory", "1"))
		usleep(1000);
	_exit(1);
}

/*
 * Lets go of every other page, so that free memory is in single pages between
 * others; takes only what is there in pieces that small.
 */
static void punch_holes(const struct buffer *buffer)
{
	char *at = (char *)buffer->words;
	size_t page = getpagesize(), offset;

	for (offset = 0; offset + page <= buffer->bytes; offset += 2 * page)
		madvise(at + offset, page, MADV_DONTNEED);
}

static bool scatter(struct buffer *buffer, long long bytes)
{
	if (!buffer_map(buffer, bytes))
		return false;
	madvise(buffer->words, buffer->bytes, MADV_NOHUGEPAGE);
	buffer_fill(buffer, 29);
	return true;
}

/* U15 */
TEST_F_TIMEOUT(migrate, compaction_while_resizing, 240)
{
	int i;

	ASSERT_TRUE(scatter(&self->buffer, 300 * MIB));
	self->child = compact_always();
	for (i = 0; i < rounds(CYCLES); i++) {
		ASSERT_TRUE(target_reach(memory_bytes() - (700 + 100 * (i % 3)) * MIB));
		if (i == 1)
			punch_holes(&self->buffer);
		ASSERT_TRUE(target_reach(memory_bytes() - 150 * MIB));
	}
	kill(self->child, SIGKILL);
	waitpid(self->child, NULL, 0);
	self->child = 0;
	TH_LOG("%lld pages moved", MIGRATED());
	EXPECT_TRUE(target_settled(memory_bytes() - 150 * MIB));
	EXPECT_GT(MIGRATED(), 0);
	EXPECT_TRUE(nothing_astray(MIGRATED(), self->managed));
}

static bool block_is_movable(int block)
{
	char path[96], zones[64];

	snprintf(path, sizeof(path), MEMORY "/memory%d/valid_zones", block);
	return read_file(path, zones, sizeof(zones)) > 0 && strstr(zones, "Movable") == zones;
}

/* Memory is unplugged under a settled balloon; its pages move elsewhere */
TEST_F_TIMEOUT(migrate, memory_goes_offline, 240)
{
	long long target = memory_bytes() - 900 * MIB;
	int block, done = 0;

	ASSERT_TRUE(target_reach(target));
	for (block = 0; block < 128 && done < BLOCKS; block++) {
		if (!block_is_movable(block))
			continue;
		ASSERT_TRUE(block_state(block, "offline"));
		self->offline[done++] = block;
		EXPECT_TRUE(target_settled(target));
	}
	ASSERT_EQ(BLOCKS, done);
	TH_LOG("%d blocks offline, %lld pages moved", done, MIGRATED());
	EXPECT_GT(MIGRATED(), BLOCKS * 64 * MIB / getpagesize());
	for (done = 0; done < BLOCKS; done++) {
		ASSERT_TRUE(block_state(self->offline[done], "online_movable"));
		self->offline[done] = 0;
	}
	EXPECT_TRUE(target_settled(target));
	EXPECT_TRUE(nothing_astray(MIGRATED(), self->managed));
}

/*
 * The balloon takes the single pages that a buffer let go of; then the buffer's
 * other half is free, and huge pages need both.  Whoever wants one compacts,
 * asynchronously at first, and must not be kept busy for ever with pages that do
 * not move; it may give up early, so it is helped on.
 */
TEST_F_TIMEOUT(migrate, huge_pages, 90)
{
	int tries = 5, wanted = 64;
	long long target;

	ASSERT_TRUE(scatter(&self->buffer, 800 * MIB));
	punch_holes(&self->buffer);
	/* 240 of 400 MiB of holes; more, and the guest would be out of memory */
	target = memory_bytes() - (meminfo_bytes("MemFree") - 160 * MIB);
	target &= ~(MIB - 1);
	ASSERT_TRUE(target_reach(target));
	buffer_unmap(&self->buffer);
	do {
		huge_pages(HUGE_2M, 220);
		write_file("/proc/sys/vm/compact_memory", "1");
	} while ((huge_pages_got(HUGE_2M) < wanted || !MIGRATED()) && --tries);
	TH_LOG("%lld huge pages, %lld pages moved", huge_pages_got(HUGE_2M), MIGRATED());
	EXPECT_LE(wanted, huge_pages_got(HUGE_2M));
	EXPECT_GT(MIGRATED(), 0);
	EXPECT_TRUE(target_settled(target));
	huge_pages(HUGE_2M, 0);
	EXPECT_TRUE(nothing_astray(MIGRATED(), self->managed));
}

/* One piece of 1 GiB, where the balloon is all over memory */
TEST_F_TIMEOUT(migrate, gigantic_page, 240)
{
	long long target = memory_bytes() - 2600 * MIB;
	int tries = 5;

	ASSERT_TRUE(target_reach(target));
	/* A page that is still on its way is reason enough to fail */
	do {
		huge_pages(HUGE_1G, 1);
	} while (!huge_pages_got(HUGE_1G) && --tries);
	TH_LOG("%lld gigantic pages, %lld pages moved, %d tries left", huge_pages_got(HUGE_1G),
	       MIGRATED(), tries);
	EXPECT_EQ(1, huge_pages_got(HUGE_1G));
	EXPECT_GT(MIGRATED(), 0);
	EXPECT_TRUE(target_settled(target));
	huge_pages(HUGE_1G, 0);
	EXPECT_TRUE(nothing_astray(MIGRATED(), self->managed));
}

TEST_HARNESS_MAIN
