// SPDX-License-Identifier: GPL-2.0
/* U14, U23: the guest sleeps, and the balloon is what it was afterwards. */
#include <sys/swap.h>

#include "kselftest_harness.h"
#include "balloon_test.h"

#define DISK		"/dev/vda"
#define LOW		(400 * MIB)
#define STRESS		(60 * MIB)
#define GAUGE_SLACK	(32 * MIB)

FIXTURE(suspend)
{
	struct hog stress;
	bool swap;
};

/* @mode: what hibernation does with its image; NULL: the guest sleeps in memory */
FIXTURE_VARIANT(suspend)
{
	const char *mode;
	bool forgets;		/* the target is not set when the guest wakes */
};

FIXTURE_VARIANT_ADD(suspend, ram)
{
};

/* The whole of hibernation, but that it resumes at once */
FIXTURE_VARIANT_ADD(suspend, image)
{
	.mode = "test_resume",
};

/* The host has to start the guest again, from its disk */
FIXTURE_VARIANT_ADD(suspend, disk)
{
	.mode = "shutdown",
	.forgets = true,
};

FIXTURE_SETUP(suspend)
{
	const char *missing = balloon_missing();

	if (missing)
		SKIP(return, "%s", missing);
	if (variant->mode) {
		if (access(DISK, W_OK))
			SKIP(return, "no disk for the image (" DISK " is missing)");
		self->swap = !system("mkswap " DISK " >/dev/null") && !swapon(DISK, 0);
		ASSERT_TRUE(self->swap);
		ASSERT_TRUE(write_file("/sys/power/disk", variant->mode));
	}
	ASSERT_TRUE(start_at(memory_bytes(), ""));
	ASSERT_NE(-1, host_number("stats-interval 1"));
}

FIXTURE_TEARDOWN(suspend)
{
	host_number("stats-interval 0");
	hog_end(&self->stress);
	if (self->swap)
		swapoff(DISK);
	start_over();
}

/* Asleep in memory, the guest must have all of its memory back */
static bool fall_asleep(const char *mode)
{
	long long asleep;

	if (mode)
		return write_file("/sys/power/state", "disk");
	if (host_number("wake-later") == -1 || !write_file("/sys/power/state", "mem"))
		return false;
	asleep = host_number("woken");
	if (asleep != memory_bytes())
		printf("# actual was %lld MiB while asleep\n", asleep / MIB);
	return asleep == memory_bytes();
}

static bool stats_tell_free_memory(void)
{
	long long sent, is, off;
	char answer[1024];

	if (host_number("stats-fresh 2") == -1 ||
	    !host_request(answer, sizeof(answer), "stats"))
		return false;
	sent = host_field(answer, "stat-free-memory");
	is = meminfo_bytes("MemFree");
	off = sent > is ? sent - is : is - sent;
	if (off > GAUGE_SLACK)
		printf("# free memory: %lld MiB sent, it is %lld MiB\n", sent / MIB, is / MIB);
	return off <= GAUGE_SLACK;
}

/* U23: new ones come, and they tell what is now; once is enough, as that moves */
static bool stats_fresh(void)
{
	int i;

	for (i = 0; i < 3; i++)
		if (stats_tell_free_memory())
			return true;
	return false;
}

/* The target was set before the sleep, and a device that knows it is not asked */
static bool target_kept(long long target, bool forgets)
{
	if (forgets)
		return WAIT_FOR(target_settled(memory_bytes()), SETTLE_SECONDS) &&
		       target_reach(target);
	if (WAIT_FOR(target_settled(target), SETTLE_SECONDS))
		return true;
	printf("# target %lld MiB: balloon %lld pages of %lld, actual %lld MiB\n",
	       target / MIB, balloon_pages(), pages_for(target),
	       host_number("actual") / MIB);
	return false;
}

TEST_F_TIMEOUT(suspend, empty, 240)
{
	ASSERT_TRUE(fall_asleep(variant->mode));
	EXPECT_TRUE(target_kept(memory_bytes(), variant->forgets));
	EXPECT_TRUE(stats_fresh());
	/* It works as before */
	EXPECT_TRUE(target_reach(LOW));
}

TEST_F_TIMEOUT(suspend, inflated, 240)
{
	ASSERT_TRUE(target_reach(LOW));
	ASSERT_TRUE(fall_asleep(variant->mode));
	EXPECT_TRUE(target_kept(LOW, variant->forgets));
	EXPECT_TRUE(stats_fresh());
	/* And a second time: restoring must leave nothing undone */
	ASSERT_TRUE(fall_asleep(variant->mode));
	EXPECT_TRUE(target_kept(LOW, variant->forgets));
	EXPECT_TRUE(target_reach(memory_bytes()));
}

/* F20 */
TEST_F_TIMEOUT(suspend, while_inflating, 240)
{
	ASSERT_TRUE(target_set(LOW));
	ASSERT_TRUE(WAIT_FOR(balloon_pages() > 20 * MIB / getpagesize(), 30));
	ASSERT_TRUE(fall_asleep(variant->mode));
	EXPECT_TRUE(target_kept(LOW, variant->forgets));
}

TEST_F_TIMEOUT(suspend, while_deflating, 240)
{
	ASSERT_TRUE(target_reach(LOW));
	ASSERT_TRUE(target_set(900 * MIB));
	ASSERT_TRUE(WAIT_FOR(balloon_pages() < pages_for(LOW + 20 * MIB), 30));
	ASSERT_TRUE(fall_asleep(variant->mode));
	EXPECT_TRUE(target_kept(900 * MIB, variant->forgets));
}

/* U14: with reporting, while memory is written, freed and looked at */
TEST_F_TIMEOUT(suspend, under_stress, 240)
{
	int i;

	ASSERT_TRUE(churn_start(&self->stress, STRESS));
	for (i = 0; i < rounds(2); i++) {
		ASSERT_TRUE(target_set(i % 2 ? 800 * MIB : LOW));
		usleep(100000 * (1 + i % 5));
		ASSERT_TRUE(fall_asleep(variant->mode));
		EXPECT_TRUE(target_kept(i % 2 ? 800 * MIB : LOW, variant->forgets));
		ASSERT_TRUE(hog_alive(&self->stress));
	}
	hog_end(&self->stress);
	EXPECT_TRUE(stats_fresh());
}

/* While it moves, the balloon keeps awake who asks before going to sleep */
FIXTURE(awake)
{
};

FIXTURE_SETUP(awake)
{
	const char *missing = balloon_missing();

	if (missing)
		SKIP(return, "%s", missing);
	ASSERT_TRUE(start_at(memory_bytes(), ""));
}

FIXTURE_TEARDOWN(awake)
{
	start_over();
}

TEST_F_TIMEOUT(awake, until_the_target_is_reached, 120)
{
	char text[64];
	int i;

	for (i = 0; i < 2; i++) {
		long long target = i ? memory_bytes() : LOW;

		ASSERT_TRUE(target_set(target));
		ASSERT_TRUE(WAIT_FOR(balloon_pages() != pages_for(i ? LOW : memory_bytes()), 30));
		EXPECT_NE(pages_for(target), balloon_pages());
		/* Reading blocks as long as something is going on */
		ASSERT_GT(read_file("/sys/power/wakeup_count", text, sizeof(text)), 0);
		EXPECT_EQ(pages_for(target), balloon_pages());
		/* And then nothing holds the system awake any longer */
		ASSERT_GT(read_file("/sys/power/wakeup_count", text, sizeof(text)), 0);
	}
}

TEST_HARNESS_MAIN
