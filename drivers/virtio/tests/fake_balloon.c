// SPDX-License-Identifier: GPL-2.0
/*
 * The fake balloon device; what it is for is told in the header.
 */
#include "fake_balloon.h"

#define FAKE_MAGIC	0x6e6f6f6c6c6162ULL

/* --- Blame ------------------------------------------------------------- */

/**
 * fake_blame() - note a rule that the driver has broken
 * @fake: the device
 * @fmt: the rule's number, and what the driver did
 *
 * Context: any.
 */
static __printf(2, 3) void fake_blame(struct fake_balloon *fake,
				      const char *fmt, ...)
{
	unsigned long flags;
	va_list args;

	spin_lock_irqsave(&fake->blame_lock, flags);
	if (fake->nr_blames < ARRAY_SIZE(fake->blame)) {
		va_start(args, fmt);
		vsnprintf(fake->blame[fake->nr_blames],
			  sizeof(fake->blame[0]), fmt, args);
		va_end(args);
	}
	fake->nr_blames++;
	spin_unlock_irqrestore(&fake->blame_lock, flags);
}

#define fake_check(fake, rule_kept, ...)	\
	do {					\
		if (!(rule_kept))		\
			fake_blame(fake, __VA_ARGS__);	\
	} while (0)

/* What a test waited for: note that it did not come. */
static void fake_expect_came(struct fake_balloon *fake, bool came,
			     const char *what, int line)
{
	if (!came)
		KUNIT_FAIL(fake->test, "%s: line %d: this did not come: %s",
			   fake->like->name, line, what);
}

static void fake_assert_came(struct fake_balloon *fake, bool came,
			     const char *what, int line)
{
	fake_expect_came(fake, came, what, line);
	if (!came)
		KUNIT_FAIL_AND_ABORT(fake->test, "no use in going on");
}

/* --- Small things ------------------------------------------------------ */

static struct fake_balloon *to_fake(struct virtio_device *vdev)
{
	return container_of(vdev, struct fake_balloon, vdev);
}

static bool fake_is(struct fake_balloon *fake, enum fake_trait trait)
{
	return fake->like->traits & trait;
}

static bool fake_offers(struct fake_balloon *fake, unsigned int feature)
{
	return fake->like->offered & BIT_ULL(feature);
}

static bool fake_agreed(struct fake_balloon *fake, unsigned int feature)
{
	return __virtio_test_bit(&fake->vdev, feature);
}

static u16 fake_get16(struct fake_balloon *fake, __virtio16 value)
{
	return virtio16_to_cpu(&fake->vdev, value);
}

static __virtio16 fake_put16(struct fake_balloon *fake, u16 value)
{
	return cpu_to_virtio16(&fake->vdev, value);
}

static const char *fake_queue_name(const struct fake_queue *fq)
{
	static const char * const names[QUEUE_NR] = {
		"inflate", "deflate", "stats", "hint", "report",
	};

	return names[fq->role];
}

/* --- The books --------------------------------------------------------- */

static struct page *fake_page(struct fake_balloon *fake, u64 wire_pfn)
{
	u64 pfn = wire_pfn >> WIRE_SHIFT;

	if (pfn >= fake->nr_pages || !pfn_valid(pfn))
		return NULL;
	return pfn_to_page(pfn);
}

/* What the device has a claim on must not be free, or anybody else's. */
static bool fake_page_kept(struct page *page)
{
	return page_count(page) > 0 && !PageBuddy(page);
}

static u64 *fake_page_mark(struct page *page)
{
	return page_address(page);
}

/* The content of an announced page is the device's to change. */
static void fake_page_drop(struct fake_balloon *fake, struct page *page)
{
	*fake_page_mark(page) = FAKE_MAGIC ^ page_to_pfn(page);
	fake->nr_dropped++;
}

static void fake_page_announced(struct fake_balloon *fake, struct page *page)
{
	u8 *state = &fake->pages[page_to_pfn(page)];

	fake_check(fake,
		   *state == FAKE_GUESTS ||
		   (fake->lax && *state == FAKE_RECALLED),
		   "S10: page %lx announced in state %u", page_to_pfn(page),
		   *state);
	fake_check(fake, fake_page_kept(page), "S10: free page %lx announced",
		   page_to_pfn(page));
	fake_check(fake, !fake->reported[page_to_pfn(page)],
		   "S32: page %lx announced while it is reported",
		   page_to_pfn(page));
	*state = FAKE_ANNOUNCED;
}

static void fake_page_taken(struct fake_balloon *fake, struct page *page)
{
	u8 *state = &fake->pages[page_to_pfn(page)];

	fake_check(fake, fake_page_kept(page),
		   "S10: page %lx freed before its inflation was answered",
		   page_to_pfn(page));
	if (*state == FAKE_ANNOUNCED) {
		*state = FAKE_HELD;
		fake->nr_held++;
	}
	fake->nr_inflated++;
}

static void fake_page_recalled(struct fake_balloon *fake, struct page *page)
{
	u8 *state = &fake->pages[page_to_pfn(page)];

	fake_check(fake, *state == FAKE_HELD,
		   "S11: page %lx recalled in state %u", page_to_pfn(page),
		   *state);
	fake_check(fake, fake_page_kept(page),
		   "S9: page %lx was free when it was recalled",
		   page_to_pfn(page));
	if (*state == FAKE_HELD)
		fake->nr_held--;
	*state = FAKE_RECALLED;
}

static void fake_page_returned(struct fake_balloon *fake, struct page *page)
{
	u8 *state = &fake->pages[page_to_pfn(page)];

	if (!fake->lax) {
		fake_check(fake, fake_page_kept(page),
			   "S9: page %lx freed before its deflation was answered",
			   page_to_pfn(page));
		fake_check(fake,
			   *fake_page_mark(page) == (FAKE_MAGIC ^ page_to_pfn(page)),
			   "S9: page %lx used before its deflation was answered",
			   page_to_pfn(page));
	}
	if (*state == FAKE_RECALLED)
		*state = FAKE_GUESTS;
	fake->nr_deflated++;
}

/**
 * fake_check_claims() - look for pages that were freed behind the device's back
 * @fake: the device
 */
static void fake_check_claims(struct fake_balloon *fake)
{
	unsigned long pfn;

	mutex_lock(&fake->busy);
	for (pfn = 0; pfn < fake->nr_pages; pfn++) {
		if (fake->pages[pfn] == FAKE_GUESTS ||
		    (fake->lax && fake->pages[pfn] == FAKE_RECALLED))
			continue;
		fake_check(fake, fake_page_kept(pfn_to_page(pfn)),
			   "S9: page %lx is free, and the device's (state %u)",
			   pfn, fake->pages[pfn]);
	}
	mutex_unlock(&fake->busy);
}

/* --- Requests for inflation and deflation ------------------------------ */

typedef void (*fake_page_fn)(struct fake_balloon *fake, struct page *page);

/* Calls a function for each whole page of a request. */
static void fake_for_pages(struct fake_balloon *fake, struct fake_request *req,
			   fake_page_fn fn)
{
	const __virtio32 *pfns = req->buf[0].data;
	unsigned int i;

	for (i = 0; i < req->buf[0].len / sizeof(*pfns); i += WIRE_PER_PAGE) {
		struct page *page;

		page = fake_page(fake, virtio32_to_cpu(&fake->vdev, pfns[i]));
		if (page)
			fn(fake, page);
	}
}

static unsigned int fake_pfn_limit(struct fake_balloon *fake)
{
	return fake_offers(fake, VIRTIO_RING_F_INDIRECT_DESC) ? 512 : 256;
}

static bool fake_request_sound(struct fake_queue *fq, struct fake_request *req)
{
	struct fake_balloon *fake = fq->fake;
	const struct fake_buffer *buf = &req->buf[0];
	unsigned int nr = buf->len / sizeof(__virtio32);

	fake_check(fake, req->nr == 1, "V1: %s: a chain of %u descriptors",
		   fake_queue_name(fq), req->nr);
	fake_check(fake, !buf->writable, "V1: %s: the device may write",
		   fake_queue_name(fq));
	fake_check(fake, nr && !(buf->len % sizeof(__virtio32)),
		   "V1: %s: %u bytes", fake_queue_name(fq), buf->len);
	fake_check(fake, nr <= fake_pfn_limit(fake), "V1: %s: %u PFNs",
		   fake_queue_name(fq), nr);
	fake_check(fake, offset_in_page(buf->data) + buf->len <= PAGE_SIZE,
		   "V1: %s: across pages", fake_queue_name(fq));
	return nr && !buf->writable;
}

/* Whole pages, ascending, that are there. */
static void fake_check_pfns(struct fake_queue *fq, struct fake_request *req)
{
	struct fake_balloon *fake = fq->fake;
	const __virtio32 *pfns = req->buf[0].data;
	unsigned int i, nr = req->buf[0].len / sizeof(*pfns);

	for (i = 0; i < nr; i++) {
		u32 pfn = virtio32_to_cpu(&fake->vdev, pfns[i]);

		fake_check(fake, fake_page(fake, pfn), "S8: %s: no PFN %x",
			   fake_queue_name(fq), pfn);
		fake_check(fake, pfn % WIRE_PER_PAGE == i % WIRE_PER_PAGE,
			   "V2: %s: a page is torn at %x", fake_queue_name(fq),
			   pfn);
		fake_check(fake, !i || virtio32_to_cpu(&fake->vdev, pfns[i - 1]) < pfn,
			   "V2: %s: %x does not ascend", fake_queue_name(fq),
			   pfn);
		if (!i && pfn < fq->last_pfn)
			fake->nr_disorder++;
		fq->last_pfn = pfn;
	}
}

static void fake_see_pfns(struct fake_queue *fq, struct fake_request *req)
{
	struct fake_balloon *fake = fq->fake;
	unsigned int nr = req->buf[0].len / sizeof(__virtio32);

	if (!fake_request_sound(fq, req)) {
		req->lost = true;
		return;
	}
	if (fq->role == QUEUE_INFLATE && fq->nr_seen == 1)
		fake->reported_first = fake->nr_reported;
	fake_check_pfns(fq, req);
	if (fake->like->loses_above && nr > fake->like->loses_above)
		req->lost = true;
	fake_check(fake, !fake->like->skips_above || nr <= fake->like->skips_above,
		   "V1: %s: %u PFNs, some are lost", fake_queue_name(fq), nr);
	fake_for_pages(fake, req, fq->role == QUEUE_INFLATE ?
		       fake_page_announced : fake_page_recalled);
	if (fq->role == QUEUE_INFLATE && !fake_is(fake, FAKE_USED_FIRST))
		fake_for_pages(fake, req, fake_page_drop);
}

/* By then the buffer is the driver's again. */
static void fake_remember(struct fake_balloon *fake, struct fake_request *req)
{
	const __virtio32 *pfns = req->buf[0].data;
	unsigned int i;

	fake->nr_late = min(req->buf[0].len / sizeof(*pfns), ARRAY_SIZE(fake->late));
	for (i = 0; i < fake->nr_late; i++)
		fake->late[i] = virtio32_to_cpu(&fake->vdev, pfns[i]);
}

static void fake_drop_late(struct fake_balloon *fake, struct page *page)
{
	fake_check(fake,
		   fake_page_kept(page) &&
		   fake->pages[page_to_pfn(page)] != FAKE_GUESTS,
		   "V6: page %lx freed and not told before", page_to_pfn(page));
	fake_page_drop(fake, page);
}

static void fake_drop_remembered(struct fake_balloon *fake)
{
	unsigned int i;

	for (i = 0; i < fake->nr_late; i += WIRE_PER_PAGE)
		fake_drop_late(fake, fake_page(fake, fake->late[i]));
}

/* --- Statistics -------------------------------------------------------- */

static void fake_see_stat(struct fake_balloon *fake,
			  const struct virtio_balloon_stat *stat, int *last)
{
	u16 tag = fake_get16(fake, stat->tag);

	fake_check(fake, tag < VIRTIO_BALLOON_S_NR, "S16: tag %u", tag);
	fake_check(fake, tag > *last, "V10: tag %u after %d", tag, *last);
	*last = tag;
	if (tag >= VIRTIO_BALLOON_S_NR)
		return;
	fake->stat[tag] = virtio64_to_cpu(&fake->vdev, stat->val);
	if (fake->like->stats_tag_max && tag > fake->like->stats_tag_max)
		fake->stats_dead = true;
}

static void fake_see_stats(struct fake_queue *fq, struct fake_request *req)
{
	struct fake_balloon *fake = fq->fake;
	const struct virtio_balloon_stat *stat = req->buf[0].data;
	unsigned int i, nr = req->buf[0].len / 10;
	u32 tags = 0;
	int last = -1;

	fake_check(fake, sizeof(*stat) == 10, "S17: an entry of %zu bytes",
		   sizeof(*stat));
	fake_check(fake, req->nr == 1 && !req->buf[0].writable,
		   "V10: statistics in %u descriptors", req->nr);
	fake_check(fake, nr && !(req->buf[0].len % 10), "S17: %u bytes",
		   req->buf[0].len);
	fake_check(fake, fq->nr_pending == 1, "S13: %u buffers outstanding",
		   fq->nr_pending);
	for (i = 0; i < nr; i++, last >= 0 ? tags |= BIT(last) : 0)
		fake_see_stat(fake, &stat[i], &last);
	fake_check(fake, !fake->stat_tags || fake->stat_tags == tags,
		   "S18: tags %x, then %x", fake->stat_tags, tags);
	fake->stat_tags = tags;
	fake->nr_stats++;
}

/* --- Hints ------------------------------------------------------------- */

static void fake_see_command(struct fake_balloon *fake,
			     const struct fake_buffer *buf)
{
	u32 id;

	fake_check(fake, buf->len == 4, "S19: a command of %u bytes", buf->len);
	if (buf->len < 4)
		return;
	id = virtio32_to_cpu(&fake->vdev, *(const __virtio32 *)buf->data);
	if (id == VIRTIO_BALLOON_CMD_ID_STOP) {
		fake_check(fake, fake->hinting, "S24: STOP without a run");
		fake->hinting = false;
		fake->nr_hint_stops++;
		return;
	}
	fake_check(fake, id > VIRTIO_BALLOON_CMD_ID_DONE, "S20: id %u sent", id);
	fake_check(fake, !fake->nr_hint_starts || id != fake->hint_id,
		   "S21: id %u sent twice", id);
	fake_check(fake, !fake->hinting, "S24: no STOP before id %u", id);
	fake->hinting = true;
	fake->hint_id = id;
	fake->nr_hint_starts++;
}

static void fake_see_block(struct fake_balloon *fake,
			   const struct fake_buffer *buf)
{
	struct page *page = virt_to_page(buf->data);

	fake_check(fake, fake->hinting, "S20: a hinted block outside a run");
	fake_check(fake,
		   buf->len == BLOCK_BYTES &&
		   IS_ALIGNED(page_to_pfn(page), BLOCK_PAGES),
		   "V12: a hint of %u bytes at %lx", buf->len,
		   page_to_pfn(page));
	fake_check(fake, fake_page_kept(page), "V12: free memory hinted at %lx",
		   page_to_pfn(page));
	fake->nr_hinted++;
}

static void fake_see_hint(struct fake_queue *fq, struct fake_request *req)
{
	fake_check(fq->fake, req->nr == 1, "V12: a hint of %u descriptors",
		   req->nr);
	if (req->buf[0].writable)
		fake_see_block(fq->fake, &req->buf[0]);
	else
		fake_see_command(fq->fake, &req->buf[0]);
}

static void fake_hint_done(struct fake_queue *fq, struct fake_request *req)
{
	struct page *page;

	if (!req->buf[0].writable)
		return;
	page = virt_to_page(req->buf[0].data);
	fake_check(fq->fake, fake_page_kept(page),
		   "V12: a hinted block was freed unanswered at %lx",
		   page_to_pfn(page));
	/* Discarded: nobody else may have it yet. */
	*fake_page_mark(page) = 0;
}

/* --- Reports ----------------------------------------------------------- */

static void fake_see_report(struct fake_queue *fq, struct fake_request *req)
{
	struct fake_balloon *fake = fq->fake;
	unsigned int i;

	fake_check(fake, req->nr <= PAGE_REPORTING_CAPACITY,
		   "V13: a report of %u entries", req->nr);
	fake->nr_reports++;
	for (i = 0; i < req->nr; i++) {
		const struct fake_buffer *buf = &req->buf[i];
		unsigned long pfn = page_to_pfn(virt_to_page(buf->data));

		fake_check(fake, buf->writable, "V13: a report to be read");
		fake_check(fake,
			   buf->len >= BLOCK_BYTES &&
			   is_power_of_2(buf->len) &&
			   IS_ALIGNED(pfn, buf->len >> PAGE_SHIFT),
			   "V13: %u bytes reported at %lx", buf->len, pfn);
		fake_check(fake, !PageBuddy(pfn_to_page(pfn)),
			   "S32: free memory reported at %lx", pfn);
		memset(&fake->reported[pfn], 1, buf->len >> PAGE_SHIFT);
		fake->nr_reported += buf->len >> PAGE_SHIFT;
	}
}

/*
 * The core's pages have no user, those of the driver one: what both must not be
 * is free for others to take.
 */
static void fake_report_done(struct fake_queue *fq, struct fake_request *req)
{
	unsigned int i;

	for (i = 0; i < req->nr; i++) {
		struct page *page = virt_to_page(req->buf[i].data);

		fake_check(fq->fake, !PageBuddy(page),
			   "S32: reported memory was free unanswered at %lx",
			   page_to_pfn(page));
		memset(&fq->fake->reported[page_to_pfn(page)], 0,
		       req->buf[i].len >> PAGE_SHIFT);
	}
}

/* --- The rings --------------------------------------------------------- */

static u32 fake_sum(const struct fake_request *req)
{
	unsigned int i, k;
	u32 sum = req->nr;

	for (i = 0; i < req->nr; i++) {
		const u8 *data = req->buf[i].data;

		for (k = 0; !req->buf[i].writable && k < req->buf[i].len; k++)
			sum = sum * 31 + data[k];
	}
	return sum;
}

/* Reads a chain; says whether the device can make anything of it. */
static bool fake_read_chain(struct fake_queue *fq, struct fake_request *req)
{
	struct fake_balloon *fake = fq->fake;
	unsigned int i = req->head;

	for (req->nr = 0; req->nr < ARRAY_SIZE(req->buf); req->nr++) {
		const struct vring_desc *desc = &fq->vring.desc[i];
		u64 addr = virtio64_to_cpu(&fake->vdev, desc->addr);
		u16 flags = fake_get16(fake, desc->flags);
		struct fake_buffer *buf = &req->buf[req->nr];

		if (flags & VRING_DESC_F_INDIRECT) {
			fake_blame(fake, "V1: %s: an indirect descriptor",
				   fake_queue_name(fq));
			return false;
		}
		buf->data = phys_to_virt(addr);
		buf->len = virtio32_to_cpu(&fake->vdev, desc->len);
		buf->writable = flags & VRING_DESC_F_WRITE;
		if (!virt_addr_valid(buf->data)) {
			fake_blame(fake, "V1: %s: no memory at %llx",
				   fake_queue_name(fq), addr);
			return false;
		}
		if (!(flags & VRING_DESC_F_NEXT)) {
			req->nr++;
			return true;
		}
		i = fake_get16(fake, desc->next) % fq->vring.num;
	}
	fake_blame(fake, "V13: %s: an endless chain", fake_queue_name(fq));
	return false;
}

static void (* const fake_see[QUEUE_NR])(struct fake_queue *fq,
					 struct fake_request *req) = {
	[QUEUE_INFLATE] = fake_see_pfns,
	[QUEUE_DEFLATE] = fake_see_pfns,
	[QUEUE_STATS] = fake_see_stats,
	[QUEUE_HINT] = fake_see_hint,
	[QUEUE_REPORT] = fake_see_report,
};

static void fake_take(struct fake_queue *fq, u16 head)
{
	struct fake_balloon *fake = fq->fake;
	struct fake_request *req;

	if (head >= fq->vring.num) {
		fake_blame(fake, "ring: %s: head %u", fake_queue_name(fq), head);
		return;
	}
	req = &fq->request[head];
	fake_check(fake, !req->busy, "ring: %s: head %u is in use",
		   fake_queue_name(fq), head);
	if (req->busy)
		return;
	req->head = head;
	req->busy = true;
	req->lost = false;
	list_add_tail(&req->node, &fq->pending);
	fq->nr_pending++;
	fq->nr_seen++;
	if (fake_read_chain(fq, req))
		fake_see[fq->role](fq, req);
	else
		req->lost = true;
	req->sum = fake_sum(req);
}

/* Takes what is new in the ring; says whether there was anything. */
static bool fake_pull(struct fake_queue *fq)
{
	struct fake_balloon *fake = fq->fake;
	u16 avail = fake_get16(fake, READ_ONCE(fq->vring.avail->idx));
	bool any = fq->seen != avail;

	/* The index before what it counts; pairs with the ring's own barrier. */
	virt_rmb();
	while (fq->seen != avail) {
		u16 slot = fq->seen++ % fq->vring.num;

		fake_take(fq, fake_get16(fake, fq->vring.avail->ring[slot]));
	}
	if (fake_agreed(fake, VIRTIO_RING_F_EVENT_IDX))
		vring_avail_event(&fq->vring) = fake_put16(fake, fq->seen);
	/* The driver looks at that after its index: the caller looks again. */
	virt_mb();
	return any;
}

static void fake_raise(struct fake_queue *fq)
{
	unsigned long flags;

	local_irq_save(flags);
	vring_interrupt(0, fq->vq);
	local_irq_restore(flags);
}

/* The ring's own code would not pass on an interrupt that means nothing. */
static void fake_raise_idle(struct fake_queue *fq)
{
	unsigned long flags;

	local_irq_save(flags);
	fq->vq->callback(fq->vq);
	local_irq_restore(flags);
}

/* Whether the driver wants to hear of the answers since @old. */
static bool fake_wanted(struct fake_queue *fq, u16 old)
{
	struct fake_balloon *fake = fq->fake;

	/* What was used before whether that is wanted; pairs with the ring's. */
	virt_mb();
	if (fake_agreed(fake, VIRTIO_RING_F_EVENT_IDX))
		return vring_need_event(fake_get16(fake, vring_used_event(&fq->vring)),
					fq->used, old);
	return !(fq->vring.avail->flags &
		 fake_put16(fake, VRING_AVAIL_F_NO_INTERRUPT));
}

static void fake_push(struct fake_queue *fq, u16 head)
{
	struct fake_balloon *fake = fq->fake;
	struct vring_used_elem *elem;

	elem = &fq->vring.used->ring[fq->used % fq->vring.num];
	elem->id = cpu_to_virtio32(&fake->vdev, head);
	elem->len = cpu_to_virtio32(&fake->vdev,
				    fake_is(fake, FAKE_GARBAGE_LEN) ?
				    0xdeadbeef : 0);
	/* The entry before the index that counts it; pairs with the ring's. */
	virt_wmb();
	WRITE_ONCE(fq->vring.used->idx, fake_put16(fake, ++fq->used));
}

/* What an answer means for the books. */
static void fake_settle(struct fake_queue *fq, struct fake_request *req)
{
	struct fake_balloon *fake = fq->fake;

	fake_check(fake, req->sum == fake_sum(req),
		   "%s: the driver wrote to a buffer of the device's",
		   fake_queue_name(fq));
	switch (fq->role) {
	case QUEUE_INFLATE:
		fake_for_pages(fake, req, fake_page_taken);
		break;
	case QUEUE_DEFLATE:
		fake_for_pages(fake, req, fake_page_returned);
		break;
	case QUEUE_HINT:
		fake_hint_done(fq, req);
		break;
	case QUEUE_REPORT:
		fake_report_done(fq, req);
		break;
	default:
		break;
	}
}

static void fake_answer(struct fake_queue *fq, struct fake_request *req)
{
	struct fake_balloon *fake = fq->fake;
	bool late = fq->role == QUEUE_INFLATE && fake_is(fake, FAKE_USED_FIRST);
	u16 old = fq->used;

	if (fake->like->delay_ms)
		msleep(fake->like->delay_ms);
	fake_settle(fq, req);
	if (late)
		fake_remember(fake, req);
	list_del_init(&req->node);
	req->busy = false;
	fq->nr_pending--;
	fq->nr_answered++;
	if (fake->rations[fq->role] && !--fake->rations[fq->role])
		fake->withheld |= BIT(fq->role);
	fake_push(fq, req->head);
	if (fake_is(fake, FAKE_TWICE) && fq->nr_answered == 3)
		fake_push(fq, req->head);
	if (late) {
		if (fake_wanted(fq, old))
			fake_raise(fq);
		msleep(20);
		fake_drop_remembered(fake);
	}
}

/* The request to answer next, or NULL. */
static struct fake_request *fake_choose(struct fake_queue *fq)
{
	struct fake_request *req, *found = NULL;
	unsigned int nth = 0;

	if (fake_is(fq->fake, FAKE_SHUFFLES))
		nth = (fq->nr_answered * 7) % max(fq->nr_pending, 1U);
	list_for_each_entry(req, &fq->pending, node) {
		if (req->lost)
			continue;
		found = req;
		if (!fake_is(fq->fake, FAKE_REVERSES) && !nth--)
			break;
	}
	return found;
}

static void fake_break(struct fake_balloon *fake)
{
	WRITE_ONCE(fake->broken, true);
	virtio_break_device(&fake->vdev);
}

/* Writes to the configuration as the host, and says so by an interrupt. */
static void fake_set_config(struct fake_balloon *fake, unsigned int offset,
			    u32 value)
{
	unsigned long flags;

	WRITE_ONCE(fake->config[offset / 4], cpu_to_le32(value));
	local_irq_save(flags);
	virtio_config_changed(&fake->vdev);
	local_irq_restore(flags);
}

/* What some devices do in the middle of a batch. */
static void fake_midway(struct fake_queue *fq)
{
	struct fake_balloon *fake = fq->fake;

	if (fq->role != QUEUE_INFLATE || fq->nr_answered != 5)
		return;
	if (fake_is(fake, FAKE_RETARGETS))
		fake_set_config(fake, 0, le32_to_cpu(fake->config[0]) / 2);
	if (fake_is(fake, FAKE_BREAKS))
		fake_break(fake);
}

static bool fake_withholds(struct fake_queue *fq)
{
	struct fake_balloon *fake = fq->fake;

	if (READ_ONCE(fake->broken) || fq->role == QUEUE_STATS ||
	    READ_ONCE(fake->withheld) & BIT(fq->role))
		return true;
	return fake_is(fake, FAKE_NEVER_ANSWERS) &&
	       (fq->role == QUEUE_INFLATE || fq->role == QUEUE_DEFLATE);
}

/* One pass over a queue: everything that is there, and then an interrupt. */
static void fake_pass(struct fake_queue *fq)
{
	struct fake_request *req;
	u16 old = fq->used;

	fq->last_pfn = 0;
	fake_pull(fq);
	while (!fake_withholds(fq) && (req = fake_choose(fq))) {
		u16 before = fq->used;

		fake_answer(fq, req);
		if (fake_is(fq->fake, FAKE_IRQ_EACH) && fake_wanted(fq, before))
			fake_raise(fq);
		fake_midway(fq);
	}
	if (fq->used != old && fake_wanted(fq, old))
		fake_raise(fq);
}

static bool fake_has_news(struct fake_queue *fq)
{
	u16 avail = fake_get16(fq->fake, READ_ONCE(fq->vring.avail->idx));
	struct fake_request *req = fake_choose(fq);

	return fq->seen != avail || (req && !fake_withholds(fq));
}

static void fake_serve(struct fake_queue *fq)
{
	struct fake_balloon *fake = fq->fake;

	lockdep_assert_held(&fake->busy);
	while (fq->vq && fake->status & VIRTIO_CONFIG_S_DRIVER_OK &&
	       !READ_ONCE(fake->broken) && fake_has_news(fq))
		fake_pass(fq);
	if (fake_is(fake, FAKE_IRQ_IDLE) && fq->vq)
		fake_raise_idle(fq);
}

static void fake_work_fn(struct kthread_work *work)
{
	struct fake_balloon *fake = container_of(work, struct fake_balloon,
						 work);
	enum balloon_queue_id role;

	for (role = 0; role < QUEUE_NR; role++) {
		mutex_lock(&fake->busy);
		fake_serve(&fake->queue[role]);
		mutex_unlock(&fake->busy);
	}
}

static bool fake_notify(struct virtqueue *vq)
{
	struct fake_balloon *fake = to_fake(vq->vdev);
	struct fake_queue *fq = &fake->queue[fake->roles[vq->index]];

	fq->nr_kicks++;
	fake_check(fake, fake->status & VIRTIO_CONFIG_S_DRIVER_OK,
		   "F19: the %s queue is used in status %x", fake_queue_name(fq),
		   fake->status);
	if (!fake_is(fake, FAKE_IN_KICK)) {
		kthread_queue_work(fake->thread, &fake->work);
		return true;
	}
	mutex_lock(&fake->busy);
	fake_serve(fq);
	mutex_unlock(&fake->busy);
	return true;
}

/* --- The transport ----------------------------------------------------- */

/* Which features a part of the configuration goes with. */
static bool fake_config_agreed(struct fake_balloon *fake, unsigned int offset)
{
	if (offset == offsetof(struct virtio_balloon_config, free_page_hint_cmd_id))
		return fake_agreed(fake, VIRTIO_BALLOON_F_FREE_PAGE_HINT);
	if (offset == offsetof(struct virtio_balloon_config, poison_val))
		return fake_agreed(fake, VIRTIO_BALLOON_F_PAGE_POISON);
	return offset < offsetof(struct virtio_balloon_config,
				 free_page_hint_cmd_id);
}

static void fake_check_access(struct fake_balloon *fake, unsigned int offset,
			      unsigned int len, const char *what)
{
	fake_check(fake, !in_interrupt() && !irqs_disabled(),
		   "F7: configuration %s in interrupt context", what);
	fake_check(fake, current != READ_ONCE(fake->no_config),
		   "F7: configuration %s by the OOM notifier", what);
	fake_check(fake, len == 4 && IS_ALIGNED(offset, 4),
		   "V8: %u bytes of configuration %s at %u", len, what, offset);
	fake_check(fake, offset + len <= fake->like->config_len,
		   "V9: configuration %s beyond its end at %u", what, offset);
	fake_check(fake, fake_config_agreed(fake, offset),
		   "V9: configuration %s at %u without its feature", what,
		   offset);
}

static void fake_get(struct virtio_device *vdev, unsigned int offset, void *buf,
		     unsigned int len)
{
	struct fake_balloon *fake = to_fake(vdev);

	fake_check_access(fake, offset, len, "read");
	fake_check(fake, offset != offsetof(struct virtio_balloon_config, actual),
		   "V5: actual is read back");
	memset(buf, 0, len);
	if (offset + len <= sizeof(fake->config))
		memcpy(buf, (u8 *)fake->config + offset, len);
}

static void fake_set(struct virtio_device *vdev, unsigned int offset,
		     const void *buf, unsigned int len)
{
	struct fake_balloon *fake = to_fake(vdev);

	fake_check_access(fake, offset, len, "written");
	if (offset + len > sizeof(fake->config) || len != 4)
		return;
	memcpy((u8 *)fake->config + offset, buf, len);
	if (offset == offsetof(struct virtio_balloon_config, poison_val)) {
		fake_check(fake, !(fake->status & VIRTIO_CONFIG_S_DRIVER_OK),
			   "S29: poison_val written to a ready device");
		fake->poison_set = true;
		return;
	}
	fake_check(fake, offset == offsetof(struct virtio_balloon_config, actual),
		   "V8: configuration written at %u", offset);
	WRITE_ONCE(fake->actual, le32_to_cpu(fake->config[1]));
	WRITE_ONCE(fake->nr_actual, fake->nr_actual + 1);
	if (fake_is(fake, FAKE_WRITES_ACTUAL))
		fake->config[1] = cpu_to_le32(12345);
}

static u8 fake_get_status(struct virtio_device *vdev)
{
	return to_fake(vdev)->status;
}

static u16 fake_avail(struct fake_queue *fq)
{
	return fake_get16(fq->fake, READ_ONCE(fq->vring.avail->idx));
}

/* Queues are counted over what is offered: all of that must be accepted. */
static void fake_check_features(struct fake_balloon *fake)
{
	const u64 queues = BIT_ULL(VIRTIO_BALLOON_F_STATS_VQ) |
			   BIT_ULL(VIRTIO_BALLOON_F_FREE_PAGE_HINT);
	u64 features = fake->vdev.features;
	u64 missing = fake->like->offered & ~features;

	fake_check(fake, !(features & ~fake->like->offered),
		   "features %llx accepted", features);
	fake_check(fake, !(missing & queues), "V7: features %llx declined",
		   missing);
	fake_check(fake, !(missing & BIT_ULL(VIRTIO_BALLOON_F_MUST_TELL_HOST)),
		   "S1: MUST_TELL_HOST declined");
	fake_check(fake, !fake_agreed(fake, VIRTIO_F_ACCESS_PLATFORM),
		   "V9: ACCESS_PLATFORM accepted");
	fake_check(fake, !fake_agreed(fake, VIRTIO_RING_F_INDIRECT_DESC),
		   "V1: INDIRECT_DESC accepted");
}

static void fake_check_ready(struct fake_balloon *fake)
{
	enum balloon_queue_id role;

	fake_check_features(fake);
	for (role = 0; role < QUEUE_NR; role++) {
		struct fake_queue *fq = &fake->queue[role];

		fake_check(fake, !fq->vq || !fake_avail(fq),
			   "F19: %s: posted before DRIVER_OK",
			   fake_queue_name(fq));
	}
	fake_check(fake,
		   fake->poison_set ||
		   !fake_agreed(fake, VIRTIO_BALLOON_F_PAGE_POISON),
		   "S28: poison_val is not set");
}

static void fake_set_status(struct virtio_device *vdev, u8 status)
{
	struct fake_balloon *fake = to_fake(vdev);

	if (status & ~fake->status & VIRTIO_CONFIG_S_DRIVER_OK)
		fake_check_ready(fake);
	fake->status = status;
}

/* The device forgets everything, and whose the pages are. */
static void fake_forget(struct fake_balloon *fake)
{
	unsigned long pfn;

	fake->nr_forgotten = 0;
	for (pfn = 0; pfn < fake->nr_pages; pfn++)
		fake->nr_forgotten += fake->pages[pfn] != FAKE_GUESTS;
	memset(fake->pages, FAKE_GUESTS, fake->nr_pages);
	memset(fake->reported, 0, fake->nr_pages);
	fake->nr_held = 0;
	fake->config[1] = 0;
	fake->config[3] = 0;
	fake->poison_set = false;
	fake->hinting = false;
	fake->stats_dead = false;
}

static void fake_reset(struct virtio_device *vdev)
{
	struct fake_balloon *fake = to_fake(vdev);
	enum balloon_queue_id role;

	mutex_lock(&fake->busy);
	for (role = 0; role < QUEUE_NR; role++) {
		struct fake_queue *fq = &fake->queue[role];

		INIT_LIST_HEAD(&fq->pending);
		fq->nr_pending = 0;
		if (fq->vq)
			fq->at_reset = fake_avail(fq);
	}
	fake_forget(fake);
	fake->status = 0;
	mutex_unlock(&fake->busy);
}

static void fake_queue_delete(struct fake_queue *fq)
{
	if (!fq->vq)
		return;
	/* Taking unused buffers out of the ring turns the index back. */
	fake_check(fq->fake, (s16)(fake_avail(fq) - fq->at_reset) <= 0,
		   "F23: %s: posted after the reset", fake_queue_name(fq));
	vring_del_virtqueue(fq->vq);
	free_pages_exact(fq->vring.desc, fq->bytes);
	kvfree(fq->request);
	fq->vq = NULL;
	fq->request = NULL;
}

static void fake_del_vqs(struct virtio_device *vdev)
{
	struct fake_balloon *fake = to_fake(vdev);
	enum balloon_queue_id role;

	mutex_lock(&fake->busy);
	fake_check(fake, !(fake->status & VIRTIO_CONFIG_S_DRIVER_OK),
		   "queues deleted in status %x", fake->status);
	for (role = 0; role < QUEUE_NR; role++)
		fake_queue_delete(&fake->queue[role]);
	mutex_unlock(&fake->busy);
}

static unsigned int fake_queue_size(struct fake_balloon *fake,
				    enum balloon_queue_id role)
{
	return fake->shrink ?: fake->like->size[role] ?: fake->like->size[0];
}

static int fake_queue_create(struct fake_queue *fq, unsigned int index,
			     const struct virtqueue_info *info)
{
	struct fake_balloon *fake = fq->fake;
	unsigned int num = fake_queue_size(fake, fq->role);
	void *mem;

	fq->bytes = PAGE_ALIGN(vring_size(num, SMP_CACHE_BYTES));
	mem = alloc_pages_exact(fq->bytes, GFP_KERNEL | __GFP_ZERO);
	fq->request = kvcalloc(num, sizeof(*fq->request), GFP_KERNEL);
	if (!mem || !fq->request)
		goto fail;
	vring_init(&fq->vring, num, mem, SMP_CACHE_BYTES);
	fq->seen = 0;
	fq->used = 0;
	fq->at_reset = 0;
	INIT_LIST_HEAD(&fq->pending);
	fq->nr_pending = 0;
	fq->vq = vring_new_virtqueue(index, num, SMP_CACHE_BYTES, &fake->vdev,
				     true, info->ctx, mem, fake_notify,
				     info->callback, info->name);
	if (fq->vq)
		return 0;
fail:
	if (mem)
		free_pages_exact(mem, fq->bytes);
	kvfree(fq->request);
	return -ENOMEM;
}

static int fake_find_vqs(struct virtio_device *vdev, unsigned int nvqs,
			 struct virtqueue *vqs[], struct virtqueue_info info[],
			 struct irq_affinity *desc)
{
	struct fake_balloon *fake = to_fake(vdev);
	unsigned int i;
	int err = fake->fail_find;

	if (err)
		return err;
	fake_check(fake, nvqs <= fake->nr_roles, "V7: %u queues, not %u", nvqs,
		   fake->nr_roles);
	for (i = 0; i < nvqs && !err; i++) {
		struct fake_queue *fq = &fake->queue[fake->roles[i]];

		fake_check(fake, info[i].name && info[i].callback,
			   "V7: a hole at queue %u", i);
		err = fake_queue_create(fq, i, &info[i]);
		vqs[i] = fq->vq;
	}
	if (err)
		fake_del_vqs(vdev);
	return err;
}

static u64 fake_get_features(struct virtio_device *vdev)
{
	return to_fake(vdev)->like->offered;
}

static int fake_finalize_features(struct virtio_device *vdev)
{
	vring_transport_features(vdev);
	return 0;
}

static const char *fake_bus_name(struct virtio_device *vdev)
{
	return "fake";
}

static const struct virtio_config_ops fake_config_ops = {
	.get = fake_get,
	.set = fake_set,
	.get_status = fake_get_status,
	.set_status = fake_set_status,
	.reset = fake_reset,
	.find_vqs = fake_find_vqs,
	.del_vqs = fake_del_vqs,
	.get_features = fake_get_features,
	.finalize_features = fake_finalize_features,
	.bus_name = fake_bus_name,
};

/* --- What tests do with it --------------------------------------------- */

/**
 * fake_target() - set the balloon's target
 * @fake: the device
 * @pages: of PAGE_SIZE
 */
static void fake_target(struct fake_balloon *fake, unsigned long pages)
{
	fake_set_config(fake, offsetof(struct virtio_balloon_config, num_pages),
			pages << WIRE_SHIFT);
}

/**
 * fake_hint() - ask for a run of hints, or say that it is done
 * @fake: the device
 * @id: the command
 */
static void fake_hint(struct fake_balloon *fake, u32 id)
{
	fake_set_config(fake, offsetof(struct virtio_balloon_config,
				       free_page_hint_cmd_id), id);
}

/**
 * fake_withhold() - leave requests unanswered from now on
 * @fake: the device
 * @role: of which queue
 */
static void fake_withhold(struct fake_balloon *fake, enum balloon_queue_id role)
{
	mutex_lock(&fake->busy);
	fake->withheld |= BIT(role);
	mutex_unlock(&fake->busy);
}

/**
 * fake_release() - answer what was left unanswered, and what comes
 * @fake: the device
 * @role: of which queue
 */
static void fake_release(struct fake_balloon *fake, enum balloon_queue_id role)
{
	mutex_lock(&fake->busy);
	fake->withheld &= ~BIT(role);
	mutex_unlock(&fake->busy);
	kthread_queue_work(fake->thread, &fake->work);
	kthread_flush_work(&fake->work);
}

static void fake_later_fn(struct kthread_work *work)
{
	struct fake_balloon *fake = container_of(work, struct fake_balloon,
						 later.work);

	if (fake->breaks_later) {
		fake_break(fake);
		return;
	}
	mutex_lock(&fake->busy);
	fake->withheld = 0;
	mutex_unlock(&fake->busy);
	fake_work_fn(&fake->work);
}

/**
 * fake_release_later() - answer everything that was left unanswered
 * @fake: the device
 * @ms: when
 */
static void fake_release_later(struct fake_balloon *fake, unsigned int ms)
{
	kthread_queue_delayed_work(fake->thread, &fake->later,
				   msecs_to_jiffies(ms));
}

/**
 * fake_break_later() - break the device
 * @fake: the device
 * @ms: when
 */
static void fake_break_later(struct fake_balloon *fake, unsigned int ms)
{
	fake->breaks_later = true;
	kthread_queue_delayed_work(fake->thread, &fake->later,
				   msecs_to_jiffies(ms));
}

/**
 * fake_ration() - answer so many requests, then no more
 * @fake: the device
 * @role: of which queue
 * @nr: requests
 */
static void fake_ration(struct fake_balloon *fake, enum balloon_queue_id role,
			unsigned int nr)
{
	mutex_lock(&fake->busy);
	fake->rations[role] = nr;
	mutex_unlock(&fake->busy);
}

/**
 * fake_ask_stats() - ask for statistics, by giving the buffer back
 * @fake: the device
 *
 * Return: whether there was a buffer to give back.
 */
static bool fake_ask_stats(struct fake_balloon *fake)
{
	struct fake_queue *fq = &fake->queue[QUEUE_STATS];
	struct fake_request *req = NULL;
	u16 old = fq->used;

	mutex_lock(&fake->busy);
	if (fq->vq && !fake->stats_dead && !fake_is(fake, FAKE_KEEPS_STATS))
		req = list_first_entry_or_null(&fq->pending,
					       struct fake_request, node);
	if (req) {
		fake_answer(fq, req);
		if (fake_wanted(fq, old))
			fake_raise(fq);
	}
	mutex_unlock(&fake->busy);
	return req;
}

/**
 * fake_pages_out() - pages of the driver's own allocation that are not free
 *
 * Return: balloon pages, held, reported and hinted blocks; exact.
 */
static unsigned long fake_pages_out(void)
{
	static struct alloc_tag *tag;

	if (!tag) {
		struct page *page = chunk_alloc(0, false);

		if (!page)
			return ULONG_MAX;
		tag = pgalloc_tag_get(page);
		__free_page(page);
	}
	return tag ? alloc_tag_read(tag).bytes >> PAGE_SHIFT : ULONG_MAX;
}

/* The driver's own idea of the device, for what can only be called directly. */
static struct virtio_balloon *fake_vb(struct fake_balloon *fake)
{
	return fake->vdev.priv;
}

/**
 * fake_remove() - take the device away from the driver
 * @fake: the device
 */
static void fake_remove(struct fake_balloon *fake)
{
	if (!fake->registered)
		return;
	fake->registered = false;
	unregister_virtio_device(&fake->vdev);
	wait_for_completion(&fake->released);
}

static void fake_dev_release(struct device *dev)
{
	complete(&to_fake(dev_to_virtio(dev))->released);
}

static void fake_judge(struct fake_balloon *fake)
{
	unsigned int i;

	for (i = 0; i < min(fake->nr_blames, ARRAY_SIZE(fake->blame)); i++)
		KUNIT_FAIL(fake->test, "%s: %s", fake->like->name,
			   fake->blame[i]);
	KUNIT_EXPECT_EQ_MSG(fake->test, fake->nr_blames, 0, "%s",
			    fake->like->name);
}

static int fake_notified(struct notifier_block *nb, unsigned long event,
			 void *data)
{
	return NOTIFY_DONE;
}

/* A notifier that the driver left behind is in freed memory: trip over it. */
static void fake_walk_chains(void)
{
	static struct notifier_block last = {
		.notifier_call = fake_notified,
		.priority = INT_MIN,
	};

	register_oom_notifier(&last);
	unregister_oom_notifier(&last);
	register_pm_notifier(&last);
	unregister_pm_notifier(&last);
}

static void fake_end(void *data)
{
	struct fake_balloon *fake = data;

	fake_remove(fake);
	fake_walk_chains();
	kthread_cancel_delayed_work_sync(&fake->later);
	kthread_destroy_worker(fake->thread);
	KUNIT_EXPECT_EQ_MSG(fake->test, fake_pages_out(), 0UL,
			    "%s: pages of the driver are lost",
			    fake->like->name);
	fake_judge(fake);
	kvfree(fake->pages);
	kvfree(fake->reported);
}

static void fake_number_queues(struct fake_balloon *fake)
{
	static const int feature[QUEUE_NR] = {
		-1, -1, VIRTIO_BALLOON_F_STATS_VQ,
		VIRTIO_BALLOON_F_FREE_PAGE_HINT, VIRTIO_BALLOON_F_REPORTING,
	};
	enum balloon_queue_id role;

	for (role = 0; role < QUEUE_NR; role++) {
		fake->queue[role].fake = fake;
		fake->queue[role].role = role;
		INIT_LIST_HEAD(&fake->queue[role].pending);
		if (feature[role] < 0 || fake_offers(fake, feature[role]))
			fake->roles[fake->nr_roles++] = role;
	}
}

/**
 * fake_alloc() - a device that is not registered yet
 * @test: whose
 * @like: which
 *
 * Return: the device; the test has ended where there is none.
 */
static struct fake_balloon *fake_alloc(struct kunit *test,
				       const struct fake_like *like)
{
	struct fake_balloon *fake;
	static unsigned int nr;

	KUNIT_ASSERT_EQ_MSG(test, fake_pages_out(), 0UL,
			    "an earlier test has lost pages");
	fake = kunit_kzalloc(test, sizeof(*fake), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, fake);
	fake->test = test;
	fake->like = like;
	mutex_init(&fake->busy);
	spin_lock_init(&fake->blame_lock);
	init_completion(&fake->released);
	kthread_init_work(&fake->work, fake_work_fn);
	kthread_init_delayed_work(&fake->later, fake_later_fn);
	fake_number_queues(fake);
	snprintf(fake->name, sizeof(fake->name), "fake-balloon.%u", nr++);
	fake->parent = kunit_device_register(test, fake->name);
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, fake->parent);
	fake->nr_pages = max_pfn;
	fake->pages = kvzalloc(fake->nr_pages, GFP_KERNEL);
	fake->reported = kvzalloc(fake->nr_pages, GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, fake->pages);
	KUNIT_ASSERT_NOT_NULL(test, fake->reported);
	fake->thread = kthread_create_worker(0, "fake-balloon");
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, fake->thread);
	KUNIT_ASSERT_EQ(test, kunit_add_action_or_reset(test, fake_end, fake), 0);
	fake->vdev.id.device = VIRTIO_ID_BALLOON;
	fake->vdev.config = &fake_config_ops;
	fake->vdev.dev.parent = fake->parent;
	fake->vdev.dev.release = fake_dev_release;
	return fake;
}

/**
 * fake_register() - let the driver see the device
 * @fake: the device
 *
 * Return: whether the driver is bound to it.
 */
static bool fake_register(struct fake_balloon *fake)
{
	KUNIT_ASSERT_EQ(fake->test, register_virtio_device(&fake->vdev), 0);
	fake->registered = true;
	return fake->vdev.dev.driver;
}

/**
 * fake_new() - a device that the driver is bound to
 * @test: whose; its end removes the device, and judges
 * @like: which
 *
 * Return: the device; the test has ended where there is none.
 */
static struct fake_balloon *fake_new(struct kunit *test,
				     const struct fake_like *like)
{
	struct fake_balloon *fake = fake_alloc(test, like);

	KUNIT_ASSERT_TRUE_MSG(test, fake_register(fake),
			      "%s: the driver is not bound", like->name);
	return fake;
}
