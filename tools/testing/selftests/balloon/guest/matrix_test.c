// SPDX-License-Identifier: GPL-2.0
/*
 * U10: each set of features, by plugging a device that offers just that, and
 * each of its queues seen working.  Statistics are in all: QEMU always has them.
 */
#include <linux/virtio_balloon.h>

#include "kselftest_harness.h"
#include "balloon_test.h"

#define BALLOON		(160 * MIB)
#define DIRTY		(20 * MIB)
#define QUEUE_SECONDS	60

FIXTURE(matrix)
{
	struct hog victim;
};

FIXTURE_VARIANT(matrix)
{
	bool oom;
	bool hint;
	bool report;
};

FIXTURE_VARIANT_ADD(matrix, none) { };
FIXTURE_VARIANT_ADD(matrix, oom) { .oom = true };
FIXTURE_VARIANT_ADD(matrix, hint) { .hint = true };
FIXTURE_VARIANT_ADD(matrix, hint_oom) { .hint = true, .oom = true };
FIXTURE_VARIANT_ADD(matrix, report) { .report = true };
FIXTURE_VARIANT_ADD(matrix, report_oom) { .report = true, .oom = true };
FIXTURE_VARIANT_ADD(matrix, report_hint) { .report = true, .hint = true };
FIXTURE_VARIANT_ADD(matrix, all) { .report = true, .hint = true, .oom = true };

static const char *on_off(bool on)
{
	return on ? "on" : "off";
}

FIXTURE_SETUP(matrix)
{
	const char *missing = plug_missing();
	char properties[160];

	if (missing)
		SKIP(return, "%s", missing);
	ASSERT_TRUE(no_device());
	ASSERT_TRUE(module_load(""));
	snprintf(properties, sizeof(properties),
		 "deflate-on-oom=%s free-page-hint=%s free-page-reporting=%s page-poison=on",
		 on_off(variant->oom), on_off(variant->hint), on_off(variant->report));
	ASSERT_TRUE(device_plug(properties));
	ASSERT_NE(-1, host_number("stats-interval 1"));
}

FIXTURE_TEARDOWN(matrix)
{
	char answer[128];

	host_request(answer, sizeof(answer), "migrate-finish");
	hog_end(&self->victim);
	no_device();
}

static bool free_memory_is_kept(void)
{
	char line[4096];

	return read_file("/proc/cmdline", line, sizeof(line)) > 0 &&
	       (strstr(line, "init_on_free=1") || strstr(line, "page_poison=1"));
}

static bool dirty_free_memory(void)
{
	struct buffer buffer;

	if (!buffer_map(&buffer, DIRTY))
		return false;
	buffer_fill(&buffer, 31);
	buffer_unmap(&buffer);
	return true;
}

/*
 * An id, blocks and STOP at least; the device numbers what it offers densely.  A
 * migration at full speed may be over before the guest hears of it.  What was
 * hinted is free again before the next test of an OOM: it would go first.
 */
static bool hinting_works(void)
{
	long long before = queue_used(3);
	char answer[128];

	return host_number("migrate-start 4") != -1 &&
	       WAIT_FOR(queue_used(3) - before >= 3, QUEUE_SECONDS) &&
	       host_request(answer, sizeof(answer), "migrate-finish") &&
	       !strcmp(answer, "completed") &&
	       WAIT_FOR(!debugfs_number("status", "hinted"), QUEUE_SECONDS);
}

/* Every forced OOM takes from the balloon, but only where that is agreed on */
static bool forced_oom_deflates(struct hog *victim)
{
	long long deflated = vm_counter("balloon_deflate");
	long long kills = vm_counter("oom_kill");

	if (!hog_start(victim, 10 * MIB, false) || hog_wait(victim, 60) != HOG_FULL ||
	    !write_file("/proc/sysrq-trigger", "f") ||
	    !WAIT_FOR(vm_counter("oom_kill") > kills, 30))
		return false;
	return vm_counter("balloon_deflate") > deflated;
}

TEST_F_TIMEOUT(matrix, works, 240)
{
	unsigned long long wanted = BIT(VIRTIO_BALLOON_F_STATS_VQ);
	int report_queue = variant->hint ? 4 : 3;
	long long inflate = queue_used(0), deflate = queue_used(1);
	long long target = memory_bytes() - BALLOON;
	long long reports = 0;

	wanted |= variant->oom ? BIT(VIRTIO_BALLOON_F_DEFLATE_ON_OOM) : 0;
	wanted |= variant->hint ? BIT(VIRTIO_BALLOON_F_FREE_PAGE_HINT) : 0;
	wanted |= variant->report ? BIT(VIRTIO_BALLOON_F_REPORTING) : 0;
	wanted |= free_memory_is_kept() ? BIT(VIRTIO_BALLOON_F_PAGE_POISON) : 0;
	EXPECT_EQ(wanted, device_features() & (BIT(6) - 1));

	if (variant->report)
		reports = queue_used(report_queue);
	ASSERT_TRUE(dirty_free_memory());
	if (variant->report)
		EXPECT_TRUE(WAIT_FOR(queue_used(report_queue) > reports, QUEUE_SECONDS));

	ASSERT_TRUE(target_reach(target));
	EXPECT_GT(queue_used(0), inflate);
	ASSERT_TRUE(target_reach(target + BALLOON / 2));
	EXPECT_GT(queue_used(1), deflate);
	EXPECT_NE(-1, host_number("stats-fresh 2"));
	if (variant->hint)
		EXPECT_TRUE(hinting_works());
	EXPECT_TRUE(target_settled(target + BALLOON / 2));
	EXPECT_EQ(variant->oom, forced_oom_deflates(&self->victim));
	ASSERT_TRUE(device_unplug());
	EXPECT_EQ(0, balloon_pages());
}

TEST_HARNESS_MAIN
