// SPDX-License-Identifier: GPL-2.0
/* U17: the device goes away at any moment, and every page comes back. */
#include "kselftest_harness.h"
#include "balloon_test.h"

#define PROPERTIES	"deflate-on-oom=on free-page-hint=on free-page-reporting=on"
#define LOW		(250 * MIB)
#define DIRTY		(300 * MIB)	/* what a hint run is busy with */
#define SLACK		(5 * MIB)	/* of all rounds of a test: two lost blocks are more */
#define ROUNDS		4

/* Not every QEMU bears hinting on every machine: it can be left out */
static const char *properties(void)
{
	return getenv("PROPERTIES") ?: PROPERTIES;
}

FIXTURE(unplug)
{
	struct baseline before;
	int caught;		/* rounds in which the device went in the middle */
};

FIXTURE_SETUP(unplug)
{
	const char *missing = plug_missing();

	if (missing)
		SKIP(return, "%s", missing);
	ASSERT_TRUE(no_device());
	ASSERT_TRUE(module_load(""));
	ASSERT_TRUE(device_plug(properties()));
	ASSERT_TRUE(target_reach(600 * MIB));
	ASSERT_TRUE(device_unplug());
	ASSERT_EQ(0, balloon_pages());
	self->before = baseline_take();
}

FIXTURE_TEARDOWN(unplug)
{
	char answer[128];

	host_request(answer, sizeof(answer), "migrate-finish");
	no_device();
}

static bool way_down(int round)
{
	return target_set(LOW) &&
	       WAIT_FOR(balloon_pages() > (1 + round) * 20 * MIB / getpagesize(), 30);
}

static bool way_up(int round)
{
	return target_reach(LOW) && target_set(memory_bytes()) &&
	       WAIT_FOR(balloon_pages() < pages_for(LOW + (1 + round) * 20 * MIB), 30);
}

/* A round that came too late proves little, but one in time is enough */
static bool in_the_middle(long long inflated, long long deflated)
{
	long long down = vm_counter("balloon_inflate") - inflated;

	return down > 0 && down < pages_for(LOW) &&
	       vm_counter("balloon_deflate") - deflated == down;
}

TEST_F_TIMEOUT(unplug, while_inflating, 240)
{
	int i;

	for (i = 0; i < rounds(ROUNDS); i++) {
		long long inflated = vm_counter("balloon_inflate");
		long long deflated = vm_counter("balloon_deflate");

		ASSERT_TRUE(device_plug(properties()));
		ASSERT_TRUE(way_down(i % ROUNDS));
		ASSERT_TRUE(device_unplug());
		ASSERT_EQ(0, balloon_pages());
		self->caught += in_the_middle(inflated, deflated);
	}
	EXPECT_GT(self->caught, 0);
	EXPECT_TRUE(baseline_back(&self->before, SLACK));
}

TEST_F_TIMEOUT(unplug, while_deflating, 240)
{
	int i;

	for (i = 0; i < rounds(ROUNDS); i++) {
		ASSERT_TRUE(device_plug(properties()));
		ASSERT_TRUE(way_up(i % ROUNDS));
		ASSERT_TRUE(device_unplug());
		ASSERT_EQ(0, balloon_pages());
	}
	EXPECT_TRUE(baseline_back(&self->before, SLACK));
}

TEST_F_TIMEOUT(unplug, unbind_while_inflating, 240)
{
	int i;

	ASSERT_TRUE(device_plug(properties()));
	for (i = 0; i < rounds(ROUNDS); i++) {
		long long inflated = vm_counter("balloon_inflate");
		long long deflated = vm_counter("balloon_deflate");

		ASSERT_TRUE(way_down(i % ROUNDS));
		ASSERT_TRUE(device_unbind());
		ASSERT_EQ(0, balloon_pages());
		self->caught += in_the_middle(inflated, deflated);
		ASSERT_TRUE(target_set(memory_bytes()));
		ASSERT_TRUE(device_bind());
	}
	EXPECT_GT(self->caught, 0);
	ASSERT_TRUE(device_unplug());
	EXPECT_TRUE(baseline_back(&self->before, SLACK));
}

TEST_F_TIMEOUT(unplug, unbind_while_deflating, 240)
{
	int i;

	ASSERT_TRUE(device_plug(properties()));
	for (i = 0; i < rounds(ROUNDS); i++) {
		ASSERT_TRUE(way_up(i % ROUNDS));
		ASSERT_TRUE(device_unbind());
		ASSERT_EQ(0, balloon_pages());
		ASSERT_TRUE(device_bind());
	}
	ASSERT_TRUE(device_unplug());
	EXPECT_TRUE(baseline_back(&self->before, SLACK));
}

static bool hint_run(const struct baseline *before)
{
	struct buffer buffer;

	if (!buffer_map(&buffer, DIRTY))
		return false;
	buffer_fill(&buffer, 5);
	buffer_unmap(&buffer);
	return host_number("migrate-start 4") != -1 &&
	       WAIT_FOR(free_bytes() < before->free - DIRTY / 2, 30);
}

/*
 * QEMU does not unplug while it migrates, and only then there are hints: the
 * guest lets go of the device by itself, by either way if it is behind PCI.
 */
TEST_F_TIMEOUT(unplug, while_hinting, 240)
{
	char answer[128];
	int i;

	ASSERT_TRUE(device_plug(properties()));
	for (i = 0; i < rounds(ROUNDS); i++) {
		bool unbind = i % 2 || access("/sys/bus/pci", F_OK);

		ASSERT_TRUE(hint_run(&self->before));
		ASSERT_TRUE(unbind ? device_unbind() : pci_remove());
		EXPECT_TRUE(WAIT_FOR(free_bytes() >= self->before.free - SLACK, 20));
		ASSERT_TRUE(host_request(answer, sizeof(answer), "migrate-finish"));
		ASSERT_TRUE(unbind ? device_bind() : pci_rescan());
	}
	ASSERT_TRUE(device_unplug());
	EXPECT_TRUE(baseline_back(&self->before, SLACK));
}

TEST_HARNESS_MAIN
