// SPDX-License-Identifier: GPL-2.0
/*
 * Each operation against each device: those of hypervisors, as their sources
 * tell, and some that are broken in one way.  What a device does not offer is
 * skipped.
 */

#define RING	(BIT_ULL(VIRTIO_F_VERSION_1) | BIT_ULL(VIRTIO_RING_F_EVENT_IDX))
#define TELL	BIT_ULL(VIRTIO_BALLOON_F_MUST_TELL_HOST)
#define STATS	BIT_ULL(VIRTIO_BALLOON_F_STATS_VQ)
#define OOM	BIT_ULL(VIRTIO_BALLOON_F_DEFLATE_ON_OOM)
#define HINT	BIT_ULL(VIRTIO_BALLOON_F_FREE_PAGE_HINT)
#define POISON	BIT_ULL(VIRTIO_BALLOON_F_PAGE_POISON)
#define REPORT	BIT_ULL(VIRTIO_BALLOON_F_REPORTING)
#define V1	BIT_ULL(VIRTIO_F_VERSION_1)
#define CHAINS	BIT_ULL(VIRTIO_RING_F_INDIRECT_DESC)
#define EVENTS	BIT_ULL(VIRTIO_RING_F_EVENT_IDX)
#define EVERY	(STATS | OOM | HINT | POISON | REPORT)

static const struct fake_like devices[] = {
	{
		.name = "QEMU",
		.offered = V1 | CHAINS | EVENTS | EVERY,
		.size = { 128, [QUEUE_HINT] = 1024, [QUEUE_REPORT] = 32 },
		.config_len = 16,
		.traits = FAKE_IRQ_EACH,
	}, {
		.name = "QEMU, legacy",
		.offered = CHAINS | EVENTS | STATS | OOM,
		.size = { 128 },
		.config_len = 8,
		.traits = FAKE_IRQ_EACH | FAKE_GARBAGE_LEN | FAKE_LEGACY_STATS,
	}, {
		.name = "Firecracker",
		.offered = V1 | STATS | OOM | HINT | REPORT,
		.size = { 256 },
		.config_len = 12,
		.loses_above = 256,
	}, {
		.name = "Firecracker of old",
		.offered = V1 | STATS | OOM,
		.size = { 256 },
		.config_len = 8,
		.loses_above = 256,
		.stats_tag_max = 9,
		.traits = FAKE_USED_FIRST,
	}, {
		.name = "crosvm",
		.offered = V1 | EVENTS | TELL | STATS | OOM | REPORT,
		.size = { 128 },
		.config_len = 16,
		.traits = FAKE_LEGACY_STATS,
	}, {
		.name = "Cloud Hypervisor",
		.offered = V1 | EVENTS | OOM | REPORT,
		.size = { 128, [QUEUE_REPORT] = 32 },
		.config_len = 16,
		.skips_above = 256,
		.traits = FAKE_GARBAGE_LEN,
	}, {
		.name = "libkrun",
		.offered = V1 | STATS | HINT | REPORT,
		.size = { 256 },
		.config_len = 16,
		.traits = FAKE_NEVER_ANSWERS | FAKE_KEEPS_STATS,
	}, {
		.name = "kvmtool",
		.offered = STATS,
		.size = { 128 },
		.config_len = 8,
		.stats_tag_max = 9,
		.traits = FAKE_GARBAGE_LEN | FAKE_IRQ_IDLE | FAKE_WRITES_ACTUAL,
	}, {
		.name = "StratoVirt",
		.offered = V1 | EVENTS | OOM | REPORT,
		.size = { 256 },
		.config_len = 16,
		.traits = FAKE_GARBAGE_LEN,
	}, {
		.name = "Dragonball",
		.offered = V1 | OOM | REPORT,
		.size = { 128 },
		.config_len = 16,
	}, {
		.name = "bhyve",
		.offered = V1 | TELL,
		.size = { 64 },
		.config_len = 8,
		.traits = FAKE_WRITES_ACTUAL,
	}, {
		.name = "everything, works while notified",
		.offered = V1 | EVENTS | CHAINS | TELL | EVERY,
		.size = { 128 },
		.config_len = 16,
		.traits = FAKE_IN_KICK,
	}, {
		.name = "asks for access by address",
		.offered = V1 | EVENTS | CHAINS | EVERY |
			   BIT_ULL(VIRTIO_F_ACCESS_PLATFORM),
		.size = { 128 },
		.config_len = 16,
	}, {
		.name = "last one first",
		.offered = V1 | EVENTS | TELL | EVERY,
		.size = { 128 },
		.config_len = 16,
		.traits = FAKE_REVERSES,
	}, {
		.name = "any order",
		.offered = V1 | EVENTS | TELL | EVERY,
		.size = { 256 },
		.config_len = 16,
		.traits = FAKE_SHUFFLES | FAKE_IRQ_EACH,
	}, {
		.name = "smallest rings",
		.offered = V1 | TELL | EVERY,
		.size = { 4 },
		.config_len = 16,
	}, {
		.name = "slow",
		.offered = V1 | EVENTS | EVERY,
		.size = { 128 },
		.config_len = 16,
		.delay_ms = 40,
	}, {
		.name = "moves the target in mid-batch",
		.offered = V1 | EVENTS | EVERY,
		.size = { 128 },
		.config_len = 16,
		.traits = FAKE_RETARGETS,
	}, {
		.name = "interrupts for nothing",
		.offered = V1 | EVENTS | EVERY,
		.size = { 128 },
		.config_len = 16,
		.traits = FAKE_IRQ_IDLE | FAKE_IRQ_EACH,
	}, {
		.name = "gives a token back twice",
		.offered = V1 | EVENTS | OOM,
		.size = { 128 },
		.config_len = 8,
		.traits = FAKE_TWICE,
	}, {
		.name = "breaks",
		.offered = V1 | EVENTS | EVERY,
		.size = { 128 },
		.config_len = 16,
		.traits = FAKE_BREAKS,
	},
};

static void devices_describe(const struct fake_like *like, char *desc)
{
	strscpy(desc, like->name, KUNIT_PARAM_DESC_SIZE);
}

KUNIT_ARRAY_PARAM(devices, devices, devices_describe);

/* 20 MiB and something: a batch, and no multiple of anything. */
#define SOME	((unsigned long)(20 * SZ_1M >> PAGE_SHIFT) + 3)
/* Some batches, and whole blocks that are reported first. */
#define MANY	((unsigned long)(100 * SZ_1M >> PAGE_SHIFT) + 3)

static bool device_works(const struct fake_like *like)
{
	return !(like->traits & (FAKE_NEVER_ANSWERS | FAKE_TWICE | FAKE_BREAKS));
}

/* Does no less and no more than others, and at once. */
static bool device_is_prompt(const struct fake_like *like)
{
	return device_works(like) && !like->delay_ms &&
	       !(like->traits & (FAKE_USED_FIRST | FAKE_RETARGETS));
}

static void device_needs(struct kunit *test, u64 feature)
{
	const struct fake_like *like = test->param_value;

	if (!(like->offered & feature) || !device_works(like))
		kunit_skip(test, "not offered, or it breaks before");
}

/* Inflates or deflates, and looks that both sides agree. */
static void device_reach(struct fake_balloon *fake, unsigned long pages)
{
	struct virtio_balloon *vb = fake_vb(fake);

	fake_target(fake, pages);
	FAKE_ASSERT_SOON(fake, READ_ONCE(fake->actual) == pages << WIRE_SHIFT,
			 FAKE_PATIENCE_MS);
	FAKE_EXPECT_SOON(fake, !READ_ONCE(vb->in_hand), 1000);
	KUNIT_EXPECT_EQ_MSG(fake->test, fake->nr_held, pages, "%s",
			    fake->like->name);
	KUNIT_EXPECT_EQ_MSG(fake->test, fake_pages_out(), pages, "%s",
			    fake->like->name);
	fake_check_claims(fake);
}

/* A balloon with something in it, whatever the device thinks of targets. */
static struct fake_balloon *device_with(struct kunit *test,
					const struct fake_like *like,
					unsigned long pages)
{
	struct fake_balloon *fake = fake_new(test, like);

	if (like->traits & FAKE_RETARGETS) {
		fake_target(fake, 2 * pages);
		FAKE_ASSERT_SOON(fake, READ_ONCE(fake->actual), 10000);
	}
	device_reach(fake, pages);
	return fake;
}

/* A wait that nobody ended by an interrupt is a slice of 200 ms. */
static void device_expect_prompt(struct kunit *test, unsigned long begun)
{
	const struct fake_like *like = test->param_value;

	if (device_is_prompt(like))
		KUNIT_EXPECT_LT_MSG(test, jiffies_to_msecs(jiffies - begun), 190,
				    "%s: an answer was not noticed", like->name);
}

/* --- Inflation and deflation ------------------------------------------- */

static void device_breaks(struct kunit *test, const struct fake_like *like)
{
	struct fake_balloon *fake = fake_new(test, like);
	struct virtio_balloon *vb = fake_vb(fake);

	fake_target(fake, MANY);
	if (like->traits & FAKE_NEVER_ANSWERS)
		FAKE_EXPECT_SOON(fake, status_stalled(vb), 31000);
	else
		FAKE_EXPECT_SOON(fake, READ_ONCE(vb->gone_said), 31000);
	fake_check_claims(fake);
}

static void devices_inflate(struct kunit *test)
{
	const struct fake_like *like = test->param_value;
	struct fake_balloon *fake;
	unsigned long begun;
	struct virtio_balloon *vb;

	if (!device_works(like)) {
		device_breaks(test, like);
		return;
	}
	if (like->traits & FAKE_RETARGETS) {
		device_with(test, like, SOME);
		return;
	}
	fake = fake_new(test, like);
	vb = fake_vb(fake);
	begun = jiffies;
	device_reach(fake, MANY);
	KUNIT_EXPECT_EQ_MSG(test, fake->nr_disorder, 0, "%s: V2", like->name);
	KUNIT_EXPECT_LE_MSG(test, fake->queue[QUEUE_INFLATE].nr_kicks,
			    atomic_long_read(&vb->counter[COUNT_INFLATE_BATCHES]),
			    "%s: V3: more kicks than batches", like->name);
	KUNIT_EXPECT_LE_MSG(test, fake->nr_actual,
			    atomic_long_read(&vb->counter[COUNT_INFLATE_BATCHES]) + 1,
			    "%s: V8: more writes than batches", like->name);
	device_expect_prompt(test, begun);
}

static void devices_deflate(struct kunit *test)
{
	const struct fake_like *like = test->param_value;
	struct fake_balloon *fake;
	unsigned long begun;

	device_needs(test, U64_MAX);
	fake = device_with(test, like, SOME);
	begun = jiffies;
	device_reach(fake, SOME / 3);
	device_reach(fake, SOME / 3 + 1);
	device_reach(fake, 0);
	device_expect_prompt(test, begun);
	KUNIT_EXPECT_EQ(test, fake->nr_inflated, fake->nr_deflated);
}

/* --- Out of memory ----------------------------------------------------- */

/*
 * Calls the notifier as the kernel would: it must not allocate, which lockdep
 * finds, nor touch the configuration.
 */
static unsigned long device_oom(struct fake_balloon *fake)
{
	struct virtio_balloon *vb = fake_vb(fake);
	unsigned long freed = 0;

	WRITE_ONCE(fake->no_config, current);
	fs_reclaim_acquire(GFP_KERNEL);
	KUNIT_EXPECT_EQ(fake->test, balloon_oom_notify(&vb->oom_nb, 0, &freed),
			NOTIFY_OK);
	fs_reclaim_release(GFP_KERNEL);
	WRITE_ONCE(fake->no_config, NULL);
	return freed;
}

static void devices_oom(struct kunit *test)
{
	const struct fake_like *like = test->param_value;
	unsigned long freed, step = SZ_2M >> PAGE_SHIFT, sum = 0, begun;
	struct virtio_balloon *vb;
	struct fake_balloon *fake;
	unsigned int i;

	device_needs(test, OOM);
	fake = device_with(test, like, SOME);
	vb = fake_vb(fake);
	begun = jiffies;
	for (i = 0; i < 3; i++, step *= 2) {
		unsigned long before = fake->nr_deflated;

		freed = device_oom(fake);
		KUNIT_EXPECT_EQ_MSG(test, freed, min(step, batch_room(&vb->oom_batch)),
				    "%s: step %u", like->name, i);
		KUNIT_EXPECT_EQ_MSG(test, fake->nr_deflated - before, freed,
				    "S8: %s: step %u", like->name, i);
		sum += freed;
		KUNIT_EXPECT_EQ(test, fake_pages_out(), SOME - sum);
	}
	device_expect_prompt(test, begun);
	FAKE_EXPECT_SOON(fake, READ_ONCE(fake->actual) == (SOME - sum) << WIRE_SHIFT,
			 1000);
	/* F33: inflation must not take it back at once, but some time. */
	msleep(8000);
	KUNIT_EXPECT_EQ_MSG(test, fake->nr_held, SOME - sum, "%s: no rest",
			    like->name);
	FAKE_EXPECT_SOON(fake, READ_ONCE(fake->actual) == SOME << WIRE_SHIFT, 20000);
}

/* --- Statistics -------------------------------------------------------- */

static void device_all_stats(void *unused)
{
	first_ten_stats = false;
}

static void devices_statistics(struct kunit *test)
{
	const struct fake_like *like = test->param_value;
	struct fake_balloon *fake;
	unsigned int i;

	if (!(like->offered & STATS))
		kunit_skip(test, "not offered");
	first_ten_stats = like->stats_tag_max;
	KUNIT_ASSERT_EQ(test, kunit_add_action_or_reset(test, device_all_stats, NULL), 0);
	fake = fake_new(test, like);
	FAKE_ASSERT_SOON(fake, READ_ONCE(fake->nr_stats) == 1, 1000);
	for (i = 2; i < 6 && !(like->traits & FAKE_KEEPS_STATS); i++) {
		KUNIT_EXPECT_TRUE_MSG(test, fake_ask_stats(fake), "%s: no buffer",
				      like->name);
		FAKE_EXPECT_SOON(fake, READ_ONCE(fake->nr_stats) == i, 150);
	}
	msleep(1000);
	KUNIT_EXPECT_EQ_MSG(test, fake->nr_stats, i - 1, "S15: %s", like->name);
	KUNIT_EXPECT_EQ(test, hweight32(fake->stat_tags), stats_count());
	KUNIT_EXPECT_EQ(test, fake->stat[VIRTIO_BALLOON_S_MEMTOT],
			(u64)totalram_pages() << PAGE_SHIFT);
	KUNIT_EXPECT_GT(test, fake->stat[VIRTIO_BALLOON_S_MEMFREE], (u64)SZ_16M);
	KUNIT_EXPECT_LT(test, fake->stat[VIRTIO_BALLOON_S_MEMFREE],
			fake->stat[VIRTIO_BALLOON_S_MEMTOT]);
}

/* --- Hints ------------------------------------------------------------- */

static void devices_hint(struct kunit *test)
{
	const struct fake_like *like = test->param_value;
	struct shrink_control sc = { .nr_to_scan = BLOCK_PAGES };
	unsigned long before;
	struct virtio_balloon *vb;
	struct fake_balloon *fake;

	/* libkrun does answer hints. */
	if (!(like->offered & HINT) || (like->traits & FAKE_BREAKS))
		kunit_skip(test, "not offered, or it breaks before");
	fake = fake_new(test, like);
	vb = fake_vb(fake);
	fake_hint(fake, 5);
	FAKE_ASSERT_SOON(fake, READ_ONCE(fake->nr_hint_stops) == 1, FAKE_PATIENCE_MS);
	KUNIT_EXPECT_EQ(test, fake->hint_id, 5);
	KUNIT_EXPECT_GT_MSG(test, fake->nr_hinted, 100UL, "%s", like->name);
	FAKE_EXPECT_SOON(fake, !READ_ONCE(vb->hint.nr_posted), 10000);
	/* What was hinted is kept, and reclaim can have it. */
	before = fake_pages_out();
	KUNIT_EXPECT_GT(test, before, 50 * BLOCK_PAGES);
	KUNIT_EXPECT_GE(test, vb->hint.shrinker->count_objects(vb->hint.shrinker, &sc),
			50 * BLOCK_PAGES);
	KUNIT_EXPECT_EQ(test, vb->hint.shrinker->scan_objects(vb->hint.shrinker, &sc),
			BLOCK_PAGES);
	KUNIT_EXPECT_LE(test, fake_pages_out(), before - BLOCK_PAGES);
	/* S21: a change of something else is no new run. */
	fake_target(fake, 0);
	msleep(1000);
	KUNIT_EXPECT_EQ(test, fake->nr_hint_starts, 1);
	/* S26 */
	fake_hint(fake, VIRTIO_BALLOON_CMD_ID_DONE);
	FAKE_EXPECT_SOON(fake, !fake_pages_out(), 10000);
	fake_hint(fake, 6);
	FAKE_EXPECT_SOON(fake, READ_ONCE(fake->nr_hint_stops) == 2, FAKE_PATIENCE_MS);
	fake_hint(fake, VIRTIO_BALLOON_CMD_ID_STOP);
	msleep(1000);
	KUNIT_EXPECT_EQ(test, fake->nr_hint_starts, 2);
}

/* --- Reports ----------------------------------------------------------- */

static void devices_report(struct kunit *test)
{
	const struct fake_like *like = test->param_value;
	unsigned long before;
	struct fake_balloon *fake;
	struct scatterlist sg[3];
	struct page *page[3];
	unsigned int i;

	device_needs(test, REPORT);
	fake = device_with(test, like, MANY);
	if (fake_vb(fake)->batch_max >= BLOCK_PAGES && !(like->traits & FAKE_RETARGETS))
		KUNIT_EXPECT_GE_MSG(test, fake->reported_first,
				    MANY / BLOCK_PAGES * BLOCK_PAGES,
				    "%s: blocks were announced first", like->name);
	/* And those of the core. */
	sg_init_table(sg, ARRAY_SIZE(sg));
	for (i = 0; i < ARRAY_SIZE(sg); i++) {
		page[i] = alloc_pages(GFP_KERNEL, BLOCK_ORDER);
		KUNIT_ASSERT_NOT_NULL(test, page[i]);
		sg_set_page(&sg[i], page[i], BLOCK_BYTES, 0);
	}
	before = fake->nr_reported;
	/* It may be at work itself. */
	FAKE_EXPECT_SOON(fake, !balloon_report(&fake_vb(fake)->report.core, sg,
					       ARRAY_SIZE(sg)), 10000);
	KUNIT_EXPECT_GE(test, fake->nr_reported - before, 3 * BLOCK_PAGES);
	for (i = 0; i < ARRAY_SIZE(sg); i++)
		__free_pages(page[i], BLOCK_ORDER);
}

/* --- Suspend ----------------------------------------------------------- */

static void devices_suspend(struct kunit *test)
{
	const struct fake_like *like = test->param_value;
	unsigned long stats;
	struct fake_balloon *fake;

	device_needs(test, U64_MAX);
	fake = device_with(test, like, SOME);
	stats = fake->nr_stats;
	KUNIT_ASSERT_EQ(test, virtio_device_freeze(&fake->vdev), 0);
	KUNIT_EXPECT_EQ_MSG(test, fake->nr_forgotten, 0,
			    "S8: %s: pages not told at the reset", like->name);
	KUNIT_EXPECT_EQ_MSG(test, fake_pages_out(), 0, "%s", like->name);
	fake->actual = 0;
	KUNIT_ASSERT_EQ(test, virtio_device_restore(&fake->vdev), 0);
	device_reach(fake, SOME);
	if (like->offered & STATS)
		FAKE_EXPECT_SOON(fake, READ_ONCE(fake->nr_stats) > stats, 1000);
}

/* --- Migration --------------------------------------------------------- */

#ifdef CONFIG_BALLOON_COMPACTION
static struct folio *move_target(struct folio *from, unsigned long data)
{
	struct page *page = chunk_alloc(0, true);

	return page ? page_folio(page) : NULL;
}

static struct page *move_first(struct virtio_balloon *vb)
{
	struct page *page;

	spin_lock_irq(&vb->info.pages_lock);
	page = list_first_entry_or_null(&vb->info.pages, struct page, lru);
	spin_unlock_irq(&vb->info.pages_lock);
	return page;
}

/* Moves pages as compaction does; returns how many went. */
static unsigned int device_migrate(struct fake_balloon *fake, unsigned int nr,
				   enum migrate_mode mode)
{
	struct virtio_balloon *vb = fake_vb(fake);
	unsigned int moved = 0;
	LIST_HEAD(pages);

	while (nr--) {
		struct page *page = move_first(vb);

		KUNIT_ASSERT_NOT_NULL(fake->test, page);
		KUNIT_ASSERT_TRUE(fake->test,
				  isolate_movable_page(page, ISOLATE_ASYNC_MIGRATE));
		list_add(&page->lru, &pages);
	}
	migrate_pages(&pages, move_target, NULL, 0, mode, MR_COMPACTION, &moved);
	putback_movable_pages(&pages);
	return moved;
}

/*
 * One page, in the mode that is given; the core tries the asynchronous one first.
 * Returns what the driver does.
 */
static int device_move_one(struct fake_balloon *fake, enum migrate_mode mode)
{
	struct virtio_balloon *vb = fake_vb(fake);
	struct page *from = move_first(vb), *to = chunk_alloc(0, true);
	LIST_HEAD(pages);
	int ret;

	KUNIT_ASSERT_NOT_NULL(fake->test, from);
	KUNIT_ASSERT_NOT_NULL(fake->test, to);
	KUNIT_ASSERT_TRUE(fake->test, isolate_movable_page(from, 0));
	lock_page(from);
	lock_page(to);
	ret = vb->info.migratepage(&vb->info, to, from, mode);
	if (!ret)
		ClearPageIsolated(from);
	unlock_page(to);
	unlock_page(from);
	put_page(to);
	list_add(&from->lru, &pages);
	if (ret)
		putback_movable_pages(&pages);
	else
		put_pages_list(&pages);
	return ret;
}

static void devices_migrate(struct kunit *test)
{
	static const enum migrate_mode modes[] = {
		MIGRATE_SYNC, MIGRATE_SYNC_LIGHT, MIGRATE_ASYNC,
	};
	const struct fake_like *like = test->param_value;
	struct virtio_balloon *vb;
	struct fake_balloon *fake;
	unsigned int i, nr;

	device_needs(test, U64_MAX);
	fake = device_with(test, like, SOME);
	vb = fake_vb(fake);
	for (i = 0; i < ARRAY_SIZE(modes); i++) {
		KUNIT_EXPECT_EQ_MSG(test, device_move_one(fake, modes[i]), 0,
				    "%s: mode %d", like->name, modes[i]);
		msleep(20);
		nr = modes[i] == MIGRATE_ASYNC ? min(vb->migration.nr_moves, 5U) : 40;
		KUNIT_EXPECT_EQ_MSG(test, device_migrate(fake, nr, modes[i]), nr,
				    "%s: mode %d", like->name, modes[i]);
		/* Who settles the moves has the lock for a moment. */
		msleep(20);
		FAKE_EXPECT_SOON(fake, fake_pages_out() == SOME, 10000);
		FAKE_EXPECT_SOON(fake, !READ_ONCE(vb->info.isolated_pages), 1000);
		KUNIT_EXPECT_EQ(test, fake->nr_held, SOME);
		fake_check_claims(fake);
	}
	device_reach(fake, 0);
}
#endif

/* --- Removal ----------------------------------------------------------- */

/* In the middle of an inflation: everything is told, in time, and nothing lost. */
static void devices_remove(struct kunit *test)
{
	const struct fake_like *like = test->param_value;
	unsigned long begun;
	struct fake_balloon *fake;

	fake = fake_new(test, like);
	fake_target(fake, MANY);
	FAKE_ASSERT_SOON(fake, READ_ONCE(fake->queue[QUEUE_INFLATE].nr_seen) > 3, 10000);
	begun = jiffies;
	fake_remove(fake);
	KUNIT_EXPECT_LE_MSG(test, jiffies_to_msecs(jiffies - begun), 45000U,
			    "F34: %s: removal has no bound", like->name);
	if (device_works(like))
		KUNIT_EXPECT_EQ_MSG(test, fake->nr_forgotten, 0,
				    "S8: %s: pages not told at the reset", like->name);
	KUNIT_EXPECT_EQ(test, fake_pages_out(), 0UL);
}

static struct kunit_case devices_cases[] = {
	KUNIT_CASE_PARAM_ATTR(devices_inflate, devices_gen_params, { .speed = KUNIT_SPEED_SLOW }),
	KUNIT_CASE_PARAM_ATTR(devices_deflate, devices_gen_params, { .speed = KUNIT_SPEED_SLOW }),
	KUNIT_CASE_PARAM_ATTR(devices_oom, devices_gen_params, { .speed = KUNIT_SPEED_SLOW }),
	KUNIT_CASE_PARAM(devices_statistics, devices_gen_params),
	KUNIT_CASE_PARAM_ATTR(devices_hint, devices_gen_params, { .speed = KUNIT_SPEED_SLOW }),
	KUNIT_CASE_PARAM_ATTR(devices_report, devices_gen_params, { .speed = KUNIT_SPEED_SLOW }),
	KUNIT_CASE_PARAM_ATTR(devices_suspend, devices_gen_params, { .speed = KUNIT_SPEED_SLOW }),
#ifdef CONFIG_BALLOON_COMPACTION
	KUNIT_CASE_PARAM_ATTR(devices_migrate, devices_gen_params, { .speed = KUNIT_SPEED_SLOW }),
#endif
	KUNIT_CASE_PARAM_ATTR(devices_remove, devices_gen_params, { .speed = KUNIT_SPEED_SLOW }),
	{}
};

static struct kunit_suite devices_suite = {
	.name = "virtio_balloon_devices",
	.test_cases = devices_cases,
};
