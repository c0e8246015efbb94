// SPDX-License-Identifier: GPL-2.0
/*
 * Free memory is reported: the host gets it, and the guest never finds in it
 * what its kernel has not put there.
 */
#include <linux/virtio_balloon.h>

#include "kselftest_harness.h"
#include "balloon_test.h"

#define FREED		(512 * MIB)
#define NOISE		(64 * MIB)
#define KEPT		(50 * MIB)
#define CHURNED		(150 * MIB)
#define BALLOON		(200 * MIB)
#define REPORT_SECONDS	60	/* the core begins 2 s after memory was freed */

FIXTURE(reporting)
{
	struct buffer kept;
	struct buffer churned;
};

/* @offered: the device knows of poison */
FIXTURE_VARIANT(reporting)
{
	bool offered;
};

FIXTURE_VARIANT_ADD(reporting, poison_on)
{
	.offered = true,
};

FIXTURE_VARIANT_ADD(reporting, poison_off)
{
	.offered = false,
};

FIXTURE_SETUP(reporting)
{
	const char *missing = plug_missing();

	if (missing)
		SKIP(return, "%s", missing);
	ASSERT_TRUE(no_device());
	ASSERT_TRUE(module_load(""));
	ASSERT_TRUE(device_plug(variant->offered ?
				"free-page-reporting=on page-poison=on" :
				"free-page-reporting=on page-poison=off"));
}

FIXTURE_TEARDOWN(reporting)
{
	write_file("/sys/power/pm_test", "none");
	buffer_unmap(&self->kept);
	buffer_unmap(&self->churned);
	no_device();
}

static bool kernel_has(const char *option)
{
	char line[4096];

	return read_file("/proc/cmdline", line, sizeof(line)) > 0 &&
	       strstr(line, option);
}

static long long rss(void)
{
	return host_number("rss") * 1024;
}

TEST_F_TIMEOUT(reporting, host_gets_freed_memory, 150)
{
	long long full;

	ASSERT_TRUE(buffer_map(&self->churned, FREED));
	buffer_fill(&self->churned, 17);
	full = rss();
	buffer_unmap(&self->churned);
	EXPECT_TRUE(WAIT_FOR(rss() < full - FREED + NOISE, REPORT_SECONDS));
	TH_LOG("host RSS %lld -> %lld MiB", full / MIB, rss() / MIB);
	/* It was not the balloon */
	EXPECT_EQ(0, balloon_pages());
}

/* S3, F14: the device that knows nothing of poison must not know what is free */
TEST_F_TIMEOUT(reporting, negotiated, 60)
{
	bool keeps = kernel_has("page_poison=1") || kernel_has("init_on_free=1");
	unsigned long long bits = device_features();

	EXPECT_EQ(keeps && variant->offered, !!(bits & BIT(VIRTIO_BALLOON_F_PAGE_POISON)));
	EXPECT_EQ(!keeps || variant->offered, !!(bits & BIT(VIRTIO_BALLOON_F_REPORTING)));
}

/* The reports are the third queue where hinting is not offered */
static bool reports_have_come(long long before)
{
	return !(device_features() & BIT(VIRTIO_BALLOON_F_REPORTING)) ||
	       WAIT_FOR(queue_used(3) > before, REPORT_SECONDS);
}

/* Once through: written, freed, reported, and used again */
static bool go_round(struct buffer *buffer, int round)
{
	long long reports = queue_used(3);
	bool good;

	if (!buffer_map(buffer, CHURNED))
		return false;
	good = buffer_is_zero(buffer);
	buffer_fill(buffer, round);
	good &= buffer_intact(buffer);
	buffer_unmap(buffer);
	return good && reports_have_come(reports);
}

/*
 * S27, S31: a kernel that poisons looks at each page that it hands out, and the
 * log must be clean; one that zeroes takes for granted that free memory is zero.
 */
TEST_F_TIMEOUT(reporting, no_page_changes, 240)
{
	int i;

	ASSERT_TRUE(buffer_map(&self->kept, KEPT));
	buffer_fill(&self->kept, 19);
	for (i = 0; i < rounds(1); i++) {
		ASSERT_TRUE(go_round(&self->churned, i));
		ASSERT_TRUE(target_reach(memory_bytes() - BALLOON));
		ASSERT_TRUE(target_reach(memory_bytes()));
		ASSERT_TRUE(go_round(&self->churned, i));
		ASSERT_TRUE(buffer_intact(&self->kept));
	}
}

/*
 * F26: after a sleep the device has forgotten the poison value, and would drop
 * what is reported.  The devices alone sleep: for five seconds, as it is made.
 */
TEST_F_TIMEOUT(reporting, no_page_changes_after_sleep, 240)
{
	ASSERT_TRUE(buffer_map(&self->kept, KEPT));
	buffer_fill(&self->kept, 23);
	ASSERT_TRUE(write_file("/sys/power/pm_test", "devices"));
	ASSERT_TRUE(write_file("/sys/power/state", "mem"));
	ASSERT_TRUE(go_round(&self->churned, 1));
	ASSERT_TRUE(go_round(&self->churned, 2));
	EXPECT_TRUE(buffer_intact(&self->kept));
}

TEST_HARNESS_MAIN
