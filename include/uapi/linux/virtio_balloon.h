/* SPDX-License-Identifier: ((GPL-2.0 WITH Linux-syscall-note) OR BSD-3-Clause) */
/*
 * What a virtio memory balloon driver and its device say to each other.
 *
 * Everything here is fixed by the VIRTIO specification (section 5.5) and by
 * programs that were built against it: nothing may be renamed, moved or given
 * another value.
 */
#ifndef _LINUX_VIRTIO_BALLOON_H
#define _LINUX_VIRTIO_BALLOON_H

#include <linux/types.h>
#include <linux/virtio_config.h>
#include <linux/virtio_ids.h>
#include <linux/virtio_types.h>

/*
 * The device counts memory in units of 4 KiB, whatever page size the guest
 * has; page frame numbers are counted in the same unit.
 */
#define VIRTIO_BALLOON_PFN_SHIFT 12

/*
 * Feature bits.  Those that come with a queue of their own say so; the queues
 * for inflating and deflating are always there.
 */
#define VIRTIO_BALLOON_F_REPORTING	5 /* queue: runs of unused memory */
#define VIRTIO_BALLOON_F_PAGE_POISON	4 /* free memory has a set content */
#define VIRTIO_BALLOON_F_FREE_PAGE_HINT	3 /* queue: what migration may skip */
#define VIRTIO_BALLOON_F_DEFLATE_ON_OOM	2 /* guest may help itself when short */
#define VIRTIO_BALLOON_F_STATS_VQ	1 /* queue: guest statistics */
#define VIRTIO_BALLOON_F_MUST_TELL_HOST	0 /* no page is reused unannounced */

/*
 * struct virtio_balloon_config - the device's configuration space
 *
 * Little-endian, on legacy devices as well.  A device shows only as much of it
 * as the features that it offers have use for.
 */
struct virtio_balloon_config {
	__le32 num_pages;	/* the target; written by the device alone */
	__le32 actual;		/* the size reached; written by the driver */
	union {
		/* The field's first name, kept for programs that use it */
		__le32 free_page_report_cmd_id;
		/* The run of hints that is wanted, or one of the two ids below */
		__le32 free_page_hint_cmd_id;
	};
	__le32 poison_val;	/* content of free memory; set before DRIVER_OK */
};

/* Values of free_page_hint_cmd_id that start no run; runs count from 2. */
#define VIRTIO_BALLOON_CMD_ID_DONE	1 /* hinted memory may be reused */
#define VIRTIO_BALLOON_CMD_ID_STOP	0 /* send no more hints */

/*
 * struct virtio_balloon_stat - one entry of a statistics buffer
 *
 * Ten bytes: a buffer is an array of these with nothing between them, so the
 * values in it are not aligned.
 */
struct virtio_balloon_stat {
	__virtio16 tag;
	__virtio64 val;
} __attribute__((packed));

/* Tags whose value is in bytes: what there is now, and what was moved so far */
#define VIRTIO_BALLOON_S_MEMTOT		5 /* all that the guest can use */
#define VIRTIO_BALLOON_S_MEMFREE	4 /* unused */
#define VIRTIO_BALLOON_S_AVAIL		6 /* to be had without swapping */
#define VIRTIO_BALLOON_S_CACHES		7 /* in the page cache */
#define VIRTIO_BALLOON_S_SWAP_IN	0 /* read back from swap */
#define VIRTIO_BALLOON_S_SWAP_OUT	1 /* written to swap */
#define VIRTIO_BALLOON_S_DIRECT_SCAN	13 /* looked at by who needed memory */
#define VIRTIO_BALLOON_S_DIRECT_RECLAIM	15 /* got back by who needed memory */
#define VIRTIO_BALLOON_S_ASYNC_SCAN	12 /* looked at in the background */
#define VIRTIO_BALLOON_S_ASYNC_RECLAIM	14 /* got back in the background */

/* Tags whose value counts events since the guest was started */
#define VIRTIO_BALLOON_S_MINFLT		3 /* page faults, minor ones */
#define VIRTIO_BALLOON_S_MAJFLT		2 /* page faults that had to read */
#define VIRTIO_BALLOON_S_HTLB_PGFAIL	9 /* huge pages that were not got */
#define VIRTIO_BALLOON_S_HTLB_PGALLOC	8 /* huge pages that were got */
#define VIRTIO_BALLOON_S_OOM_KILL	10 /* processes killed when short */
#define VIRTIO_BALLOON_S_ALLOC_STALL	11 /* allocations that had to reclaim */

/* One more than the highest tag */
#define VIRTIO_BALLOON_S_NR		16

/* An initialiser for an array of names, in the order of the tags */
#define VIRTIO_BALLOON_S_NAMES_WITH_PREFIX(prefix) {		\
	prefix "swap-in",		prefix "swap-out",		\
	prefix "major-faults",		prefix "minor-faults",		\
	prefix "free-memory",		prefix "total-memory",		\
	prefix "available-memory",	prefix "disk-caches",		\
	prefix "hugetlb-allocations",	prefix "hugetlb-failures",	\
	prefix "oom-kills",		prefix "alloc-stalls",		\
	prefix "async-scans",		prefix "direct-scans",		\
	prefix "async-reclaims",	prefix "direct-reclaims"	\
}

#define VIRTIO_BALLOON_S_NAMES VIRTIO_BALLOON_S_NAMES_WITH_PREFIX("")

#endif /* _LINUX_VIRTIO_BALLOON_H */
