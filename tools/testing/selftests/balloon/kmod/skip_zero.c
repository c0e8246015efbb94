// SPDX-License-Identifier: GPL-2.0
/*
 * Does the page allocator honour __GFP_SKIP_ZERO, and nothing but that?
 *
 * For a kernel with init_on_alloc=1.  Loading writes to pages, frees them and
 * takes as many again; the results are parameters that can be read then: how
 * many of them were not zero.
 */
#include <linux/gfp.h>
#include <linux/highmem.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/string.h>

static unsigned int pages = 1024;
module_param(pages, uint, 0444);
MODULE_PARM_DESC(pages, "how many pages are taken each time");

static unsigned int normal;
module_param(normal, uint, 0444);
MODULE_PARM_DESC(normal, "not zero: without the flag");

static unsigned int skipped;
module_param(skipped, uint, 0444);
MODULE_PARM_DESC(skipped, "not zero: with the flag");

static unsigned int both;
module_param(both, uint, 0444);
MODULE_PARM_DESC(both, "not zero: with the flag and __GFP_ZERO");

/* Leaves pages behind that are not zero, for the next to get. */
static void give_back(struct list_head *taken)
{
	struct page *page, *next;

	list_for_each_entry_safe(page, next, taken, lru) {
		void *at = kmap_local_page(page);

		memset(at, 0x5a, PAGE_SIZE);
		kunmap_local(at);
		list_del(&page->lru);
		__free_page(page);
	}
}

static bool is_zero(struct page *page)
{
	void *at = kmap_local_page(page);
	bool zero = !memchr_inv(at, 0, PAGE_SIZE);

	kunmap_local(at);
	return zero;
}

static unsigned int not_zero(gfp_t gfp)
{
	unsigned int i, found = 0;
	LIST_HEAD(taken);

	for (i = 0; i < pages; i++) {
		struct page *page = alloc_page(gfp | __GFP_NORETRY | __GFP_NOWARN);

		if (!page)
			break;
		found += !is_zero(page);
		list_add(&page->lru, &taken);
	}
	give_back(&taken);
	return found;
}

static int __init skip_zero_init(void)
{
	/* First what is there already: what others have left. */
	normal = not_zero(GFP_HIGHUSER);
	skipped = not_zero(GFP_HIGHUSER | __GFP_SKIP_ZERO);
	normal += not_zero(GFP_HIGHUSER);
	both = not_zero(GFP_HIGHUSER | __GFP_SKIP_ZERO | __GFP_ZERO);
	return 0;
}
module_init(skip_zero_init);

static void __exit skip_zero_exit(void)
{
}
module_exit(skip_zero_exit);

MODULE_DESCRIPTION("Test of __GFP_SKIP_ZERO");
MODULE_LICENSE("GPL");
