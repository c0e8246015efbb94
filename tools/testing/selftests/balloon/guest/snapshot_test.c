// SPDX-License-Identifier: GPL-2.0
/*
 * U12: the whole guest goes back to a moment of its past, in mid-inflate and
 * with statistics polled, and goes on from there.
 *
 * The host saves the guest while the guest waits for the answer to that: so each
 * time that it goes back, it gets that answer again.  What it knows of its other
 * lives is only what the answer says.
 */
#include "kselftest_harness.h"
#include "balloon_test.h"

#define LOW	(250 * MIB)
#define LIVES	3

FIXTURE(snapshot)
{
};

FIXTURE_SETUP(snapshot)
{
	const char *missing = balloon_missing();

	if (missing)
		SKIP(return, "%s", missing);
	ASSERT_TRUE(start_at(memory_bytes(), ""));
	ASSERT_NE(-1, host_number("stats-interval 1"));
}

FIXTURE_TEARDOWN(snapshot)
{
	host_number("stats-interval 0");
	start_over();
}

TEST_F_TIMEOUT(snapshot, continues_to_the_target, 240)
{
	long long restored;

	ASSERT_NE(-1, host_number("stats-fresh 1"));
	ASSERT_TRUE(target_set(LOW));
	restored = host_number("snapshot-below %lld", memory_bytes() - 40 * MIB);
	ASSERT_NE(-1, restored);
	/* In mid-inflate, or this shows nothing */
	ASSERT_LT(balloon_pages(), pages_for(LOW));
	EXPECT_TRUE(WAIT_FOR(target_settled(LOW), SETTLE_SECONDS));
	EXPECT_NE(-1, host_number("stats-fresh 2"));
	/* It moves in every direction */
	EXPECT_TRUE(target_reach(600 * MIB));
	ASSERT_EQ(0, _metadata->exit_code);
	if (restored < LIVES - 1)
		host_number("restore");
	EXPECT_EQ(LIVES - 1, restored);
}

TEST_HARNESS_MAIN
