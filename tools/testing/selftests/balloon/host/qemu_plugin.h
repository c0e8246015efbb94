/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What is used here of QEMU's plugin interface, version 1: Debian has no header
 * for it.
 */
#ifndef HOST_QEMU_PLUGIN_H
#define HOST_QEMU_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#define EXPORT	__attribute__((visibility("default")))

enum { INLINE_ADD };

/* Code that the emulator has translated, and will execute, as one piece. */
struct qemu_plugin_tb;

typedef void translated_fn(uint64_t id, struct qemu_plugin_tb *tb);

void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id, translated_fn *fn);
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *tb,
					      int operation, void *counter,
					      uint64_t value);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *tb);

#endif
