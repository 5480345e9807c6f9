//! User and cgroups of a process.

use aya_ebpf::EbpfContext;
use aya_ebpf::helpers::generated::bpf_get_current_uid_gid;
use memtrace_common::wire::{OwnerRecord, RecordKind};

use crate::kernel::read_word;
use crate::settings::field;
use crate::thread::Thread;
use crate::{cgroup, emit};

/// Records the user and cgroups of the current process when its image ends by `end`, an exec or exit. At an exec, the
/// task already has its new credentials. The exec can change the effective user, so the real user is recorded.
#[inline(always)]
pub fn emit(context: &impl EbpfContext, thread: Thread, task: u64, end: RecordKind) {
    // SAFETY: the helper takes nothing.
    let real_user = (unsafe { bpf_get_current_uid_gid() }) as u32;
    let user = if end == RecordKind::Exec {
        real_user
    } else {
        read_word(read_word(task, field!(task.task_cred)), field!(task.cred_euid)) as u32
    };
    let cgroups = cgroup::ids(read_word(task, field!(task.task_group_leader)));
    emit::owner(context, OwnerRecord { header: thread.header(RecordKind::Owner), user, real_user, cgroups });
}
