//! Writes the memory of several processes as JSON.

use std::io;

use memtrace_json::{self as schema, SCHEMA_VERSION};
use memtrace_model::{
    MachineMemory, ProcessSizes, ProcessUse, ProcessesUse, SelectedCgroup, SelectionExplanation, UnreadProcess,
    UnreadProcesses,
};

use super::json;
use crate::json::TOOL;
use crate::json_lines;

/// Writes the memory of several processes as JSON.
///
/// # Errors
///
/// Returns the errors of `out`.
pub fn write(page: &SelectionExplanation, out: &mut dyn io::Write) -> io::Result<()> {
    let object = schema::SelectionExplanation {
        schema_version: SCHEMA_VERSION,
        tool: TOOL,
        selection: page.name.as_str().into(),
        total: sum(&page.total()),
        processes: page.processes.iter().map(process).collect(),
        others: sum(&page.others),
        unread: unread(&page.unread),
        cgroups: page.cgroups.iter().map(|group| cgroup(page, group)).collect(),
        unknown_cgroups: page.unknown_cgroups.iter().map(|path| path.as_str().into()).collect(),
        machine: page.machine.as_ref().map(machine),
        pressure: page.pressure.map(json::pressure),
        file_timeouts: page.file_timeouts,
    };
    json_lines::write(&object, out)
}

fn sum(sum: &ProcessesUse) -> schema::ProcessSum {
    schema::ProcessSum { processes: sum.processes, sizes: sizes(&sum.sizes) }
}

fn process(process: &ProcessUse) -> schema::ExplainedProcess<'_> {
    schema::ExplainedProcess {
        pid: process.pid.0,
        comm: process.comm.raw().into(),
        heap_known: process.is_heap_known,
        sizes: sizes(&process.sizes),
    }
}

const fn sizes(sizes: &ProcessSizes) -> schema::ProcessSizes {
    let returnable = &sizes.returnable;
    schema::ProcessSizes {
        pss_bytes: sizes.pss.0,
        pss_anonymous_bytes: sizes.anonymous.0,
        pss_file_bytes: sizes.file.0,
        pss_shmem_bytes: sizes.shmem.0,
        private_bytes: sizes.private.0,
        rss_bytes: sizes.resident.0,
        swap_bytes: sizes.swap.0,
        hugetlb_bytes: sizes.hugetlb.0,
        page_table_bytes: sizes.page_tables.0,
        returnable_bytes: returnable.sum().0,
        free_heap_bytes: returnable.heap.0,
        lazy_free_bytes: returnable.lazy_free.0,
        clean_file_bytes: returnable.clean_file.0,
    }
}

fn unread(unread: &UnreadProcesses) -> schema::UnreadProcesses<'_> {
    schema::UnreadProcesses {
        exited: unread.exited,
        shares_memory: unread.shares_memory,
        not_permitted: unread.not_permitted,
        unreadable: unread.unreadable,
        late: unread.late,
        rss_bytes: unread.rss.0,
        named: unread.named.iter().map(unread_process).collect(),
    }
}

fn unread_process(process: &UnreadProcess) -> schema::UnreadProcess<'_> {
    schema::UnreadProcess {
        pid: process.pid.0,
        comm: process.comm.raw().into(),
        rss_bytes: process.rss.map(|bytes| bytes.0),
        reason: process.reason.name().into(),
    }
}

fn cgroup<'a>(page: &SelectionExplanation, group: &'a SelectedCgroup) -> schema::SelectedCgroup<'a> {
    schema::SelectedCgroup {
        whole: group.is_whole,
        unmapped_shmem_estimate_bytes: page.unmapped_shmem(group).map(|bytes| bytes.0),
        cgroup: json::cgroup(&group.memory),
    }
}

fn machine(machine: &MachineMemory) -> schema::MachineMemory {
    schema::MachineMemory {
        total_bytes: machine.total.0,
        free_bytes: machine.free.0,
        available_bytes: machine.available.0,
        hugetlb_bytes: machine.hugetlb.map(|bytes| bytes.0),
        counters: json::counters(&machine.counters),
    }
}
