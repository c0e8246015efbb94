// SPDX-License-Identifier: GPL-2.0
/*
 * Tests of the virtio balloon driver; part of its file, so that what is static
 * there can be called.
 *
 * virtio_balloon_logic    calculations: no device
 * virtio_balloon_devices  each operation against each device of a table
 * virtio_balloon_odd      what is about one device, one fault or one moment
 */
#include <kunit/test.h>

#include "fake_balloon.c"

/* --- Units ------------------------------------------------------------- */

static void logic_wire_and_pages(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, pages_to_wire(0), 0UL);
	KUNIT_EXPECT_EQ(test, wire_to_pages(0), 0UL);
	KUNIT_EXPECT_EQ(test, pages_to_wire(1), 1UL << (PAGE_SHIFT - 12));
	KUNIT_EXPECT_EQ(test, wire_to_pages(pages_to_wire(12345)), 12345UL);
	KUNIT_EXPECT_EQ(test, wire_to_pages(WIRE_PER_PAGE - 1), 0UL);
	KUNIT_EXPECT_EQ(test, pages_to_mib(SZ_64M >> PAGE_SHIFT), 64UL);
}

static void logic_target_rounds_up(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, target_to_pages(0), 0UL);
	KUNIT_EXPECT_EQ(test, target_to_pages(1), 1UL);
	KUNIT_EXPECT_EQ(test, target_to_pages(WIRE_PER_PAGE), 1UL);
	KUNIT_EXPECT_EQ(test, target_to_pages(WIRE_PER_PAGE + 1),
			2UL);
}

/* F30: a target near 2^32 must not wrap to nothing. */
static void logic_target_does_not_wrap(struct kunit *test)
{
	unsigned long all = DIV_ROUND_UP_ULL(U32_MAX, WIRE_PER_PAGE);

	KUNIT_EXPECT_EQ(test, target_to_pages(U32_MAX), all);
	KUNIT_EXPECT_EQ(test, target_to_pages(U32_MAX - 1), all - (WIRE_PER_PAGE == 1));
	KUNIT_EXPECT_GT(test, target_to_pages(0x80000001), 0x80000000UL >> WIRE_SHIFT);
}

/* Pages of 4, 16 and 64 KiB. */
static void logic_target_at_page_sizes(struct kunit *test)
{
	static const struct {
		unsigned int page_shift;
		u32 wire;
		unsigned long pages;
	} rows[] = {
		{ 12, 0, 0 }, { 12, 1, 1 }, { 12, 17, 17 },
		{ 12, U32_MAX - 1, U32_MAX - 1 }, { 12, U32_MAX, U32_MAX },
		{ 14, 0, 0 }, { 14, 1, 1 }, { 14, 3, 1 }, { 14, 4, 1 }, { 14, 5, 2 },
		{ 14, U32_MAX - 3, 0x3fffffff }, { 14, U32_MAX - 2, 0x40000000 },
		{ 14, U32_MAX, 0x40000000 },
		{ 16, 0, 0 }, { 16, 1, 1 }, { 16, 15, 1 }, { 16, 16, 1 }, { 16, 17, 2 },
		{ 16, U32_MAX - 15, 0x0fffffff }, { 16, U32_MAX - 14, 0x10000000 },
		{ 16, U32_MAX, 0x10000000 },
	};
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		unsigned int shift = rows[i].page_shift - VIRTIO_BALLOON_PFN_SHIFT;

		KUNIT_EXPECT_EQ_MSG(test, wire_round_up(rows[i].wire, shift),
				    rows[i].pages, "%x at shift %u",
				    rows[i].wire, rows[i].page_shift);
	}
}

/* F32: pages above 16 TiB have no PFN on the wire. */
static void logic_wide_pfns_do_not_fit(struct kunit *test)
{
	unsigned long end = 1UL << (32 - WIRE_SHIFT);

	KUNIT_EXPECT_TRUE(test, chunk_fits_wire(pfn_to_page(0), 0));
	KUNIT_EXPECT_TRUE(test, chunk_fits_wire(pfn_to_page(end - 1), 0));
	KUNIT_EXPECT_FALSE(test, chunk_fits_wire(pfn_to_page(end), 0));
	KUNIT_EXPECT_TRUE(test, chunk_fits_wire(pfn_to_page(end - BLOCK_PAGES),
						BLOCK_ORDER));
	KUNIT_EXPECT_FALSE(test, chunk_fits_wire(pfn_to_page(end - 1), 1));
	KUNIT_EXPECT_FALSE(test, chunk_fits_wire(pfn_to_page(end), BLOCK_ORDER));
	KUNIT_EXPECT_EQ(test, page_to_wire_pfn(pfn_to_page(end - 1)),
			U32_MAX - WIRE_PER_PAGE + 1);
}

static void logic_block_is_2_mib(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, BLOCK_PAGES << PAGE_SHIFT, (unsigned long)SZ_2M);
	KUNIT_EXPECT_LE(test, pages_to_wire(BLOCK_PAGES), (unsigned long)REQUEST_WIRE_BLOCK);
}

/* --- Ring arithmetic --------------------------------------------------- */

static void logic_deflate_slots(struct kunit *test)
{
	unsigned int size;

	for (size = RING_MIN; size <= 1024; size *= 2) {
		unsigned int slots = deflate_slots(size, 1024);

		KUNIT_EXPECT_GE_MSG(test, slots, 1, "ring of %u", size);
		KUNIT_EXPECT_LE_MSG(test, slots + max(size / 4, 2U), size,
				    "ring of %u", size);
		KUNIT_EXPECT_EQ(test, deflate_slots(size, 1), 1);
	}
}

/* --- OOM: steps and rests ---------------------------------------------- */

static void logic_pressure_begin(struct balloon_pressure *p)
{
	memset(p, 0, sizeof(*p));
	pressure_init(p);
}

static unsigned long logic_step(struct balloon_pressure *p, u64 now)
{
	unsigned long step;

	spin_lock_irq(&p->lock);
	pressure_expire(p, now);
	step = pressure_step(p, now);
	pressure_rest(p, now);
	p->seen = true;
	p->last = now;
	spin_unlock_irq(&p->lock);
	return step;
}

static void logic_oom_step_doubles(struct kunit *test)
{
	struct balloon_pressure p;
	unsigned long mib = SZ_1M >> PAGE_SHIFT;
	u64 now = 1000;

	logic_pressure_begin(&p);
	KUNIT_EXPECT_EQ(test, logic_step(&p, now), 2 * mib);
	KUNIT_EXPECT_EQ(test, logic_step(&p, ++now), 4 * mib);
	KUNIT_EXPECT_EQ(test, logic_step(&p, ++now), 8 * mib);
	KUNIT_EXPECT_EQ(test, logic_step(&p, ++now), 16 * mib);
	KUNIT_EXPECT_EQ(test, logic_step(&p, ++now), 32 * mib);
	KUNIT_EXPECT_EQ(test, logic_step(&p, ++now), 64 * mib);
	KUNIT_EXPECT_EQ(test, logic_step(&p, ++now), 64 * mib);
}

static void logic_oom_step_begins_anew(struct kunit *test)
{
	struct balloon_pressure p;
	unsigned long mib = SZ_1M >> PAGE_SHIFT;

	logic_pressure_begin(&p);
	logic_step(&p, 1000);
	KUNIT_EXPECT_EQ(test, logic_step(&p, 1000 + 10 * HZ), 4 * mib);
	KUNIT_EXPECT_EQ(test, logic_step(&p, 1000 + 20 * HZ + 1), 2 * mib);
}

static void logic_rest_is_10_s_at_first(struct kunit *test)
{
	struct balloon_pressure p;

	logic_pressure_begin(&p);
	logic_step(&p, 1000);
	KUNIT_EXPECT_TRUE(test, p.resting);
	KUNIT_EXPECT_EQ(test, p.until, 1000ULL + 10 * HZ);
	KUNIT_EXPECT_TRUE(test, p.gentle);
}

/* A rest is as long, counted from the last call. */
static void logic_rest_is_drawn_out(struct kunit *test)
{
	struct balloon_pressure p;

	logic_pressure_begin(&p);
	logic_step(&p, 1000);
	logic_step(&p, 1000 + 5 * HZ);
	KUNIT_EXPECT_EQ(test, p.until, 1000ULL + 15 * HZ);
	KUNIT_EXPECT_EQ(test, p.length, 10ULL * HZ);
}

static void logic_rest_doubles_to_5_min(struct kunit *test)
{
	static const unsigned int seconds[] = { 10, 20, 40, 80, 160, 300, 300 };
	struct balloon_pressure p;
	unsigned int i;
	u64 now = 1000;

	logic_pressure_begin(&p);
	for (i = 0; i < ARRAY_SIZE(seconds); i++) {
		logic_step(&p, now);
		KUNIT_EXPECT_EQ(test, p.until, now + seconds[i] * HZ);
		now = p.until + 1;
	}
	now = p.until + 301 * HZ;
	logic_step(&p, now);
	KUNIT_EXPECT_EQ_MSG(test, p.until, now + 10 * HZ,
			    "a quiet time does not make the rest short again");
}

static void logic_rest_ends(struct kunit *test)
{
	struct balloon_pressure p;

	logic_pressure_begin(&p);
	logic_step(&p, 1000);
	spin_lock_irq(&p.lock);
	KUNIT_EXPECT_FALSE(test, pressure_expire(&p, 1000 + 10 * HZ - 1));
	KUNIT_EXPECT_TRUE(test, p.resting);
	KUNIT_EXPECT_TRUE(test, pressure_expire(&p, 1000 + 10 * HZ));
	KUNIT_EXPECT_FALSE(test, p.resting);
	KUNIT_EXPECT_FALSE(test, pressure_expire(&p, 1000 + 20 * HZ));
	spin_unlock_irq(&p.lock);
}

/* --- Statistics -------------------------------------------------------- */

static void logic_stats_ascend(struct kunit *test)
{
	unsigned int i;

	for (i = 1; i < ARRAY_SIZE(stat_table); i++)
		KUNIT_EXPECT_LT(test, stat_table[i - 1].tag, stat_table[i].tag);
}

static void logic_stats_subset(struct kunit *test)
{
	unsigned int all, ten;
	bool before = first_ten_stats;

	first_ten_stats = false;
	all = stats_count();
	first_ten_stats = true;
	ten = stats_count();
	first_ten_stats = before;
	KUNIT_EXPECT_EQ(test, all, ARRAY_SIZE(stat_table));
	KUNIT_EXPECT_LE(test, ten, 10);
	KUNIT_EXPECT_LE(test, stat_table[ten - 1].tag, VIRTIO_BALLOON_S_HTLB_PGFAIL);
	KUNIT_EXPECT_GT(test, stat_table[ten].tag, VIRTIO_BALLOON_S_HTLB_PGFAIL);
}

/* --- Packing ----------------------------------------------------------- */

/**
 * struct logic_pack - a batch without a device
 * @vb: enough of a driver for packing
 * @vdev: its device: only the byte order counts
 * @batch: what is packed into
 */
struct logic_pack {
	struct virtio_balloon *vb;
	struct virtio_device *vdev;
	struct balloon_batch batch;
};

static void logic_pack_free(void *data)
{
	struct logic_pack *pack = data;
	unsigned int i;

	for (i = 0; i < pack->batch.nr_requests; i++)
		chunks_put(&pack->batch.requests[i].pages);
	batch_free(&pack->batch);
}

static struct logic_pack *logic_pack_new(struct kunit *test,
					 unsigned int nr_requests,
					 unsigned int wire)
{
	struct logic_pack *pack = kunit_kzalloc(test, sizeof(*pack), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, pack);
	pack->vb = kunit_kzalloc(test, sizeof(*pack->vb), GFP_KERNEL);
	pack->vdev = kunit_kzalloc(test, sizeof(*pack->vdev), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, pack->vb);
	KUNIT_ASSERT_NOT_NULL(test, pack->vdev);
	pack->vb->vdev = pack->vdev;
	pack->batch.inflating = true;
	KUNIT_ASSERT_EQ(test, batch_alloc(&pack->batch, nr_requests, wire), 0);
	KUNIT_ASSERT_EQ(test, kunit_add_action_or_reset(test, logic_pack_free,
							pack), 0);
	return pack;
}

static void logic_add_chunk(struct kunit *test, struct list_head *chunks,
			    unsigned int order)
{
	struct page *page = chunk_alloc(order, true);

	KUNIT_ASSERT_NOT_NULL(test, page);
	KUNIT_EXPECT_EQ(test, chunk_order(page), order);
	list_add(&page->lru, chunks);
}

/* S39, F15: little-endian as the spec says, the guest's own order of old. */
static void logic_pfns_in_byte_order(struct kunit *test)
{
	struct logic_pack *pack = logic_pack_new(test, 2, WIRE_PER_PAGE);
	struct balloon_request *req = pack->batch.requests;
	struct page *page = alloc_page(GFP_KERNEL);
	u32 pfn;

	KUNIT_ASSERT_NOT_NULL(test, page);
	pfn = page_to_pfn(page) << WIRE_SHIFT;
	request_add_pfns(pack->vb, &req[0], page, 1);
	__virtio_set_bit(pack->vdev, VIRTIO_F_VERSION_1);
	request_add_pfns(pack->vb, &req[1], page, 1);
	__free_page(page);
	KUNIT_EXPECT_EQ(test, (__force u32)req[0].pfns[0], pfn);
	KUNIT_EXPECT_EQ(test, le32_to_cpu((__force __le32)req[1].pfns[0]), pfn);
	KUNIT_EXPECT_EQ(test, req[1].nr_wire, WIRE_PER_PAGE);
	KUNIT_EXPECT_EQ(test, le32_to_cpu((__force __le32)req[1].pfns[WIRE_PER_PAGE - 1]),
			pfn + WIRE_PER_PAGE - 1);
}

static unsigned long logic_pages(struct list_head *chunks)
{
	unsigned long pages = 0;
	struct page *page;

	list_for_each_entry(page, chunks, lru)
		pages += BIT(chunk_order(page));
	return pages;
}

static void logic_expect_ascending(struct kunit *test, struct logic_pack *pack)
{
	struct balloon_batch *b = &pack->batch;
	u32 last = 0;
	unsigned int i, k;

	for (i = 0; i < b->used; i++) {
		struct balloon_request *req = &b->requests[i];

		KUNIT_EXPECT_GT(test, req->nr_wire, 0);
		KUNIT_EXPECT_LE(test, req->nr_wire, b->request_wire);
		KUNIT_EXPECT_EQ(test, req->nr_wire, pages_to_wire(req->nr_pages));
		KUNIT_EXPECT_EQ(test, req->nr_pages, logic_pages(&req->pages));
		for (k = 0; k < req->nr_wire; k++) {
			u32 pfn = virtio32_to_cpu(pack->vdev, req->pfns[k]);

			KUNIT_EXPECT_GT(test, pfn, last);
			last = pfn;
		}
	}
}

/* Chunks that come in any order: what is sent ascends, over all of the batch. */
static void logic_pack_ascends(struct kunit *test)
{
	struct logic_pack *pack = logic_pack_new(test, 32, REQUEST_WIRE_MIN);
	LIST_HEAD(chunks);
	unsigned int i;

	for (i = 0; i < 20; i++)
		logic_add_chunk(test, &chunks, i % 8);
	batch_pack(pack->vb, &pack->batch, &chunks);
	KUNIT_EXPECT_TRUE(test, list_empty(&chunks));
	logic_expect_ascending(test, pack);
}

/* A host page may lie in a chunk: it stands in one request, if one can hold it. */
static void logic_chunk_is_in_one_request(struct kunit *test)
{
	struct logic_pack *pack = logic_pack_new(test, 32, REQUEST_WIRE_MIN);
	unsigned int order = ilog2(128 / WIRE_PER_PAGE);
	LIST_HEAD(chunks);
	unsigned int i;

	logic_add_chunk(test, &chunks, 0);
	for (i = 0; i < 10; i++)
		logic_add_chunk(test, &chunks, order);
	logic_add_chunk(test, &chunks, 0);
	batch_pack(pack->vb, &pack->batch, &chunks);
	logic_expect_ascending(test, pack);
	for (i = 0; i < pack->batch.used; i++) {
		struct balloon_request *req = &pack->batch.requests[i];
		u32 last = virtio32_to_cpu(pack->vdev, req->pfns[req->nr_wire - 1]);
		struct page *page = pfn_to_page(last >> WIRE_SHIFT);

		/* The end of a request is the end of a chunk, or a single page. */
		KUNIT_EXPECT_TRUE(test, req->nr_wire % 128 <= 2 * WIRE_PER_PAGE);
		KUNIT_EXPECT_TRUE(test, IS_ALIGNED(page_to_pfn(page) + 1, BIT(order)) ||
				  req->nr_wire % 128);
	}
}

/* With 512 PFNs a block is one request, with 256 it begins a new one and is two. */
static void logic_block_in_requests(struct kunit *test)
{
	static const unsigned int wire[] = { REQUEST_WIRE_MIN, REQUEST_WIRE_BLOCK };
	unsigned int i, k;

	for (i = 0; i < ARRAY_SIZE(wire); i++) {
		struct logic_pack *pack = logic_pack_new(test, 16, wire[i]);
		LIST_HEAD(chunks);

		for (k = 0; k < 2; k++)
			logic_add_chunk(test, &chunks, BLOCK_ORDER);
		batch_pack(pack->vb, &pack->batch, &chunks);
		KUNIT_EXPECT_EQ(test, pack->batch.used, 2 * REQUEST_WIRE_BLOCK / wire[i]);
		KUNIT_EXPECT_EQ(test, pack->batch.blocks, 2);
		logic_expect_ascending(test, pack);
		for (k = 0; k < pack->batch.used; k++) {
			u32 pfn = virtio32_to_cpu(pack->vdev,
						  pack->batch.requests[k].pfns[0]);

			KUNIT_EXPECT_EQ(test, pack->batch.requests[k].nr_wire, wire[i]);
			KUNIT_EXPECT_TRUE(test, IS_ALIGNED(pfn, wire[i]));
		}
	}
}

/* Twice the requests of a full batch are enough for the worst mixture. */
static void logic_pack_worst_case(struct kunit *test)
{
	struct logic_pack *pack = logic_pack_new(test, 8, REQUEST_WIRE_MIN);
	unsigned int order = ilog2(128 / WIRE_PER_PAGE);
	LIST_HEAD(chunks);
	unsigned int i, wire = 0;

	/* A full batch is half the requests: 4 * 256. */
	while (wire + 256 + WIRE_PER_PAGE <= 4 * 256) {
		logic_add_chunk(test, &chunks, order + 1);
		logic_add_chunk(test, &chunks, 0);
		wire += 256 + WIRE_PER_PAGE;
	}
	for (i = 0; i < 7 && wire + 128 <= 4 * 256; i++, wire += 128)
		logic_add_chunk(test, &chunks, order);
	batch_pack(pack->vb, &pack->batch, &chunks);
	KUNIT_EXPECT_TRUE(test, list_empty(&chunks));
	logic_expect_ascending(test, pack);
}

/* --- Pace and back-off ------------------------------------------------- */

static void logic_batch_pace(struct kunit *test)
{
	struct logic_pack *pack = logic_pack_new(test, 1, REQUEST_WIRE_MIN);
	struct virtio_balloon *vb = pack->vb;

	vb->batch_max = 16 * BLOCK_PAGES;
	vb->batch_pages = vb->batch_max;
	vb->batch.took_ns = 21 * NSEC_PER_MSEC;
	batch_pace(vb, &vb->batch);
	KUNIT_EXPECT_EQ(test, vb->batch_pages, 8 * BLOCK_PAGES);
	vb->batch.took_ns = 15 * NSEC_PER_MSEC;
	batch_pace(vb, &vb->batch);
	KUNIT_EXPECT_EQ(test, vb->batch_pages, 8 * BLOCK_PAGES);
	vb->batch.took_ns = 30 * NSEC_PER_SEC;
	for (int i = 0; i < 10; i++)
		batch_pace(vb, &vb->batch);
	KUNIT_EXPECT_EQ(test, vb->batch_pages, BLOCK_PAGES);
	vb->batch.took_ns = 0;
	for (int i = 0; i < 10; i++)
		batch_pace(vb, &vb->batch);
	KUNIT_EXPECT_EQ(test, vb->batch_pages, vb->batch_max);
}

static void logic_backoff(struct kunit *test)
{
	static const unsigned int ms[] = { 200, 400, 800, 1600, 3200, 5000, 5000 };
	struct logic_pack *pack = logic_pack_new(test, 1, REQUEST_WIRE_MIN);
	unsigned int i;

	pack->vb->short_said = true;
	for (i = 0; i < ARRAY_SIZE(ms); i++)
		KUNIT_EXPECT_EQ(test, jiffies_to_msecs(size_backoff(pack->vb)), ms[i]);
}

static struct kunit_case logic_cases[] = {
	KUNIT_CASE(logic_wire_and_pages),
	KUNIT_CASE(logic_target_rounds_up),
	KUNIT_CASE(logic_target_does_not_wrap),
	KUNIT_CASE(logic_target_at_page_sizes),
	KUNIT_CASE(logic_wide_pfns_do_not_fit),
	KUNIT_CASE(logic_block_is_2_mib),
	KUNIT_CASE(logic_deflate_slots),
	KUNIT_CASE(logic_oom_step_doubles),
	KUNIT_CASE(logic_oom_step_begins_anew),
	KUNIT_CASE(logic_rest_is_10_s_at_first),
	KUNIT_CASE(logic_rest_is_drawn_out),
	KUNIT_CASE(logic_rest_doubles_to_5_min),
	KUNIT_CASE(logic_rest_ends),
	KUNIT_CASE(logic_stats_ascend),
	KUNIT_CASE(logic_stats_subset),
	KUNIT_CASE(logic_pfns_in_byte_order),
	KUNIT_CASE(logic_pack_ascends),
	KUNIT_CASE(logic_chunk_is_in_one_request),
	KUNIT_CASE(logic_block_in_requests),
	KUNIT_CASE(logic_pack_worst_case),
	KUNIT_CASE(logic_batch_pace),
	KUNIT_CASE(logic_backoff),
	{}
};

static struct kunit_suite logic_suite = {
	.name = "virtio_balloon_logic",
	.test_cases = logic_cases,
};

#include "virtio_balloon_devices.c"
#include "virtio_balloon_odd.c"

kunit_test_suites(&logic_suite, &devices_suite, &odd_suite);
