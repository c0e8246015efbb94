// SPDX-License-Identifier: GPL-2.0
/* The host really gets the memory, and the guest never loses what it wrote. */
#include "kselftest_harness.h"
#include "balloon_test.h"

#define BEFORE		(150 * MIB)	/* written before the balloon is filled */
#define SPARE		(8 * MIB)
#define NOISE		(64 * MIB)	/* free memory that was not written; QEMU's own */
#define TARGET		(400 * MIB)

FIXTURE(data)
{
	struct buffer before;
	struct buffer after;
};

FIXTURE_SETUP(data)
{
	const char *missing = balloon_missing();

	if (missing)
		SKIP(return, "%s", missing);
	ASSERT_TRUE(start_at(memory_bytes(), ""));
}

FIXTURE_TEARDOWN(data)
{
	buffer_unmap(&self->before);
	buffer_unmap(&self->after);
	start_over();
}

/*
 * After a resize the lists of free pages that each CPU keeps may hold nearly all
 * that is left, and nothing counts as available; they shrink within seconds.
 */
static long long can_be_had(void)
{
	WAIT_FOR(meminfo_bytes("MemAvailable") > 3 * SPARE, 20);
	return meminfo_bytes("MemAvailable") - SPARE;
}

/* Write nearly all free memory, so that the host has to provide it */
static bool touch_free_memory(void)
{
	struct buffer buffer;

	if (!buffer_map(&buffer, can_be_had()))
		return false;
	buffer_fill(&buffer, 1);
	buffer_unmap(&buffer);
	return true;
}

TEST_F_TIMEOUT(data, host_gets_the_memory, 180)
{
	long long ballooned = memory_bytes() - TARGET;
	long long full, less;

	ASSERT_TRUE(touch_free_memory());
	full = host_number("rss") * 1024;
	ASSERT_GT(full, memory_bytes() - NOISE);
	ASSERT_TRUE(target_reach(TARGET));
	less = host_number("rss") * 1024;
	TH_LOG("host RSS %lld -> %lld MiB, balloon %lld MiB", full / MIB,
	       less / MIB, ballooned / MIB);
	EXPECT_GE(full - less, ballooned - NOISE);
	EXPECT_LE(full - less, ballooned + NOISE);
}

TEST_F_TIMEOUT(data, what_was_written_stays, 240)
{
	ASSERT_TRUE(buffer_map(&self->before, BEFORE));
	buffer_fill(&self->before, 7);
	ASSERT_TRUE(target_reach(TARGET));
	EXPECT_TRUE(buffer_intact(&self->before));

	ASSERT_TRUE(buffer_map(&self->after, can_be_had()));
	buffer_fill(&self->after, 11);
	EXPECT_TRUE(target_settled(TARGET));
	EXPECT_TRUE(buffer_intact(&self->before));
	EXPECT_TRUE(buffer_intact(&self->after));

	ASSERT_TRUE(target_reach(memory_bytes()));
	EXPECT_TRUE(buffer_intact(&self->before));
	EXPECT_TRUE(buffer_intact(&self->after));

	/* Pages that have been in the balloon are as good as any */
	buffer_unmap(&self->after);
	ASSERT_TRUE(buffer_map(&self->after, can_be_had()));
	buffer_fill(&self->after, 13);
	EXPECT_TRUE(buffer_intact(&self->after));
	EXPECT_TRUE(buffer_intact(&self->before));
}

TEST_HARNESS_MAIN
