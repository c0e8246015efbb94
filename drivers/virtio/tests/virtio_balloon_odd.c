// SPDX-License-Identifier: GPL-2.0
/*
 * One device, one fault, one moment: what a guest cannot be made to show.
 */

/* All there is; the second one insists on being told. */
static const struct fake_like odd_free = {
	.name = "a device",
	.offered = V1 | EVENTS | EVERY,
	.size = { 128 },
	.config_len = 16,
};

static const struct fake_like odd_strict = {
	.name = "a strict device",
	.offered = V1 | EVENTS | TELL | EVERY,
	.size = { 128 },
	.config_len = 16,
};

static const struct fake_like odd_plain = {
	.name = "a plain device",
	.offered = V1 | EVENTS | OOM,
	.size = { 128 },
	.config_len = 8,
};

static void odd_expect_took(struct kunit *test, unsigned long begun,
			    unsigned int least, unsigned int most, int line)
{
	unsigned int ms = jiffies_to_msecs(jiffies - begun);

	if (ms < least || ms > most)
		KUNIT_FAIL(test, "line %d: that took %u ms, not %u to %u", line,
			   ms, least, most);
}

#define ODD_EXPECT_TOOK(test, begun, least, most)			\
	odd_expect_took(test, begun, least, most, __LINE__)

/* --- A device that does not answer ------------------------------------- */

static void odd_inflation_stalls(struct kunit *test)
{
	struct fake_balloon *fake = fake_new(test, &odd_plain);
	struct virtio_balloon *vb = fake_vb(fake);
	unsigned long seen;

	fake_withhold(fake, QUEUE_INFLATE);
	fake_target(fake, SOME);
	msleep(29000);
	KUNIT_EXPECT_FALSE(test, status_stalled(vb));
	FAKE_EXPECT_SOON(fake, status_stalled(vb), 2000);
	FAKE_EXPECT_SOON(fake, vb->queue[QUEUE_INFLATE].late_said, 100);
	/* Nothing more is sent, whatever the target. */
	seen = fake->queue[QUEUE_INFLATE].nr_seen;
	fake_target(fake, 2 * SOME);
	msleep(2000);
	fake_target(fake, 10);
	msleep(2000);
	KUNIT_EXPECT_EQ(test, fake->queue[QUEUE_INFLATE].nr_seen, seen);
	KUNIT_EXPECT_EQ(test, fake->actual, 0);
	KUNIT_EXPECT_EQ(test, atomic_long_read(&vb->counter[COUNT_STALLS]), 1L);
	fake_check_claims(fake);
	fake_release(fake, QUEUE_INFLATE);
	FAKE_EXPECT_SOON(fake, !status_stalled(vb), 100);
	device_reach(fake, 2 * SOME);
	KUNIT_EXPECT_FALSE(test, vb->queue[QUEUE_INFLATE].late_said);
}

static void odd_deflation_stalls(struct kunit *test)
{
	struct fake_balloon *fake = device_with(test, &odd_plain, SOME);
	struct virtio_balloon *vb = fake_vb(fake);

	fake_withhold(fake, QUEUE_DEFLATE);
	fake_target(fake, 0);
	FAKE_EXPECT_SOON(fake, status_stalled(vb), 31000);
	KUNIT_EXPECT_EQ(test, fake_pages_out(), SOME);
	fake_check_claims(fake);
	fake_release(fake, QUEUE_DEFLATE);
	FAKE_EXPECT_SOON(fake, !status_stalled(vb), 100);
	device_reach(fake, 0);
}

/* It answers some of a batch: these count, and can be taken back. */
static void odd_inflation_stalls_halfway(struct kunit *test)
{
	struct fake_balloon *fake = fake_new(test, &odd_strict);
	unsigned long some;

	fake_ration(fake, QUEUE_INFLATE, 10);
	fake_target(fake, SOME);
	FAKE_EXPECT_SOON(fake, status_stalled(fake_vb(fake)), 31000);
	some = fake->nr_held;
	KUNIT_EXPECT_GT(test, some, 2 * BLOCK_PAGES);
	KUNIT_EXPECT_LT(test, some, SOME);
	FAKE_EXPECT_SOON(fake, fake->actual == some << WIRE_SHIFT, 1000);
	KUNIT_EXPECT_EQ(test, device_oom(fake), BLOCK_PAGES);
	KUNIT_EXPECT_EQ(test, fake->nr_held, some - BLOCK_PAGES);
	fake_check_claims(fake);
	fake_release(fake, QUEUE_INFLATE);
	FAKE_EXPECT_SOON(fake, fake->actual == (SOME - BLOCK_PAGES) << WIRE_SHIFT, 1000);
	FAKE_EXPECT_SOON(fake, fake->actual == SOME << WIRE_SHIFT, 20000);
}

static void odd_deflation_stalls_halfway(struct kunit *test)
{
	struct fake_balloon *fake = device_with(test, &odd_strict, SOME);
	unsigned long some = 10 * REQUEST_WIRE_MIN >> WIRE_SHIFT;

	fake_ration(fake, QUEUE_DEFLATE, 10);
	fake_target(fake, 0);
	FAKE_EXPECT_SOON(fake, status_stalled(fake_vb(fake)), 31000);
	KUNIT_EXPECT_EQ(test, fake_pages_out(), SOME - some);
	fake_check_claims(fake);
	fake_release(fake, QUEUE_DEFLATE);
	FAKE_EXPECT_SOON(fake, !fake_pages_out(), 1000);
	device_reach(fake, SOME);
}

static void odd_removal_while_inflation_stalls(struct kunit *test)
{
	struct fake_balloon *fake = fake_new(test, &odd_plain);
	unsigned long begun;

	fake_withhold(fake, QUEUE_INFLATE);
	fake_target(fake, MANY);
	msleep(1000);
	begun = jiffies;
	fake_remove(fake);
	ODD_EXPECT_TOOK(test, begun, 0, 12000);
}

static void odd_removal_while_deflation_stalls(struct kunit *test)
{
	struct fake_balloon *fake = device_with(test, &odd_strict, MANY);
	unsigned long begun;

	fake_withhold(fake, QUEUE_DEFLATE);
	fake_target(fake, SOME);
	msleep(1000);
	begun = jiffies;
	fake_remove(fake);
	ODD_EXPECT_TOOK(test, begun, 0, 12000);
}

static void odd_removal_after_a_stall(struct kunit *test)
{
	struct fake_balloon *fake = device_with(test, &odd_plain, SOME);
	unsigned long begun;

	fake_withhold(fake, QUEUE_INFLATE);
	fake_withhold(fake, QUEUE_DEFLATE);
	fake_target(fake, MANY);
	FAKE_EXPECT_SOON(fake, status_stalled(fake_vb(fake)), 31000);
	begun = jiffies;
	fake_remove(fake);
	ODD_EXPECT_TOOK(test, begun, 0, 12000);
}

/* F34: the device has gone while the worker waits for it. */
static void odd_device_vanishes_in_inflation(struct kunit *test)
{
	struct fake_balloon *fake = fake_new(test, &odd_free);
	unsigned long begun;

	fake_withhold(fake, QUEUE_INFLATE);
	fake_target(fake, MANY);
	msleep(1000);
	begun = jiffies;
	fake_break(fake);
	fake_remove(fake);
	ODD_EXPECT_TOOK(test, begun, 0, 1000);
}

static void odd_device_vanishes_when_full(struct kunit *test)
{
	struct fake_balloon *fake = device_with(test, &odd_free, MANY);
	unsigned long begun = jiffies;

	fake_break(fake);
	fake_target(fake, SOME);
	FAKE_EXPECT_SOON(fake, READ_ONCE(fake_vb(fake)->gone_said), 1000);
	KUNIT_EXPECT_EQ(test, fake_pages_out(), MANY);
	KUNIT_EXPECT_EQ(test, device_oom(fake), 0UL);
	fake_remove(fake);
	ODD_EXPECT_TOOK(test, begun, 0, 1000);
}

/* --- Out of memory, and the device does not answer --------------------- */

static void odd_oom_late_may_tell(struct kunit *test)
{
	struct fake_balloon *fake = device_with(test, &odd_plain, SOME);
	unsigned long step = BLOCK_PAGES, begun = jiffies;

	fake_withhold(fake, QUEUE_DEFLATE);
	fake->lax = true;
	KUNIT_EXPECT_EQ(test, device_oom(fake), step);
	ODD_EXPECT_TOOK(test, begun, 4900, 5500);
	KUNIT_EXPECT_EQ(test, fake_pages_out(), SOME - step);
	begun = jiffies;
	KUNIT_EXPECT_EQ(test, device_oom(fake), 0UL);
	ODD_EXPECT_TOOK(test, begun, 0, 50);
	FAKE_EXPECT_SOON(fake, status_stalled(fake_vb(fake)), 100);
	fake_release(fake, QUEUE_DEFLATE);
	FAKE_EXPECT_SOON(fake, !status_stalled(fake_vb(fake)), 100);
	FAKE_EXPECT_SOON(fake, fake->actual == (SOME - step) << WIRE_SHIFT, 1000);
	KUNIT_EXPECT_EQ(test, fake_pages_out(), SOME - step);
	KUNIT_EXPECT_EQ(test, device_oom(fake), 4 * step);
	KUNIT_EXPECT_EQ(test, fake->nr_held, SOME - 5 * step);
}

/* Announced before the old request was answered, a page would be recalled by it. */
static void odd_oom_late_stops_inflation(struct kunit *test)
{
	struct fake_balloon *fake = device_with(test, &odd_plain, SOME);

	fake_withhold(fake, QUEUE_DEFLATE);
	fake->lax = true;
	KUNIT_EXPECT_EQ(test, device_oom(fake), BLOCK_PAGES);
	/* A new target ends the rest. */
	fake_target(fake, SOME + BLOCK_PAGES);
	msleep(2000);
	KUNIT_EXPECT_EQ(test, fake_pages_out(), SOME - BLOCK_PAGES);
	fake_release(fake, QUEUE_DEFLATE);
	device_reach(fake, SOME + BLOCK_PAGES);
	KUNIT_EXPECT_EQ(test, fake->nr_held, SOME + BLOCK_PAGES);
}

static void odd_oom_late_must_tell(struct kunit *test)
{
	struct fake_balloon *fake = device_with(test, &odd_strict, SOME);
	unsigned long step = BLOCK_PAGES, begun = jiffies;

	fake_withhold(fake, QUEUE_DEFLATE);
	KUNIT_EXPECT_EQ(test, device_oom(fake), 0UL);
	ODD_EXPECT_TOOK(test, begun, 4900, 5500);
	KUNIT_EXPECT_EQ(test, fake_pages_out(), SOME);
	fake_check_claims(fake);
	begun = jiffies;
	KUNIT_EXPECT_EQ(test, device_oom(fake), 0UL);
	ODD_EXPECT_TOOK(test, begun, 0, 50);
	fake_release(fake, QUEUE_DEFLATE);
	FAKE_EXPECT_SOON(fake, fake_pages_out() == SOME - step, 1000);
	FAKE_EXPECT_SOON(fake, fake->actual == (SOME - step) << WIRE_SHIFT, 1000);
	KUNIT_EXPECT_EQ(test, device_oom(fake), 4 * step);
}

/* What came late counts as freed by the call that finds it. */
static void odd_oom_finds_late_answer(struct kunit *test)
{
	struct fake_balloon *fake = device_with(test, &odd_strict, SOME);
	struct virtio_balloon *vb = fake_vb(fake);

	fake_withhold(fake, QUEUE_DEFLATE);
	KUNIT_EXPECT_EQ(test, device_oom(fake), 0UL);
	disable_work_sync(&vb->publish_work);
	fake_release(fake, QUEUE_DEFLATE);
	KUNIT_EXPECT_EQ(test, device_oom(fake), 3 * BLOCK_PAGES);
	enable_work(&vb->publish_work);
	queue_work(vb->publish_wq, &vb->publish_work);
	FAKE_EXPECT_SOON(fake, fake->actual == (SOME - 3 * BLOCK_PAGES) << WIRE_SHIFT,
			 1000);
}

static void odd_oom_late_at_reset(struct kunit *test)
{
	struct fake_balloon *fake = device_with(test, &odd_plain, SOME);

	fake_withhold(fake, QUEUE_DEFLATE);
	fake->lax = true;
	KUNIT_EXPECT_EQ(test, device_oom(fake), BLOCK_PAGES);
	fake_remove(fake);
	KUNIT_EXPECT_EQ(test, fake_pages_out(), 0UL);
}

static void odd_oom_late_at_reset_strict(struct kunit *test)
{
	struct fake_balloon *fake = device_with(test, &odd_strict, SOME);

	fake_withhold(fake, QUEUE_DEFLATE);
	KUNIT_EXPECT_EQ(test, device_oom(fake), 0UL);
	fake_remove(fake);
	KUNIT_EXPECT_EQ(test, fake_pages_out(), 0UL);
}

/* Held blocks go first, and the device is not asked. */
static void odd_oom_takes_held_blocks(struct kunit *test)
{
	struct fake_balloon *fake = fake_new(test, &odd_free);
	struct virtio_balloon *vb = fake_vb(fake);
	unsigned long held, posted;

	fake_withhold(fake, QUEUE_INFLATE);
	fake_target(fake, MANY);
	FAKE_ASSERT_SOON(fake, READ_ONCE(fake->queue[QUEUE_INFLATE].nr_seen), 5000);
	msleep(100);
	held = READ_ONCE(vb->nr_held) * BLOCK_PAGES;
	posted = worker_pages(vb, true);
	KUNIT_EXPECT_GT(test, held, 0UL);
	KUNIT_EXPECT_GT(test, posted, 0UL);
	KUNIT_EXPECT_EQ(test, device_oom(fake), held);
	KUNIT_EXPECT_EQ(test, fake->queue[QUEUE_DEFLATE].nr_seen, 0UL);
	fake_release(fake, QUEUE_INFLATE);
	FAKE_EXPECT_SOON(fake, fake->actual == posted << WIRE_SHIFT, 1000);
	msleep(5000);
	/* What was packed but not announced is free, too. */
	KUNIT_EXPECT_EQ(test, fake->nr_held, posted);
	KUNIT_EXPECT_EQ(test, fake_pages_out(), posted);
}

/* All pages are in the worker's hands: the notifier waits for it, once. */
static void odd_oom_waits_for_the_worker(struct kunit *test)
{
	struct fake_balloon *fake = fake_new(test, &odd_plain);
	unsigned long begun;

	fake_withhold(fake, QUEUE_INFLATE);
	fake_target(fake, SOME);
	FAKE_ASSERT_SOON(fake, READ_ONCE(fake->queue[QUEUE_INFLATE].nr_seen), 5000);
	fake_release_later(fake, 1000);
	begun = jiffies;
	KUNIT_EXPECT_EQ(test, device_oom(fake), BLOCK_PAGES);
	ODD_EXPECT_TOOK(test, begun, 900, 1500);
}

static void odd_oom_worker_is_stuck(struct kunit *test)
{
	struct fake_balloon *fake = fake_new(test, &odd_plain);
	unsigned long begun;

	fake_withhold(fake, QUEUE_INFLATE);
	fake_target(fake, SOME);
	FAKE_ASSERT_SOON(fake, READ_ONCE(fake->queue[QUEUE_INFLATE].nr_seen), 5000);
	begun = jiffies;
	KUNIT_EXPECT_EQ(test, device_oom(fake), 0UL);
	ODD_EXPECT_TOOK(test, begun, 4900, 5500);
	begun = jiffies;
	KUNIT_EXPECT_EQ(test, device_oom(fake), 0UL);
	ODD_EXPECT_TOOK(test, begun, 0, 50);
	fake_release(fake, QUEUE_INFLATE);
	FAKE_EXPECT_SOON(fake, fake->actual == SOME << WIRE_SHIFT, 1000);
	KUNIT_EXPECT_GT(test, device_oom(fake), 0UL);
}

/* Worker, OOM and migration have their own slots of a ring, however small. */
static void odd_oom_while_deflating(struct kunit *test)
{
	static const struct fake_like tiny = {
		.name = "a tiny device",
		.offered = V1 | EVENTS | TELL | EVERY,
		.size = { 4 },
		.config_len = 16,
		.traits = FAKE_REVERSES,
	};
	static const struct fake_like * const likes[] = { &odd_strict, &tiny };
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(likes); i++) {
		struct fake_balloon *fake = device_with(test, likes[i], MANY);

		fake_withhold(fake, QUEUE_INFLATE);
		fake_withhold(fake, QUEUE_DEFLATE);
		fake_target(fake, SOME);
		FAKE_ASSERT_SOON(fake, READ_ONCE(fake->queue[QUEUE_DEFLATE].nr_seen), 1000);
#ifdef CONFIG_BALLOON_COMPACTION
		KUNIT_EXPECT_EQ(test, device_move_one(fake, MIGRATE_ASYNC), 0);
#endif
		fake_release_later(fake, 1000);
		KUNIT_EXPECT_GT(test, device_oom(fake), 0UL);
		FAKE_EXPECT_SOON(fake, fake->actual == SOME << WIRE_SHIFT, 5000);
		FAKE_EXPECT_SOON(fake, fake_pages_out() == SOME, 1000);
		device_reach(fake, 0);
		fake_remove(fake);
	}
}

/*
 * The device answers the notifier's requests before the worker's many: one event
 * for the whole ring must not make the notifier wait for those.
 */
static void odd_oom_is_answered_first(struct kunit *test)
{
	static const struct fake_like like = {
		.name = "last one first",
		.offered = V1 | EVENTS | TELL | EVERY,
		.size = { 128 },
		.config_len = 16,
		.traits = FAKE_REVERSES,
	};
	struct fake_balloon *fake = device_with(test, &like, MANY);
	struct fake_queue *fq = &fake->queue[QUEUE_DEFLATE];
	unsigned long begun;

	fake_withhold(fake, QUEUE_DEFLATE);
	fake_target(fake, SOME);
	FAKE_ASSERT_SOON(fake, READ_ONCE(fq->nr_seen) > 20, 1000);
	fake_ration(fake, QUEUE_DEFLATE, pages_to_wire(BLOCK_PAGES) / REQUEST_WIRE_MIN);
	fake->withheld = 0;
	begun = jiffies;
	KUNIT_EXPECT_EQ(test, device_oom(fake), BLOCK_PAGES);
	ODD_EXPECT_TOOK(test, begun, 0, 100);
	/* And a deflation goes on while inflation rests. */
	fake_release(fake, QUEUE_DEFLATE);
	FAKE_EXPECT_SOON(fake, fake->actual == SOME << WIRE_SHIFT, 5000);
}

/* The notifier comes back as soon as there is nobody to wait for. */
static void odd_oom_when_the_device_breaks(struct kunit *test)
{
	struct fake_balloon *fake = device_with(test, &odd_strict, SOME);
	unsigned long begun = jiffies;

	fake_withhold(fake, QUEUE_DEFLATE);
	fake_break_later(fake, 1000);
	KUNIT_EXPECT_EQ(test, device_oom(fake), 0UL);
	ODD_EXPECT_TOOK(test, begun, 900, 1500);
	KUNIT_EXPECT_EQ(test, fake_pages_out(), SOME);
	fake_check_claims(fake);
}

static void odd_oom_empty_balloon(struct kunit *test)
{
	struct fake_balloon *fake = fake_new(test, &odd_free);
	unsigned long begun = jiffies;

	KUNIT_EXPECT_EQ(test, device_oom(fake), 0UL);
	ODD_EXPECT_TOOK(test, begun, 0, 50);
	KUNIT_EXPECT_EQ(test, fake->queue[QUEUE_DEFLATE].nr_seen, 0UL);
}

/* A new target ends a rest, but not again and again. */
static void odd_target_ends_rest_once(struct kunit *test)
{
	struct fake_balloon *fake = device_with(test, &odd_plain, SOME);

	device_oom(fake);
	fake_target(fake, SOME + 5);
	FAKE_EXPECT_SOON(fake, fake->actual == (SOME + 5) << WIRE_SHIFT, 1000);
	device_oom(fake);
	fake_target(fake, SOME + 6);
	msleep(15000);
	KUNIT_EXPECT_LT(test, fake->nr_held, SOME);
	/* A lower target holds at any time. */
	fake_target(fake, 100);
	FAKE_EXPECT_SOON(fake, fake->actual == 100 << WIRE_SHIFT, 1000);
	fake_target(fake, SOME);
	FAKE_EXPECT_SOON(fake, fake->actual == SOME << WIRE_SHIFT, 30000);
}

/* --- Frozen ------------------------------------------------------------ */

/* F23, F27: whoever calls after the freeze finds nothing, and no queue. */
static void odd_frozen_is_quiet(struct kunit *test)
{
	struct fake_balloon *fake = device_with(test, &odd_free, SOME);
	struct virtio_balloon *vb = fake_vb(fake);
	struct shrink_control sc = { .nr_to_scan = BLOCK_PAGES };
	struct shrinker *shrinker = vb->hint.shrinker;
	struct scatterlist sg;
	struct page *page = alloc_pages(GFP_KERNEL, BLOCK_ORDER);

	KUNIT_ASSERT_NOT_NULL(test, page);
	sg_init_table(&sg, 1);
	sg_set_page(&sg, page, BLOCK_BYTES, 0);
	KUNIT_ASSERT_EQ(test, virtio_device_freeze(&fake->vdev), 0);
	KUNIT_EXPECT_EQ(test, device_oom(fake), 0UL);
	KUNIT_EXPECT_EQ(test, balloon_report(&vb->report.core, &sg, 1), -EBUSY);
	KUNIT_EXPECT_EQ(test, shrinker->count_objects(shrinker, &sc), 0UL);
	KUNIT_EXPECT_EQ(test, shrinker->scan_objects(shrinker, &sc), SHRINK_STOP);
	fake_hint(fake, 9);
	fake_target(fake, 2 * SOME);
	msleep(60000);
	KUNIT_EXPECT_EQ(test, fake_pages_out(), 0UL);
	KUNIT_ASSERT_EQ(test, virtio_device_restore(&fake->vdev), 0);
	FAKE_EXPECT_SOON(fake, fake->actual == (2 * SOME) << WIRE_SHIFT, 20000);
	__free_pages(page, BLOCK_ORDER);
}

static void odd_removed_while_frozen(struct kunit *test)
{
	struct fake_balloon *fake = device_with(test, &odd_free, SOME);

	KUNIT_ASSERT_EQ(test, virtio_device_freeze(&fake->vdev), 0);
	fake_remove(fake);
}

static void odd_frozen_while_stalled(struct kunit *test)
{
	struct fake_balloon *fake = device_with(test, &odd_free, SOME);
	unsigned long begun;

	fake_withhold(fake, QUEUE_INFLATE);
	fake_withhold(fake, QUEUE_DEFLATE);
	fake_withhold(fake, QUEUE_HINT);
	fake_target(fake, MANY);
	fake_hint(fake, 5);
	msleep(500);
	begun = jiffies;
	KUNIT_ASSERT_EQ(test, virtio_device_freeze(&fake->vdev), 0);
	ODD_EXPECT_TOOK(test, begun, 0, 25000);
	KUNIT_EXPECT_EQ(test, fake_pages_out(), 0UL);
	fake->withheld = 0;
	fake->actual = 0;
	fake_hint(fake, VIRTIO_BALLOON_CMD_ID_DONE);
	KUNIT_ASSERT_EQ(test, virtio_device_restore(&fake->vdev), 0);
	device_reach(fake, MANY);
	device_reach(fake, 0);
}

static void odd_restored_with_less(struct kunit *test)
{
	struct fake_balloon *fake = device_with(test, &odd_free, SOME);

	KUNIT_ASSERT_EQ(test, virtio_device_freeze(&fake->vdev), 0);
	fake->shrink = 16;
	KUNIT_EXPECT_EQ(test, virtio_device_restore(&fake->vdev), -ENOSPC);
	KUNIT_EXPECT_EQ(test, device_oom(fake), 0UL);
	fake_remove(fake);
}

static void odd_restore_without_queues(struct kunit *test)
{
	struct fake_balloon *fake = device_with(test, &odd_free, SOME);
	struct shrink_control sc = { .nr_to_scan = BLOCK_PAGES };
	struct shrinker *shrinker = fake_vb(fake)->hint.shrinker;

	KUNIT_ASSERT_EQ(test, virtio_device_freeze(&fake->vdev), 0);
	fake->fail_find = -ENOMEM;
	KUNIT_EXPECT_EQ(test, virtio_device_restore(&fake->vdev), -ENOMEM);
	KUNIT_EXPECT_EQ(test, device_oom(fake), 0UL);
	KUNIT_EXPECT_EQ(test, shrinker->scan_objects(shrinker, &sc), SHRINK_STOP);
	fake_target(fake, MANY);
	msleep(1000);
	fake_remove(fake);
}

/* Memory for a hibernation image is not taken away from it. */
static void odd_sleep_stops_inflation(struct kunit *test)
{
	struct fake_balloon *fake = device_with(test, &odd_free, 10);
	struct virtio_balloon *vb = fake_vb(fake);

	balloon_pm_notify(&vb->pm_nb, PM_HIBERNATION_PREPARE, NULL);
	fake_target(fake, SOME);
	msleep(10000);
	KUNIT_EXPECT_EQ(test, fake_pages_out(), 10UL);
	/* But deflation goes on. */
	fake_target(fake, 5);
	FAKE_EXPECT_SOON(fake, fake->actual == 5 << WIRE_SHIFT, 1000);
	balloon_pm_notify(&vb->pm_nb, PM_POST_HIBERNATION, NULL);
	device_reach(fake, SOME);
}

/* Hinted memory is given to the image, and a run ends, or does not begin. */
static void odd_sleep_stops_hinting(struct kunit *test)
{
	struct fake_balloon *fake = fake_new(test, &odd_free);
	struct virtio_balloon *vb = fake_vb(fake);

	fake_hint(fake, 5);
	FAKE_ASSERT_SOON(fake, READ_ONCE(fake->nr_hint_stops) == 1, FAKE_PATIENCE_MS);
	balloon_pm_notify(&vb->pm_nb, PM_SUSPEND_PREPARE, NULL);
	KUNIT_EXPECT_EQ(test, fake_pages_out(), 0UL);
	fake_hint(fake, 6);
	msleep(500);
	KUNIT_EXPECT_EQ(test, fake->nr_hint_stops, 1UL);
	balloon_pm_notify(&vb->pm_nb, PM_POST_SUSPEND, NULL);
	FAKE_EXPECT_SOON(fake, READ_ONCE(fake->nr_hint_stops) == 2, FAKE_PATIENCE_MS);
	KUNIT_EXPECT_EQ(test, fake->hint_id, 6);
}

/* --- Reports ----------------------------------------------------------- */

/**
 * struct odd_report - a call of the reporting core
 * @fake: the device
 * @page: the block it reports
 * @result: of the call
 * @status: the device's, when the call returned
 * @done: it has returned
 */
struct odd_report {
	struct fake_balloon *fake;
	struct page *page;
	int result;
	u8 status;
	struct completion done;
};

static int odd_report_fn(void *data)
{
	struct odd_report *call = data;
	struct scatterlist sg;

	sg_init_table(&sg, 1);
	sg_set_page(&sg, call->page, BLOCK_BYTES, 0);
	call->result = balloon_report(&fake_vb(call->fake)->report.core, &sg, 1);
	call->status = call->fake->status;
	__free_pages(call->page, BLOCK_ORDER);
	complete(&call->done);
	return 0;
}

static struct odd_report *odd_report_begin(struct fake_balloon *fake)
{
	struct odd_report *call = kunit_kzalloc(fake->test, sizeof(*call), GFP_KERNEL);
	unsigned long before = fake->nr_reports;

	KUNIT_ASSERT_NOT_NULL(fake->test, call);
	call->fake = fake;
	call->page = alloc_pages(GFP_KERNEL, BLOCK_ORDER);
	KUNIT_ASSERT_NOT_NULL(fake->test, call->page);
	init_completion(&call->done);
	KUNIT_ASSERT_NOT_ERR_OR_NULL(fake->test,
				     kthread_run(odd_report_fn, call, "odd-report"));
	FAKE_ASSERT_SOON(fake, READ_ONCE(fake->nr_reports) > before, 10000);
	return call;
}

/* F35: the core frees the pages when the call returns. */
static void odd_report_waits_for_the_device(struct kunit *test)
{
	struct fake_balloon *fake = fake_new(test, &odd_free);
	struct odd_report *call;

	fake_withhold(fake, QUEUE_REPORT);
	call = odd_report_begin(fake);
	msleep(60000);
	KUNIT_EXPECT_FALSE(test, completion_done(&call->done));
	KUNIT_EXPECT_TRUE(test, status_stalled(fake_vb(fake)));
	fake_release(fake, QUEUE_REPORT);
	FAKE_ASSERT_SOON(fake, completion_done(&call->done), 1000);
	KUNIT_EXPECT_EQ(test, call->result, 0);
	FAKE_EXPECT_SOON(fake, !status_stalled(fake_vb(fake)), 100);
}

static void odd_report_outstanding_at_removal(struct kunit *test)
{
	struct fake_balloon *fake = fake_new(test, &odd_free);
	struct odd_report *call;
	unsigned long begun;

	fake_withhold(fake, QUEUE_REPORT);
	call = odd_report_begin(fake);
	begun = jiffies;
	fake_remove(fake);
	ODD_EXPECT_TOOK(test, begun, 4900, 6500);
	KUNIT_EXPECT_TRUE(test, completion_done(&call->done));
	KUNIT_EXPECT_EQ(test, call->result, -EIO);
	KUNIT_EXPECT_EQ_MSG(test, call->status, 0, "F35: returned before the reset");
}

/* The core's own: unregistering from it waits for the report, so the reset comes first. */
static void odd_report_of_the_core_at_removal(struct kunit *test)
{
	struct fake_balloon *fake = fake_new(test, &odd_free);
	unsigned long begun;

	fake_withhold(fake, QUEUE_REPORT);
	FAKE_ASSERT_SOON(fake, READ_ONCE(fake->nr_reports), 10000);
	begun = jiffies;
	fake_remove(fake);
	ODD_EXPECT_TOOK(test, begun, 4900, 6500);
}

static void odd_report_outstanding_at_freeze(struct kunit *test)
{
	struct fake_balloon *fake = device_with(test, &odd_free, SOME);
	struct odd_report *call;

	fake_withhold(fake, QUEUE_REPORT);
	call = odd_report_begin(fake);
	KUNIT_ASSERT_EQ(test, virtio_device_freeze(&fake->vdev), 0);
	FAKE_ASSERT_SOON(fake, completion_done(&call->done), 100);
	KUNIT_EXPECT_EQ(test, call->result, -EIO);
	fake->withheld = 0;
	fake->actual = 0;
	KUNIT_ASSERT_EQ(test, virtio_device_restore(&fake->vdev), 0);
	device_reach(fake, SOME);
}

/* A broken queue alone says nothing about what the device still does. */
static void odd_report_of_a_broken_device(struct kunit *test)
{
	struct fake_balloon *fake = fake_new(test, &odd_free);
	struct odd_report *call;

	fake_withhold(fake, QUEUE_REPORT);
	call = odd_report_begin(fake);
	fake_break(fake);
	msleep(20000);
	KUNIT_EXPECT_FALSE(test, completion_done(&call->done));
	fake_remove(fake);
	KUNIT_EXPECT_TRUE(test, completion_done(&call->done));
	KUNIT_EXPECT_EQ(test, call->status, 0);
}

/* The driver's own report is late: it goes on without, and takes it up later. */
static void odd_own_report_is_late(struct kunit *test)
{
	struct fake_balloon *fake = fake_new(test, &odd_free);
	struct virtio_balloon *vb = fake_vb(fake);

	fake_withhold(fake, QUEUE_REPORT);
	fake_target(fake, MANY);
	FAKE_EXPECT_SOON(fake, status_stalled(vb), 32000);
	FAKE_EXPECT_SOON(fake, READ_ONCE(fake->actual) == MANY << WIRE_SHIFT, 10000);
	KUNIT_EXPECT_EQ(test, fake->nr_reports, 1UL);
	fake_release(fake, QUEUE_REPORT);
	FAKE_EXPECT_SOON(fake, !status_stalled(vb), 1000);
	FAKE_EXPECT_SOON(fake, fake_pages_out() == MANY, 1000);
	device_reach(fake, 2 * MANY);
}

static void odd_own_report_late_at_removal(struct kunit *test)
{
	struct fake_balloon *fake = fake_new(test, &odd_free);
	unsigned long begun;

	fake_withhold(fake, QUEUE_REPORT);
	fake_target(fake, MANY);
	msleep(500);
	begun = jiffies;
	fake_remove(fake);
	ODD_EXPECT_TOOK(test, begun, 0, 12000);
}

/* --- Migration --------------------------------------------------------- */

#ifdef CONFIG_BALLOON_COMPACTION
/* As many as there is room for go, and are not asked twice. */
static void odd_moves_all_under_way(struct kunit *test)
{
	struct fake_balloon *fake = device_with(test, &odd_strict, SOME);
	struct virtio_balloon *vb = fake_vb(fake);
	unsigned int nr = vb->migration.nr_moves;

	KUNIT_EXPECT_EQ(test, nr, 16);
	fake_withhold(fake, QUEUE_INFLATE);
	fake_withhold(fake, QUEUE_DEFLATE);
	KUNIT_EXPECT_EQ(test, device_migrate(fake, nr + 3, MIGRATE_ASYNC), nr);
	KUNIT_EXPECT_EQ(test, fake_pages_out(), SOME + nr);
	KUNIT_EXPECT_EQ(test, vb->info.isolated_pages, nr);
	fake_check_claims(fake);
	/* The others are put back, and can be had. */
	KUNIT_EXPECT_EQ(test, device_migrate(fake, 2, MIGRATE_ASYNC), 0);
	fake_release(fake, QUEUE_INFLATE);
	fake_release(fake, QUEUE_DEFLATE);
	FAKE_EXPECT_SOON(fake, fake_pages_out() == SOME, 1000);
	FAKE_EXPECT_SOON(fake, !READ_ONCE(vb->info.isolated_pages), 1000);
	KUNIT_EXPECT_EQ(test, fake->nr_held, SOME);
	KUNIT_EXPECT_EQ(test, device_migrate(fake, 5, MIGRATE_ASYNC), 5);
	device_reach(fake, 0);
}

/* The first waits in vain; the others, and other moves, learn from it. */
static void odd_moves_wait_once(struct kunit *test)
{
	struct fake_balloon *fake = device_with(test, &odd_strict, SOME);
	struct virtio_balloon *vb = fake_vb(fake);
	unsigned long begun = jiffies;
	unsigned int i;

	fake_withhold(fake, QUEUE_INFLATE);
	for (i = 0; i < 4; i++)
		KUNIT_EXPECT_EQ(test, device_move_one(fake, MIGRATE_SYNC), 0);
	ODD_EXPECT_TOOK(test, begun, 4900, 5500);
	fake_release(fake, QUEUE_INFLATE);
	FAKE_EXPECT_SOON(fake, fake_pages_out() == SOME, 1000);
	FAKE_EXPECT_SOON(fake, !READ_ONCE(vb->info.isolated_pages), 1000);
	fake_check_claims(fake);
}

/* The old page is told of before the new one was answered. */
static void odd_moves_answered_out_of_order(struct kunit *test)
{
	struct fake_balloon *fake = device_with(test, &odd_strict, SOME);
	struct virtio_balloon *vb = fake_vb(fake);

	fake_withhold(fake, QUEUE_INFLATE);
	KUNIT_EXPECT_EQ(test, device_migrate(fake, 5, MIGRATE_ASYNC), 5);
	msleep(1000);
	KUNIT_EXPECT_EQ(test, fake_pages_out(), SOME);
	KUNIT_EXPECT_EQ(test, vb->info.isolated_pages, 5);
	fake_check_claims(fake);
	fake_release(fake, QUEUE_INFLATE);
	FAKE_EXPECT_SOON(fake, !READ_ONCE(vb->info.isolated_pages), 1000);
	fake_withhold(fake, QUEUE_DEFLATE);
	KUNIT_EXPECT_EQ(test, device_migrate(fake, 5, MIGRATE_ASYNC), 5);
	FAKE_EXPECT_SOON(fake, !READ_ONCE(vb->info.isolated_pages), 1000);
	KUNIT_EXPECT_EQ(test, fake_pages_out(), SOME + 5);
	fake_release(fake, QUEUE_DEFLATE);
	FAKE_EXPECT_SOON(fake, fake_pages_out() == SOME, 1000);
}

static void odd_moves_under_way_at_reset(struct kunit *test)
{
	struct fake_balloon *fake = device_with(test, &odd_strict, SOME);
	unsigned long begun;

	fake_withhold(fake, QUEUE_INFLATE);
	fake_withhold(fake, QUEUE_DEFLATE);
	KUNIT_EXPECT_EQ(test, device_migrate(fake, 10, MIGRATE_ASYNC), 10);
	begun = jiffies;
	fake_remove(fake);
	ODD_EXPECT_TOOK(test, begun, 0, 12000);
	KUNIT_EXPECT_EQ(test, fake_pages_out(), 0UL);
}

/* A caller who may wait does so, but not for ever. */
static void odd_move_waits_with_a_bound(struct kunit *test)
{
	struct fake_balloon *fake = device_with(test, &odd_strict, SOME);
	unsigned long begun = jiffies;

	fake_withhold(fake, QUEUE_INFLATE);
	fake_withhold(fake, QUEUE_DEFLATE);
	KUNIT_EXPECT_EQ(test, device_move_one(fake, MIGRATE_SYNC), 0);
	ODD_EXPECT_TOOK(test, begun, 4900, 5500);
	KUNIT_EXPECT_EQ(test, fake_pages_out(), SOME + 1);
	/* And the core, which takes what room there is, and then asks once more. */
	begun = jiffies;
	KUNIT_EXPECT_EQ(test, device_migrate(fake, 32, MIGRATE_SYNC_LIGHT),
			fake_vb(fake)->migration.nr_moves - 1);
	ODD_EXPECT_TOOK(test, begun, 0, 6000);
	fake_release(fake, QUEUE_INFLATE);
	fake_release(fake, QUEUE_DEFLATE);
	FAKE_EXPECT_SOON(fake, fake_pages_out() == SOME, 1000);
	device_reach(fake, 0);
}

/* F32: nothing has been told, and the page stays where it is. */
static void odd_move_to_a_wide_pfn(struct kunit *test)
{
	struct fake_balloon *fake = device_with(test, &odd_free, SOME);
	struct virtio_balloon *vb = fake_vb(fake);
	unsigned long seen = fake->queue[QUEUE_INFLATE].nr_seen;

	KUNIT_EXPECT_EQ(test, balloon_migrate(&vb->info, pfn_to_page(1UL << (32 - WIRE_SHIFT)),
					      move_first(vb), MIGRATE_SYNC), -EBUSY);
	msleep(100);
	KUNIT_EXPECT_EQ(test, fake->queue[QUEUE_INFLATE].nr_seen, seen);
}

/* F25: pages isolated for migration are not there, and not lost. */
static void odd_deflation_waits_for_isolated(struct kunit *test)
{
	struct fake_balloon *fake = device_with(test, &odd_free, 100);
	LIST_HEAD(pages);
	unsigned int i;

	for (i = 0; i < 3; i++) {
		struct page *page = move_first(fake_vb(fake));

		KUNIT_ASSERT_TRUE(test, isolate_movable_page(page, ISOLATE_ASYNC_MIGRATE));
		list_add(&page->lru, &pages);
	}
	fake_target(fake, 0);
	FAKE_EXPECT_SOON(fake, fake->actual == 3 << WIRE_SHIFT, 1000);
	msleep(5000);
	KUNIT_EXPECT_EQ(test, fake_pages_out(), 3UL);
	putback_movable_pages(&pages);
	FAKE_EXPECT_SOON(fake, !fake->actual, 1000);
	device_reach(fake, 10);
}
#endif

/* --- Hints ------------------------------------------------------------- */

/* V12: what the device has is nobody else's. */
static void odd_hint_unanswered(struct kunit *test)
{
	struct fake_balloon *fake = fake_new(test, &odd_free);
	struct shrinker *shrinker = fake_vb(fake)->hint.shrinker;
	struct shrink_control sc = { .nr_to_scan = BLOCK_PAGES };

	fake_withhold(fake, QUEUE_HINT);
	fake_hint(fake, 5);
	FAKE_ASSERT_SOON(fake, READ_ONCE(fake->nr_hinted) == HINT_POSTED_MAX, 5000);
	msleep(1000);
	KUNIT_EXPECT_EQ(test, fake->nr_hinted, (unsigned long)HINT_POSTED_MAX);
	KUNIT_EXPECT_EQ(test, shrinker->count_objects(shrinker, &sc), 0UL);
	KUNIT_EXPECT_EQ(test, shrinker->scan_objects(shrinker, &sc), SHRINK_STOP);
	KUNIT_EXPECT_EQ(test, device_oom(fake), 0UL);
	/* DONE frees them as they are answered. */
	fake_hint(fake, VIRTIO_BALLOON_CMD_ID_DONE);
	msleep(1000);
	KUNIT_EXPECT_EQ(test, fake_pages_out(), HINT_POSTED_MAX * BLOCK_PAGES);
	fake_release(fake, QUEUE_HINT);
	FAKE_EXPECT_SOON(fake, !fake_pages_out(), 1000);
	FAKE_EXPECT_SOON(fake, READ_ONCE(fake->nr_hint_stops) == 1, 1000);
	KUNIT_EXPECT_EQ_MSG(test, fake->nr_hinted, (unsigned long)HINT_POSTED_MAX,
			    "S23: hinted after DONE");
}

/* F11 */
static void odd_hint_at_removal(struct kunit *test)
{
	struct fake_balloon *fake = fake_new(test, &odd_free);
	unsigned long begun;

	fake_withhold(fake, QUEUE_HINT);
	fake_hint(fake, 5);
	FAKE_ASSERT_SOON(fake, READ_ONCE(fake->nr_hinted) == HINT_POSTED_MAX, 5000);
	begun = jiffies;
	fake_remove(fake);
	ODD_EXPECT_TOOK(test, begun, 0, 12000);
}

/* Another id in the middle of a run: that ends, and the next begins. */
static void odd_hint_superseded(struct kunit *test)
{
	struct fake_balloon *fake = fake_new(test, &odd_free);

	fake_withhold(fake, QUEUE_HINT);
	fake_hint(fake, 5);
	FAKE_ASSERT_SOON(fake, READ_ONCE(fake->nr_hinted) == HINT_POSTED_MAX, 5000);
	fake_hint(fake, 7);
	fake_release(fake, QUEUE_HINT);
	FAKE_EXPECT_SOON(fake, READ_ONCE(fake->nr_hint_stops) == 2, 10000);
	KUNIT_EXPECT_EQ(test, fake->hint_id, 7);
}

/* OOM takes what was hinted, and asks nobody. */
static void odd_oom_takes_hinted_blocks(struct kunit *test)
{
	struct fake_balloon *fake = device_with(test, &odd_free, SOME);
	unsigned long before;

	fake_hint(fake, 5);
	FAKE_ASSERT_SOON(fake, READ_ONCE(fake->nr_hint_stops) == 1, FAKE_PATIENCE_MS);
	FAKE_EXPECT_SOON(fake, !READ_ONCE(fake_vb(fake)->hint.nr_posted), 1000);
	before = fake_pages_out();
	KUNIT_EXPECT_EQ(test, device_oom(fake), (unsigned long)(SZ_64M >> PAGE_SHIFT));
	KUNIT_EXPECT_LE(test, fake_pages_out(), before - (SZ_64M >> PAGE_SHIFT));
	KUNIT_EXPECT_EQ(test, fake->nr_held, SOME);
}

/* A run that goes on would take at once what memory pressure got back. */
static void odd_oom_ends_a_hint_run(struct kunit *test)
{
	static const struct fake_like like = {
		.name = "a slow device",
		.offered = V1 | EVENTS | EVERY,
		.size = { 128 },
		.config_len = 16,
		.delay_ms = 40,
	};
	struct fake_balloon *fake = fake_new(test, &like);
	unsigned long hinted;

	fake_hint(fake, 5);
	FAKE_ASSERT_SOON(fake, READ_ONCE(fake->nr_hinted) > 50, 10000);
	KUNIT_EXPECT_GT(test, device_oom(fake), 0UL);
	hinted = fake->nr_hinted;
	FAKE_EXPECT_SOON(fake, READ_ONCE(fake->nr_hint_stops) == 1, 5000);
	KUNIT_EXPECT_LE(test, fake->nr_hinted, hinted + HINT_POSTED_MAX);
	msleep(2000);
	KUNIT_EXPECT_EQ(test, fake->nr_hint_starts, 1UL);
}

/* --- Probe ------------------------------------------------------------- */

static void odd_probe_without_get(struct kunit *test)
{
	struct fake_balloon *fake = fake_alloc(test, &odd_plain);
	struct virtio_config_ops *ops;

	ops = kunit_kzalloc(test, sizeof(*ops), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, ops);
	*ops = fake_config_ops;
	ops->get = NULL;
	fake->vdev.config = ops;
	KUNIT_EXPECT_FALSE(test, fake_register(fake));
}

static void odd_probe_without_queues(struct kunit *test)
{
	struct fake_balloon *fake = fake_alloc(test, &odd_free);

	fake->fail_find = -ENOMEM;
	KUNIT_EXPECT_FALSE(test, fake_register(fake));
	KUNIT_EXPECT_NULL(test, fake->vdev.priv);
}

static void odd_probe_tiny_rings(struct kunit *test)
{
	struct fake_balloon *fake = fake_alloc(test, &odd_free);

	fake->shrink = 2;
	KUNIT_EXPECT_FALSE(test, fake_register(fake));
	KUNIT_EXPECT_NULL(test, fake->vdev.priv);
}

/* F9, F21: nothing is there, and nobody called, without its feature. */
static void odd_only_what_is_negotiated(struct kunit *test)
{
	static const struct fake_like like = {
		.name = "nothing",
		.offered = V1,
		.size = { 128 },
		.config_len = 8,
	};
	struct fake_balloon *fake = device_with(test, &like, SOME);
	struct virtio_balloon *vb = fake_vb(fake);

	KUNIT_EXPECT_NULL(test, vb->queue[QUEUE_STATS].vq);
	KUNIT_EXPECT_NULL(test, vb->queue[QUEUE_HINT].vq);
	KUNIT_EXPECT_NULL(test, vb->queue[QUEUE_REPORT].vq);
	KUNIT_EXPECT_NULL(test, vb->hint.shrinker);
	KUNIT_EXPECT_NULL(test, vb->oom_nb.notifier_call);
	KUNIT_EXPECT_FALSE(test, vb->report.registered);
	fake_hint(fake, 5);
	msleep(1000);
	KUNIT_EXPECT_EQ(test, fake->nr_held, SOME);
}

/* F31: only one device of a kernel can report; the other is a balloon still. */
static void odd_two_devices(struct kunit *test)
{
	struct fake_balloon *first = fake_new(test, &odd_free);
	struct fake_balloon *second = fake_new(test, &odd_free);

	KUNIT_EXPECT_TRUE(test, fake_vb(first)->report.registered);
	KUNIT_EXPECT_FALSE(test, fake_vb(second)->report.registered);
	device_reach(second, SOME);
	fake_target(first, SOME);
	FAKE_EXPECT_SOON(first, first->actual == SOME << WIRE_SHIFT, 1000);
	KUNIT_EXPECT_GT(test, device_oom(first), 0UL);
	KUNIT_EXPECT_GT(test, device_oom(second), 0UL);
	fake_remove(first);
	KUNIT_EXPECT_LT(test, fake_pages_out(), SOME);
	fake_remove(second);
}

/* Losing hinting is better than losing the balloon. */
static void odd_tiny_hint_ring(struct kunit *test)
{
	static const struct fake_like like = {
		.name = "two hints",
		.offered = V1 | EVENTS | EVERY,
		.size = { 128, [QUEUE_HINT] = 2 },
		.config_len = 16,
	};
	struct fake_balloon *fake = device_with(test, &like, SOME);

	fake_hint(fake, 5);
	msleep(1000);
	KUNIT_EXPECT_EQ(test, fake->nr_hint_starts, 0UL);
	KUNIT_EXPECT_GT(test, device_oom(fake), 0UL);
}

/* --- Memory that has a value ------------------------------------------- */

/* That cannot be switched on later: what is free by then has no value. */
static void odd_needs_zeroing(struct kunit *test)
{
	if (!want_init_on_free())
		kunit_skip(test, "for a kernel with init_on_free=1");
}

/* S28, F26: set before the device is ready, and again after each reset. */
static void odd_poison_is_set(struct kunit *test)
{
	struct fake_balloon *fake;

	odd_needs_zeroing(test);
	fake = device_with(test, &odd_free, SOME);
	KUNIT_EXPECT_TRUE(test, fake_agreed(fake, VIRTIO_BALLOON_F_PAGE_POISON));
	KUNIT_EXPECT_TRUE(test, fake_agreed(fake, VIRTIO_BALLOON_F_REPORTING));
	KUNIT_EXPECT_TRUE(test, fake->poison_set);
	KUNIT_EXPECT_EQ(test, le32_to_cpu(fake->config[3]), 0);
	KUNIT_ASSERT_EQ(test, virtio_device_freeze(&fake->vdev), 0);
	KUNIT_EXPECT_FALSE(test, fake->poison_set);
	KUNIT_ASSERT_EQ(test, virtio_device_restore(&fake->vdev), 0);
	KUNIT_EXPECT_TRUE(test, fake->poison_set);
}

/* S3: the device would drop what must keep its value. */
static void odd_poison_unknown_no_reports(struct kunit *test)
{
	static const struct fake_like like = {
		.name = "no poison",
		.offered = V1 | EVENTS | STATS | OOM | HINT | REPORT,
		.size = { 128 },
		.config_len = 12,
	};
	struct fake_balloon *fake;

	odd_needs_zeroing(test);
	fake = device_with(test, &like, MANY);
	KUNIT_EXPECT_FALSE(test, fake_agreed(fake, VIRTIO_BALLOON_F_REPORTING));
	KUNIT_EXPECT_EQ(test, fake->nr_reports, 0UL);
}

/* S2 */
static void odd_poison_is_declined(struct kunit *test)
{
	struct fake_balloon *fake = fake_new(test, &odd_free);

	if (balloon_memory_has_value())
		kunit_skip(test, "this kernel's free memory has a value");
	KUNIT_EXPECT_FALSE(test, fake_agreed(fake, VIRTIO_BALLOON_F_PAGE_POISON));
	KUNIT_EXPECT_FALSE(test, fake->poison_set);
}

/* --- Targets ----------------------------------------------------------- */

/* U19, U7: all that is to be had, and then quiet. */
static void odd_target_of_everything(struct kunit *test)
{
	struct fake_balloon *fake = fake_new(test, &odd_free);
	struct virtio_balloon *vb = fake_vb(fake);
	unsigned long seen;

	fake_set_config(fake, 0, U32_MAX);
	FAKE_ASSERT_SOON(fake, READ_ONCE(vb->backoff) == BACKOFF_MAX, FAKE_PATIENCE_MS);
	KUNIT_EXPECT_TRUE(test, vb->short_said);
	seen = fake->queue[QUEUE_INFLATE].nr_seen;
	KUNIT_EXPECT_GT(test, fake->nr_held, totalram_pages() / 2);
	msleep(20000);
	KUNIT_EXPECT_LE(test, fake->queue[QUEUE_INFLATE].nr_seen - seen, 8UL);
	fake_check_claims(fake);
	fake_target(fake, 0);
	FAKE_ASSERT_SOON(fake, !READ_ONCE(fake->actual), FAKE_PATIENCE_MS);
	KUNIT_EXPECT_EQ(test, fake_pages_out(), 0UL);
}

/* U29: many changes; the last one counts. */
static void odd_target_moves_fast(struct kunit *test)
{
	struct fake_balloon *fake = fake_new(test, &odd_free);
	unsigned int i;

	for (i = 0; i < 200; i++) {
		fake_target(fake, (i * 7919) % MANY);
		if (!(i % 7))
			schedule_timeout_uninterruptible(1);
	}
	device_reach(fake, SOME);
}

/* A target that is reached is not written about again. */
static void odd_interrupts_change_nothing(struct kunit *test)
{
	struct fake_balloon *fake = device_with(test, &odd_free, SOME);
	unsigned long actual = fake->nr_actual, kicks;
	unsigned int i;

	kicks = fake->queue[QUEUE_INFLATE].nr_kicks + fake->queue[QUEUE_DEFLATE].nr_kicks;
	for (i = 0; i < 50; i++) {
		fake_target(fake, SOME);
		schedule_timeout_uninterruptible(1);
	}
	KUNIT_EXPECT_EQ(test, fake->nr_actual, actual);
	KUNIT_EXPECT_EQ(test, fake->queue[QUEUE_INFLATE].nr_kicks +
			fake->queue[QUEUE_DEFLATE].nr_kicks, kicks);
}

/* U27: MemTotal falls by the balloon, unless the guest may take it back. */
static void odd_managed_pages(struct kunit *test)
{
	static const struct fake_like like = {
		.name = "no OOM",
		.offered = V1 | EVENTS | STATS,
		.size = { 128 },
		.config_len = 8,
	};
	unsigned long total = totalram_pages();
	struct fake_balloon *fake = device_with(test, &like, SOME);

	KUNIT_EXPECT_EQ(test, totalram_pages(), total - SOME);
	device_migrate(fake, 10, MIGRATE_SYNC);
	KUNIT_EXPECT_EQ(test, totalram_pages(), total - SOME);
	device_reach(fake, 7);
	KUNIT_EXPECT_EQ(test, totalram_pages(), total - 7);
	fake_remove(fake);
	KUNIT_EXPECT_EQ(test, totalram_pages(), total);
	fake = device_with(test, &odd_free, SOME);
	KUNIT_EXPECT_EQ(test, totalram_pages(), total);
}

/* --- What operators see ------------------------------------------------ */

static char *odd_shown(struct kunit *test, struct fake_balloon *fake,
		       int (*show)(struct seq_file *m, void *unused))
{
	struct seq_file m = { .size = SZ_4K, .private = fake_vb(fake) };

	m.buf = kunit_kzalloc(test, m.size, GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, m.buf);
	KUNIT_EXPECT_EQ(test, show(&m, NULL), 0);
	KUNIT_EXPECT_LT(test, m.count, m.size);
	return m.buf;
}

static void odd_expect_shown(struct kunit *test, const char *text,
			     const char *what)
{
	KUNIT_EXPECT_NOT_NULL_MSG(test, strstr(text, what), "%s\nis not in\n%s",
				  what, text);
}

static void odd_status_is_true(struct kunit *test)
{
	struct fake_balloon *fake = device_with(test, &odd_strict, SOME);
	char line[40];
	char *text;

	text = odd_shown(test, fake, status_show);
	snprintf(line, sizeof(line), "target: %lu\nactual: %lu\n", SOME, SOME);
	odd_expect_shown(test, text, line);
	odd_expect_shown(test, text, "stalled: no\nlast error: none\n");
	odd_expect_shown(test, text, "must-tell-host statistics deflate-on-oom free-page-hint");
	fake_withhold(fake, QUEUE_DEFLATE);
	fake_target(fake, 0);
	FAKE_EXPECT_SOON(fake, status_stalled(fake_vb(fake)), 31000);
	msleep(100);
	text = odd_shown(test, fake, status_show);
	snprintf(line, sizeof(line), "recalled: %lu\n", SOME);
	odd_expect_shown(test, text, line);
	odd_expect_shown(test, text, "stalled: yes\nlast error: -ETIMEDOUT\n");
	text = odd_shown(test, fake, counters_show);
	odd_expect_shown(test, text, "stalls: 1\n");
}

static struct kunit_case odd_cases[] = {
	KUNIT_CASE_SLOW(odd_inflation_stalls),
	KUNIT_CASE_SLOW(odd_deflation_stalls),
	KUNIT_CASE_SLOW(odd_inflation_stalls_halfway),
	KUNIT_CASE_SLOW(odd_deflation_stalls_halfway),
	KUNIT_CASE_SLOW(odd_removal_while_inflation_stalls),
	KUNIT_CASE_SLOW(odd_removal_while_deflation_stalls),
	KUNIT_CASE_SLOW(odd_removal_after_a_stall),
	KUNIT_CASE(odd_device_vanishes_in_inflation),
	KUNIT_CASE(odd_device_vanishes_when_full),
	KUNIT_CASE_SLOW(odd_oom_late_may_tell),
	KUNIT_CASE_SLOW(odd_oom_late_stops_inflation),
	KUNIT_CASE_SLOW(odd_oom_late_must_tell),
	KUNIT_CASE_SLOW(odd_oom_finds_late_answer),
	KUNIT_CASE_SLOW(odd_oom_late_at_reset),
	KUNIT_CASE_SLOW(odd_oom_late_at_reset_strict),
	KUNIT_CASE_SLOW(odd_oom_takes_held_blocks),
	KUNIT_CASE(odd_oom_waits_for_the_worker),
	KUNIT_CASE_SLOW(odd_oom_worker_is_stuck),
	KUNIT_CASE_SLOW(odd_oom_while_deflating),
	KUNIT_CASE(odd_oom_is_answered_first),
	KUNIT_CASE(odd_oom_when_the_device_breaks),
	KUNIT_CASE(odd_oom_empty_balloon),
	KUNIT_CASE_SLOW(odd_target_ends_rest_once),
	KUNIT_CASE_SLOW(odd_frozen_is_quiet),
	KUNIT_CASE(odd_removed_while_frozen),
	KUNIT_CASE_SLOW(odd_frozen_while_stalled),
	KUNIT_CASE(odd_restored_with_less),
	KUNIT_CASE(odd_restore_without_queues),
	KUNIT_CASE_SLOW(odd_sleep_stops_inflation),
	KUNIT_CASE_SLOW(odd_sleep_stops_hinting),
	KUNIT_CASE_SLOW(odd_report_waits_for_the_device),
	KUNIT_CASE_SLOW(odd_report_outstanding_at_removal),
	KUNIT_CASE_SLOW(odd_report_of_the_core_at_removal),
	KUNIT_CASE_SLOW(odd_report_outstanding_at_freeze),
	KUNIT_CASE_SLOW(odd_report_of_a_broken_device),
	KUNIT_CASE_SLOW(odd_own_report_is_late),
	KUNIT_CASE_SLOW(odd_own_report_late_at_removal),
#ifdef CONFIG_BALLOON_COMPACTION
	KUNIT_CASE(odd_moves_all_under_way),
	KUNIT_CASE_SLOW(odd_moves_wait_once),
	KUNIT_CASE(odd_moves_answered_out_of_order),
	KUNIT_CASE_SLOW(odd_moves_under_way_at_reset),
	KUNIT_CASE_SLOW(odd_move_waits_with_a_bound),
	KUNIT_CASE(odd_move_to_a_wide_pfn),
	KUNIT_CASE_SLOW(odd_deflation_waits_for_isolated),
#endif
	KUNIT_CASE_SLOW(odd_hint_unanswered),
	KUNIT_CASE_SLOW(odd_hint_at_removal),
	KUNIT_CASE(odd_hint_superseded),
	KUNIT_CASE(odd_oom_takes_hinted_blocks),
	KUNIT_CASE_SLOW(odd_oom_ends_a_hint_run),
	KUNIT_CASE(odd_probe_without_get),
	KUNIT_CASE(odd_probe_without_queues),
	KUNIT_CASE(odd_probe_tiny_rings),
	KUNIT_CASE(odd_only_what_is_negotiated),
	KUNIT_CASE(odd_two_devices),
	KUNIT_CASE(odd_tiny_hint_ring),
	KUNIT_CASE(odd_poison_is_set),
	KUNIT_CASE(odd_poison_unknown_no_reports),
	KUNIT_CASE(odd_poison_is_declined),
	KUNIT_CASE_SLOW(odd_target_of_everything),
	KUNIT_CASE(odd_target_moves_fast),
	KUNIT_CASE(odd_interrupts_change_nothing),
	KUNIT_CASE(odd_managed_pages),
	KUNIT_CASE_SLOW(odd_status_is_true),
	{}
};

static struct kunit_suite odd_suite = {
	.name = "virtio_balloon_odd",
	.test_cases = odd_cases,
};
