// SPDX-License-Identifier: GPL-2.0
/* The driver comes and goes, and every page comes back. */
#include "kselftest_harness.h"
#include "balloon_test.h"

/*
 * What slab caches and the like may keep.  The rounds of a test are judged
 * together, so one lost block of 2 MiB in each is over it.
 */
#define SLACK	(5 * MIB)
#define ROUNDS	4

FIXTURE(cycle)
{
	struct baseline before;
};

FIXTURE_SETUP(cycle)
{
	const char *missing = balloon_missing();

	if (missing)
		SKIP(return, "%s", missing);
	ASSERT_TRUE(start_at(900 * MIB, ""));
	ASSERT_TRUE(module_unload());
	ASSERT_TRUE(target_set(memory_bytes()));
	self->before = baseline_take();
}

FIXTURE_TEARDOWN(cycle)
{
	start_over();
}

static bool all_back(const struct baseline *before)
{
	return baseline_back(before, SLACK) && host_number("actual") == memory_bytes();
}

TEST_F_TIMEOUT(cycle, empty, 150)
{
	int i;

	for (i = 0; i < ROUNDS; i++) {
		ASSERT_TRUE(module_load(""));
		ASSERT_TRUE(device_bound());
		ASSERT_TRUE(module_unload());
		ASSERT_FALSE(module_loaded());
	}
	EXPECT_TRUE(all_back(&self->before));
}

TEST_F_TIMEOUT(cycle, inflated, 150)
{
	int i;

	for (i = 0; i < ROUNDS; i++) {
		ASSERT_TRUE(start_at((400 + i) * MIB, ""));
		ASSERT_TRUE(module_unload());
		ASSERT_EQ(0, balloon_pages());
	}
	EXPECT_TRUE(all_back(&self->before));
}

/* Each round is caught a little later on its way */
TEST_F_TIMEOUT(cycle, while_inflating, 150)
{
	int i;

	for (i = 0; i < ROUNDS; i++) {
		ASSERT_TRUE(start_at(memory_bytes(), ""));
		ASSERT_TRUE(target_set(150 * MIB));
		ASSERT_TRUE(WAIT_FOR(balloon_pages() > i * 20 * MIB / getpagesize(), 30));
		ASSERT_TRUE(module_unload());
		ASSERT_EQ(0, balloon_pages());
	}
	EXPECT_TRUE(all_back(&self->before));
}

TEST_F_TIMEOUT(cycle, unbind_and_bind, 150)
{
	int i;

	ASSERT_TRUE(start_at(400 * MIB, ""));
	for (i = 0; i < ROUNDS; i++) {
		ASSERT_TRUE(device_unbind());
		ASSERT_EQ(0, balloon_pages());
		EXPECT_EQ(memory_bytes(), host_number("actual"));
		ASSERT_TRUE(device_bind());
		/* The device has kept the target */
		ASSERT_TRUE(WAIT_FOR(target_settled(400 * MIB), SETTLE_SECONDS));
	}
	ASSERT_TRUE(device_unbind());
	EXPECT_TRUE(all_back(&self->before));
	ASSERT_TRUE(device_bind());
}

TEST_F_TIMEOUT(cycle, unbind_while_inflating, 150)
{
	int i;

	ASSERT_TRUE(start_at(memory_bytes(), ""));
	ASSERT_TRUE(target_set(150 * MIB));
	for (i = 0; i < ROUNDS; i++) {
		ASSERT_TRUE(WAIT_FOR(balloon_pages() > i * 20 * MIB / getpagesize(), 30));
		ASSERT_TRUE(device_unbind());
		ASSERT_EQ(0, balloon_pages());
		ASSERT_TRUE(device_bind());
	}
	ASSERT_TRUE(device_unbind());
	EXPECT_TRUE(all_back(&self->before));
	ASSERT_TRUE(device_bind());
}

TEST_HARNESS_MAIN
