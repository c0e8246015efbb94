// SPDX-License-Identifier: GPL-2.0
/* The balloon goes where the host wants it, to the page, and nowhere else. */
#include "kselftest_harness.h"
#include "balloon_test.h"

FIXTURE(target)
{
	long long inflated;
	long long deflated;
};

FIXTURE_SETUP(target)
{
	const char *missing = balloon_missing();

	if (missing)
		SKIP(return, "%s", missing);
	ASSERT_TRUE(start_at(memory_bytes(), ""));
	self->inflated = vm_counter("balloon_inflate");
	self->deflated = vm_counter("balloon_deflate");
}

FIXTURE_TEARDOWN(target)
{
	start_over();
}

/* Pages that went in and came out since the test began: detours count too */
#define INFLATED()	(vm_counter("balloon_inflate") - self->inflated)
#define DEFLATED()	(vm_counter("balloon_deflate") - self->deflated)

TEST_F_TIMEOUT(target, down, 150)
{
	ASSERT_TRUE(target_reach(600 * MIB));
	EXPECT_EQ(pages_for(600 * MIB), INFLATED());
	EXPECT_EQ(0, DEFLATED());
}

TEST_F_TIMEOUT(target, up, 150)
{
	ASSERT_TRUE(target_reach(400 * MIB));
	ASSERT_TRUE(target_reach(900 * MIB));
	EXPECT_EQ(pages_for(400 * MIB), INFLATED());
	EXPECT_EQ(pages_for(400 * MIB) - pages_for(900 * MIB), DEFLATED());
	ASSERT_TRUE(target_reach(memory_bytes()));
	EXPECT_EQ(INFLATED(), DEFLATED());
}

/* No multiple of a block, of a request, or (the last two) of a page */
TEST_F_TIMEOUT(target, in_odd_sizes, 150)
{
	static const long long targets[] = {
		777 * MIB, 401 * MIB, 403 * MIB, 599 * MIB + 4096,
		598 * MIB + 12345, 1001 * MIB - 1,
	};
	long long up = 0, down = 0, at = 0;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(targets); i++) {
		long long pages = pages_for(targets[i]);

		ASSERT_TRUE(target_reach(targets[i]));
		if (pages > at)
			up += pages - at;
		else
			down += at - pages;
		at = pages;
	}
	EXPECT_EQ(up, INFLATED());
	EXPECT_EQ(down, DEFLATED());
}

TEST_F_TIMEOUT(target, to_the_same_value, 150)
{
	int i;

	ASSERT_TRUE(target_reach(600 * MIB));
	for (i = 0; i < 5; i++) {
		ASSERT_TRUE(target_set(600 * MIB));
		usleep(100000);
	}
	EXPECT_TRUE(target_settled(600 * MIB));
	EXPECT_EQ(pages_for(600 * MIB), INFLATED());
	EXPECT_EQ(0, DEFLATED());
}

/* The first target is far away: it must be given up, not finished first */
TEST_F_TIMEOUT(target, changed_while_inflating, 150)
{
	ASSERT_TRUE(target_set(150 * MIB));
	ASSERT_TRUE(WAIT_FOR(balloon_pages() > pages_for(980 * MIB), 30));
	ASSERT_TRUE(target_reach(900 * MIB));
	EXPECT_LT(INFLATED(), pages_for(150 * MIB));
}

TEST_F_TIMEOUT(target, changed_while_deflating, 150)
{
	ASSERT_TRUE(target_reach(250 * MIB));
	ASSERT_TRUE(target_set(memory_bytes()));
	ASSERT_TRUE(WAIT_FOR(balloon_pages() < pages_for(300 * MIB), 30));
	ASSERT_TRUE(target_reach(350 * MIB));
	EXPECT_LT(DEFLATED(), pages_for(250 * MIB));
}

/*
 * U20: the device counts in wire pages, and a part of a page of the guest's
 * cannot be ballooned.  The driver gives the whole page, and is content then.
 */
#define QUIET_STEPS	16
#define QUIET_SECONDS	10

FIXTURE(unaligned)
{
};

FIXTURE_SETUP(unaligned)
{
	const char *missing = balloon_missing();

	if (missing)
		SKIP(return, "%s", missing);
	ASSERT_TRUE(start_at(memory_bytes(), ""));
}

FIXTURE_TEARDOWN(unaligned)
{
	start_over();
}

/* True if not a page moves, nor is the device told anything */
static bool quiet_for(double seconds)
{
	long long inflated = vm_counter("balloon_inflate");
	long long deflated = vm_counter("balloon_deflate");
	long long requests = queue_used(0) + queue_used(1);
	long long told = debugfs_number("counters", "config writes");

	usleep(seconds * 1000000);
	return vm_counter("balloon_inflate") == inflated &&
	       vm_counter("balloon_deflate") == deflated &&
	       queue_used(0) + queue_used(1) == requests &&
	       debugfs_number("counters", "config writes") == told;
}

/* Reached from above and from below */
TEST_F_TIMEOUT(unaligned, every_residue_settles, 240)
{
	int i;

	for (i = 0; i < QUIET_STEPS; i++) {
		long long target = 700 * MIB - i * WIRE_PAGE;

		ASSERT_TRUE(target_reach(target));
		EXPECT_TRUE(quiet_for(0.3));
		ASSERT_TRUE(target_reach(target - 10 * MIB));
		ASSERT_TRUE(target_reach(target));
		EXPECT_TRUE(quiet_for(0.3));
	}
	EXPECT_TRUE(quiet_for(QUIET_SECONDS));
	EXPECT_TRUE(target_settled(700 * MIB - (QUIET_STEPS - 1) * WIRE_PAGE));
	ASSERT_TRUE(target_reach(memory_bytes() - WIRE_PAGE));
	EXPECT_TRUE(quiet_for(QUIET_SECONDS));
}

/* A device with larger pages frees those of which it sees all, in order */
TEST_F_TIMEOUT(unaligned, a_page_is_in_one_request, 150)
{
	char answer[128];
	int queue;

	ASSERT_TRUE(target_reach(500 * MIB));
	ASSERT_TRUE(target_reach(600 * MIB));
	for (queue = 0; queue < 2; queue++) {
		ASSERT_TRUE(host_request(answer, sizeof(answer), "requests %d %lld", queue,
					 getpagesize() / WIRE_PAGE));
		EXPECT_GT(host_field(answer, "pages"), 100);
		EXPECT_EQ(0, host_field(answer, "bad"));
	}
}

/* U18: a target that was set before there was a driver */
FIXTURE(early)
{
};

FIXTURE_SETUP(early)
{
	const char *missing = balloon_missing();

	if (missing)
		SKIP(return, "%s", missing);
	ASSERT_TRUE(module_unload());
	ASSERT_EQ(0, balloon_pages());
}

FIXTURE_TEARDOWN(early)
{
	start_over();
}

TEST_F_TIMEOUT(early, is_followed_at_load, 150)
{
	ASSERT_TRUE(target_set(500 * MIB));
	ASSERT_TRUE(module_load(""));
	EXPECT_TRUE(WAIT_FOR(target_settled(500 * MIB), SETTLE_SECONDS));
	ASSERT_TRUE(module_unload());
	ASSERT_EQ(0, balloon_pages());
	ASSERT_TRUE(module_load(""));
	EXPECT_TRUE(WAIT_FOR(target_settled(500 * MIB), SETTLE_SECONDS));
}

/*
 * U16: a reboot between these two, which the host does.  The device keeps the
 * target, and after a reset its "actual" still says what the last boot wrote:
 * only the guest's own count shows that the balloon was filled again.
 */
FIXTURE(reboot)
{
};

FIXTURE_SETUP(reboot)
{
	const char *missing = balloon_missing();

	if (missing)
		SKIP(return, "%s", missing);
}

FIXTURE_TEARDOWN(reboot)
{
}

TEST_F_TIMEOUT(reboot, before, 150)
{
	ASSERT_TRUE(start_at(500 * MIB, ""));
}

TEST_F_TIMEOUT(reboot, after, 150)
{
	ASSERT_EQ(0, vm_counter("balloon_inflate"));
	ASSERT_TRUE(module_load(""));
	EXPECT_TRUE(WAIT_FOR(target_settled(500 * MIB), SETTLE_SECONDS));
	EXPECT_EQ(pages_for(500 * MIB), vm_counter("balloon_inflate"));
	start_over();
}

/* U29: small moves, ten in a second; @STEP to either side */
#define BASE	(600 * MIB)
#define STEP	(10 * MIB)
#define MOVES	20

TEST_F_TIMEOUT(target, wiggle, 150)
{
	long long step = pages_for(BASE) - pages_for(BASE + STEP);
	long long start = pages_for(BASE);
	int i;

	ASSERT_TRUE(target_reach(BASE));
	for (i = 0; i < MOVES; i++) {
		ASSERT_TRUE(target_set(i % 2 ? BASE - STEP : BASE + STEP));
		usleep(100000);
	}
	ASSERT_TRUE(target_reach(BASE));
	/* Each move is two steps at most, and only every other one inflates */
	EXPECT_LE(INFLATED(), start + MOVES / 2 * 2 * step + step);
	EXPECT_LE(DEFLATED(), MOVES / 2 * 2 * step + step);
	/* They were followed, not slept through */
	EXPECT_GE(INFLATED(), start + MOVES / 2 * step);

	usleep(500000);
	EXPECT_TRUE(target_settled(BASE));
	EXPECT_EQ(pages_for(BASE), INFLATED() - DEFLATED());
}

TEST_HARNESS_MAIN
