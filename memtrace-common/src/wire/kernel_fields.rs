//! Members of kernel structs that the BPF programs read.
//!
//! Each row of the table has a field, the kernel struct and the member. The layout structs, their initial values and
//! the BTF lookup derive from the table.

use core::mem::size_of;

/// A member of a kernel struct. A dot in a name leads into a nested struct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelMember {
    /// Name of the struct.
    pub structure: &'static str,
    /// Names of the member in different kernel releases, newest first.
    pub names: &'static [&'static str],
}

macro_rules! kernel_layouts {
    ($($(#[$doc:meta])* $layout:ident { $($field:ident: $structure:literal, $name:literal $(| $older:literal)*;)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
            #[repr(C)]
            pub struct $layout {
                /// 1 if the kernel has all members, else 0.
                pub known: u32,
                $(
                    #[doc = concat!("Offset in bytes of `", $structure, ".", $name, "`.")]
                    pub $field: u32,
                )*
            }

            impl $layout {
                /// Value in the BPF object before the loader sets the offsets. [`Self::known`] is 1, so that the verifier
                /// also checks the code that uses the members if the object is loaded unchanged.
                pub const UNRESOLVED: Self = Self { known: 1, $($field: 0),* };

                /// Looks up every member with `offset_of`.
                ///
                /// # Errors
                ///
                /// The first error of `offset_of`.
                pub fn resolve<E>(mut offset_of: impl FnMut(KernelMember) -> Result<u32, E>) -> Result<Self, E> {
                    Ok(Self {
                        known: 1,
                        $($field: offset_of(KernelMember { structure: $structure, names: &[$name $(, $older)*] })?,)*
                    })
                }
            }
        )*
    };
}

kernel_layouts! {
    /// Members that every run needs.
    TaskLayout {
        task_flags: "task_struct", "flags";
        task_tgid: "task_struct", "tgid";
        task_group_leader: "task_struct", "group_leader";
        task_comm: "task_struct", "comm";
        task_pagefault_disabled: "task_struct", "pagefault_disabled";
        task_signal: "task_struct", "signal";
        task_cred: "task_struct", "cred";
        // The objective credentials, which procfs shows (`__task_cred`, include/linux/cred.h).
        task_real_cred: "task_struct", "real_cred";
        cred_euid: "cred", "euid";
        cred_cap_effective: "cred", "cap_effective";
        cred_user_ns: "cred", "user_ns";
        user_ns_level: "user_namespace", "level";
        signal_live: "signal_struct", "live";
        signal_flags: "signal_struct", "flags";
        mm_exe_file: "mm_struct", "exe_file";
        mm_brk: "mm_struct", "brk";
    }

    /// Original return addresses of functions with a pending uretprobe.
    ReturnInstanceLayout {
        task_utask: "task_struct", "utask";
        utask_return_instances: "uprobe_task", "return_instances";
        instance_stack: "return_instance", "stack";
        instance_orig_ret_vaddr: "return_instance", "orig_ret_vaddr";
        instance_next: "return_instance", "next";
    }

    /// VMAs, and the files that a process has mapped or opened.
    VmaLayout {
        task_mm: "task_struct", "mm";
        // x86-64 has the first member, aarch64 the second.
        task_thread_pointer: "task_struct", "thread.fsbase" | "thread.uw.tp_value";
        mm_exec_vm: "mm_struct", "exec_vm";
        mm_vdso: "mm_struct", "context.vdso";
        mm_start_code: "mm_struct", "start_code";
        mm_end_code: "mm_struct", "end_code";
        mm_start_stack: "mm_struct", "start_stack";
        vm_start: "vm_area_struct", "vm_start";
        vm_end: "vm_area_struct", "vm_end";
        vm_pgoff: "vm_area_struct", "vm_pgoff";
        vm_flags: "vm_area_struct", "vm_flags";
        vm_file: "vm_area_struct", "vm_file";
        vm_mm: "vm_area_struct", "vm_mm";
        file_inode: "file", "f_inode";
        inode_ino: "inode", "i_ino";
        inode_ctime_sec: "inode", "i_ctime_sec" | "__i_ctime.tv_sec" | "i_ctime.tv_sec";
        inode_ctime_nsec: "inode", "i_ctime_nsec" | "__i_ctime.tv_nsec" | "i_ctime.tv_nsec";
        inode_sb: "inode", "i_sb";
        sb_dev: "super_block", "s_dev";
        sb_magic: "super_block", "s_magic";
        bprm_file: "linux_binprm", "file";
        task_files: "task_struct", "files";
        files_fdt: "files_struct", "fdt";
        fdt_fd: "fdtable", "fd";
    }

    /// The maple tree of a process' VMAs, since Linux 6.1.
    VmaTreeLayout {
        mm_root: "mm_struct", "mm_mt.ma_root";
        range_pivot: "maple_range_64", "pivot";
        range_slot: "maple_range_64", "slot";
        arange_pivot: "maple_arange_64", "pivot";
        arange_slot: "maple_arange_64", "slot";
    }

    /// Control groups of a process, one in each hierarchy. A `css_set` has a list of links to the control groups.
    CgroupLayout {
        task_cgroups: "task_struct", "cgroups";
        css_set_links: "css_set", "cgrp_links";
        link_node: "cgrp_cset_link", "cgrp_link";
        link_cgroup: "cgrp_cset_link", "cgrp";
        cgroup_kn: "cgroup", "kn";
        cgroup_root: "cgroup", "root";
        cgroup_parent: "cgroup", "self.parent";
        css_cgroup: "cgroup_subsys_state", "cgroup";
        kernfs_id: "kernfs_node", "id";
        root_hierarchy_id: "cgroup_root", "hierarchy_id";
    }

    /// Control groups of the memory controller.
    MemcgLayout {
        task_mm: "task_struct", "mm";
        mm_owner: "mm_struct", "owner";
        task_cgroups: "task_struct", "cgroups";
        // The loader adds the offset of the memory controller's element in the array `subsys`.
        css_set_memory: "css_set", "subsys";
        memcg_cgroup: "mem_cgroup", "css.cgroup";
        memcg_memory: "mem_cgroup", "memory";
        memcg_memsw: "mem_cgroup", "memsw";
        cgroup_kn: "cgroup", "kn";
        cgroup_root: "cgroup", "root";
        kernfs_id: "kernfs_node", "id";
        root_hierarchy_id: "cgroup_root", "hierarchy_id";
        counter_usage: "page_counter", "usage";
        counter_max: "page_counter", "max";
        counter_high: "page_counter", "high";
        counter_parent: "page_counter", "parent";
    }

    /// Page faults and peak RSS of a process. `signal_struct` has the sums of the threads that have exited.
    RusageLayout {
        task_min_flt: "task_struct", "min_flt";
        task_maj_flt: "task_struct", "maj_flt";
        task_thread_node: "task_struct", "thread_node";
        signal_min_flt: "signal_struct", "min_flt";
        signal_maj_flt: "signal_struct", "maj_flt";
        signal_thread_head: "signal_struct", "thread_head";
        // A seqlock holds a seqcount_spinlock (include/linux/seqlock_types.h).
        signal_stats_sequence: "signal_struct", "stats_lock.seqcount.seqcount.sequence";
        signal_maxrss: "signal_struct", "maxrss";
    }

    /// Arguments of the handlers of page faults in huge pages.
    HugeFaultLayout {
        fault_vma: "vm_fault", "vma";
        fault_address: "vm_fault", "address";
        fault_flags: "vm_fault", "flags";
    }

    /// Counters of a thread.
    ThreadLayout {
        task_pid: "task_struct", "pid";
        task_state: "task_struct", "__state" | "state";
        task_exit_state: "task_struct", "exit_state";
        task_start: "task_struct", "start_boottime" | "real_start_time";
        task_stime: "task_struct", "stime";
        task_runtime: "task_struct", "se.sum_exec_runtime";
        task_run_delay: "task_struct", "sched_info.run_delay";
        task_nvcsw: "task_struct", "nvcsw";
        task_nivcsw: "task_struct", "nivcsw";
        task_min_flt: "task_struct", "min_flt";
        task_maj_flt: "task_struct", "maj_flt";
    }

    /// Counters of a thread's I/O, if the kernel is built with them (CONFIG_TASK_IO_ACCOUNTING).
    ThreadIoLayout {
        task_read_bytes: "task_struct", "ioac.read_bytes";
        task_write_bytes: "task_struct", "ioac.write_bytes";
    }

    /// The lock of a memory map, and the threads that hold it. A kernel with CONFIG_PREEMPT_RT lacks `count`.
    MemoryLockLayout {
        task_mm: "task_struct", "mm";
        task_pid: "task_struct", "pid";
        task_state: "task_struct", "__state" | "state";
        task_nvcsw: "task_struct", "nvcsw";
        task_nivcsw: "task_struct", "nivcsw";
        lock_count: "mm_struct", "mmap_lock.count";
        lock_owner: "mm_struct", "mmap_lock.owner";
    }
}

const _: () = {
    assert!(size_of::<TaskLayout>() == 68);
    assert!(size_of::<CgroupLayout>() == 44);
    assert!(size_of::<ReturnInstanceLayout>() == 24);
    assert!(size_of::<VmaLayout>() == 100);
    assert!(size_of::<VmaTreeLayout>() == 24);
    assert!(size_of::<MemcgLayout>() == 64);
    assert!(size_of::<RusageLayout>() == 36);
    assert!(size_of::<HugeFaultLayout>() == 16);
    assert!(size_of::<ThreadLayout>() == 48);
    assert!(size_of::<ThreadIoLayout>() == 12);
    assert!(size_of::<MemoryLockLayout>() == 32);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_member_of_a_layout_is_looked_up_once() {
        let mut next = 0;
        let layout = ReturnInstanceLayout::resolve(|_| {
            next += 4;
            Ok::<u32, ()>(next)
        });
        let expected = ReturnInstanceLayout {
            known: 1,
            task_utask: 4,
            utask_return_instances: 8,
            instance_stack: 12,
            instance_orig_ret_vaddr: 16,
            instance_next: 20,
        };
        assert_eq!(layout, Ok(expected));
    }

    #[test]
    fn the_first_missing_member_is_the_error() {
        let missing = VmaLayout::resolve(|member| match member.structure {
            "inode" => Err(member.names.first().copied()),
            _ => Ok(0),
        });
        assert_eq!(missing, Err(Some("i_ino")));
    }
}
