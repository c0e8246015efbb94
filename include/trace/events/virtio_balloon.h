/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the virtio balloon driver does, and how long it takes.  Counts are pages
 * of PAGE_SIZE, as everything that Linux counts; the device is named as in
 * /sys/bus/virtio/devices.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM virtio_balloon

#if !defined(_TRACE_VIRTIO_BALLOON_H) || defined(TRACE_HEADER_MULTI_READ)
#define _TRACE_VIRTIO_BALLOON_H

#include <linux/device.h>
#include <linux/tracepoint.h>

/* The hypervisor has set another target. */
TRACE_EVENT(virtio_balloon_target,
	TP_PROTO(struct device *dev, unsigned long target,
		 unsigned long ballooned),
	TP_ARGS(dev, target, ballooned),
	TP_STRUCT__entry(
		__string(name, dev_name(dev))
		__field(unsigned long, target)
		__field(unsigned long, ballooned)
	),
	TP_fast_assign(
		__assign_str(name);
		__entry->target = target;
		__entry->ballooned = ballooned;
	),
	TP_printk("%s target=%lu ballooned=%lu", __get_str(name),
		  __entry->target, __entry->ballooned)
);

/*
 * A batch is over.  Where err is not 0, pages counts what the device has
 * answered all the same.
 */
TRACE_EVENT(virtio_balloon_batch,
	TP_PROTO(struct device *dev, bool inflating, unsigned int requests,
		 unsigned long pages, unsigned int blocks, u64 ns, int err),
	TP_ARGS(dev, inflating, requests, pages, blocks, ns, err),
	TP_STRUCT__entry(
		__string(name, dev_name(dev))
		__field(unsigned long, pages)
		__field(u64, ns)
		__field(unsigned int, requests)
		__field(unsigned int, blocks)
		__field(int, err)
		__field(bool, inflating)
	),
	TP_fast_assign(
		__assign_str(name);
		__entry->pages = pages;
		__entry->ns = ns;
		__entry->requests = requests;
		__entry->blocks = blocks;
		__entry->err = err;
		__entry->inflating = inflating;
	),
	TP_printk("%s %s requests=%u pages=%lu blocks=%u ns=%llu err=%d",
		  __get_str(name), __entry->inflating ? "inflate" : "deflate",
		  __entry->requests, __entry->pages, __entry->blocks,
		  __entry->ns, __entry->err)
);

/* The guest is out of memory: step is what a call may take now. */
TRACE_EVENT(virtio_balloon_oom,
	TP_PROTO(struct device *dev, unsigned long step, unsigned long asked,
		 unsigned long freed),
	TP_ARGS(dev, step, asked, freed),
	TP_STRUCT__entry(
		__string(name, dev_name(dev))
		__field(unsigned long, step)
		__field(unsigned long, asked)
		__field(unsigned long, freed)
	),
	TP_fast_assign(
		__assign_str(name);
		__entry->step = step;
		__entry->asked = asked;
		__entry->freed = freed;
	),
	TP_printk("%s step=%lu asked=%lu freed=%lu", __get_str(name),
		  __entry->step, __entry->asked, __entry->freed)
);

/* Inflation rests after an OOM; firm: a new target does not end the rest. */
TRACE_EVENT(virtio_balloon_pause,
	TP_PROTO(struct device *dev, unsigned int ms, bool firm),
	TP_ARGS(dev, ms, firm),
	TP_STRUCT__entry(
		__string(name, dev_name(dev))
		__field(unsigned int, ms)
		__field(bool, firm)
	),
	TP_fast_assign(
		__assign_str(name);
		__entry->ms = ms;
		__entry->firm = firm;
	),
	TP_printk("%s ms=%u firm=%d", __get_str(name), __entry->ms,
		  __entry->firm)
);

DECLARE_EVENT_CLASS(virtio_balloon_plain,
	TP_PROTO(struct device *dev),
	TP_ARGS(dev),
	TP_STRUCT__entry(
		__string(name, dev_name(dev))
	),
	TP_fast_assign(
		__assign_str(name);
	),
	TP_printk("%s", __get_str(name))
);

/* Inflation goes on after a rest. */
DEFINE_EVENT(virtio_balloon_plain, virtio_balloon_resume,
	TP_PROTO(struct device *dev),
	TP_ARGS(dev)
);

/* The device has not answered in time. */
DEFINE_EVENT(virtio_balloon_plain, virtio_balloon_stall,
	TP_PROTO(struct device *dev),
	TP_ARGS(dev)
);

/* It has answered after all. */
DEFINE_EVENT(virtio_balloon_plain, virtio_balloon_recover,
	TP_PROTO(struct device *dev),
	TP_ARGS(dev)
);

/* Free runs have been reported. */
TRACE_EVENT(virtio_balloon_report,
	TP_PROTO(struct device *dev, unsigned int runs, unsigned long pages,
		 u64 ns, int err),
	TP_ARGS(dev, runs, pages, ns, err),
	TP_STRUCT__entry(
		__string(name, dev_name(dev))
		__field(unsigned long, pages)
		__field(u64, ns)
		__field(unsigned int, runs)
		__field(int, err)
	),
	TP_fast_assign(
		__assign_str(name);
		__entry->pages = pages;
		__entry->ns = ns;
		__entry->runs = runs;
		__entry->err = err;
	),
	TP_printk("%s runs=%u pages=%lu ns=%llu err=%d", __get_str(name),
		  __entry->runs, __entry->pages, __entry->ns, __entry->err)
);

/* A run of free page hinting is over. */
TRACE_EVENT(virtio_balloon_hint,
	TP_PROTO(struct device *dev, u32 id, unsigned long pages, int err),
	TP_ARGS(dev, id, pages, err),
	TP_STRUCT__entry(
		__string(name, dev_name(dev))
		__field(unsigned long, pages)
		__field(u32, id)
		__field(int, err)
	),
	TP_fast_assign(
		__assign_str(name);
		__entry->pages = pages;
		__entry->id = id;
		__entry->err = err;
	),
	TP_printk("%s id=%#x pages=%lu err=%d", __get_str(name), __entry->id,
		  __entry->pages, __entry->err)
);

#endif /* _TRACE_VIRTIO_BALLOON_H */

#include <trace/define_trace.h>
