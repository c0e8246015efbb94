// SPDX-License-Identifier: GPL-2.0
/* Every feature is negotiated exactly when it is offered, with what it brings. */
#include <linux/virtio_balloon.h>
#include <linux/virtio_config.h>
#include <linux/virtio_ring.h>

#include "kselftest_harness.h"
#include "balloon_test.h"

#define ALL_FEATURES	(BIT(6) - 1)

/*
 * Page frame numbers are guest-physical, and nothing may be allocated where a
 * request is queued.
 */
#define REFUSED		(BIT(VIRTIO_F_ACCESS_PLATFORM) | BIT(VIRTIO_RING_F_INDIRECT_DESC))

FIXTURE(features)
{
	unsigned long long offered;
};

FIXTURE_SETUP(features)
{
	const char *missing = balloon_missing();

	if (missing)
		SKIP(return, "%s", missing);
	ASSERT_TRUE(module_unload());
	ASSERT_TRUE(target_set(memory_bytes()));
	ASSERT_NE(-1, (long long)(self->offered = host_number("offered")));
}

FIXTURE_TEARDOWN(features)
{
	start_over();
}

/* True if the kernel gives free memory a content that must not be lost */
static bool free_memory_is_kept(void)
{
	char line[4096];

	return read_file("/proc/cmdline", line, sizeof(line)) > 0 &&
	       (strstr(line, "init_on_free=1") || strstr(line, "page_poison=1"));
}

/*
 * All that is offered, but that poison means nothing where free memory has no
 * content (S2), and that where it has, a device that knows nothing of poison
 * must not be told which memory is free (S3).
 */
static unsigned long long expected_features(unsigned long long offered)
{
	if (!free_memory_is_kept())
		return offered & ~BIT(VIRTIO_BALLOON_F_PAGE_POISON);
	if (!(offered & BIT(VIRTIO_BALLOON_F_PAGE_POISON)))
		return offered & ~BIT(VIRTIO_BALLOON_F_REPORTING);
	return offered;
}

TEST_F_TIMEOUT(features, negotiated_as_offered, 90)
{
	unsigned long long bits;

	ASSERT_TRUE(module_load(""));
	ASSERT_TRUE(device_bound());
	bits = device_features();
	TH_LOG("offered %#llx, negotiated %#llx", self->offered, bits);
	EXPECT_EQ(expected_features(self->offered), bits & ALL_FEATURES);
	EXPECT_EQ(0, bits & REFUSED);
	EXPECT_EQ(host_number("modern"), !!(bits & BIT(VIRTIO_F_VERSION_1)));
}

/* Freeing a shrinker that is not there is allowed, and frees none */
static void count_freed(const char *name, const char *fields, void *data)
{
	long *freed = data;

	if (!strcmp(name, "shrinker_out") && !strstr(fields, "shrinker=0x0"))
		++*freed;
}

static long shrinkers_freed(void)
{
	long freed = 0;

	probes_each(count_freed, &freed);
	return freed;
}

/* What each feature registers is registered with it only, and goes again */
TEST_F_TIMEOUT(features, registered_as_offered, 90)
{
	bool oom = self->offered & BIT(VIRTIO_BALLOON_F_DEFLATE_ON_OOM);
	bool hint = self->offered & BIT(VIRTIO_BALLOON_F_FREE_PAGE_HINT);

	ASSERT_TRUE(probe_add("oom_in", "p register_oom_notifier"));
	ASSERT_TRUE(probe_add("oom_out", "p unregister_oom_notifier"));
	ASSERT_TRUE(probe_add("shrinker_in", "p shrinker_register"));
	ASSERT_TRUE(probe_add("shrinker_out", "p shrinker_free shrinker=$arg1"));
	ASSERT_TRUE(probes_start(getpid()));
	ASSERT_TRUE(module_load(""));
	EXPECT_EQ(oom, probe_hits("oom_in"));
	EXPECT_EQ(hint, probe_hits("shrinker_in"));
	EXPECT_EQ(0, probe_hits("oom_out"));
	EXPECT_EQ(0, shrinkers_freed());
	ASSERT_TRUE(module_unload());
	EXPECT_EQ(oom, probe_hits("oom_out"));
	EXPECT_EQ(hint, shrinkers_freed());
}

/* U27: MemTotal falls by the balloon, unless the guest may take it back */
TEST_F_TIMEOUT(features, total_memory, 150)
{
	bool oom = self->offered & BIT(VIRTIO_BALLOON_F_DEFLATE_ON_OOM);
	long long total = meminfo_bytes("MemTotal");
	long long target = memory_bytes() - 300 * MIB;

	ASSERT_TRUE(module_load(""));
	ASSERT_TRUE(target_reach(target));
	EXPECT_EQ(total - (oom ? 0 : 300 * MIB), meminfo_bytes("MemTotal"));
	ASSERT_TRUE(target_reach(target + 100 * MIB));
	EXPECT_EQ(total - (oom ? 0 : 200 * MIB), meminfo_bytes("MemTotal"));
	ASSERT_TRUE(module_unload());
	EXPECT_EQ(total, meminfo_bytes("MemTotal"));
}

TEST_HARNESS_MAIN
