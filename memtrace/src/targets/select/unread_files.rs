//! Files that were not read in time.

use memtrace_host::kernel::ProcessFilter;
use memtrace_host::unread_files::{self, UnreadFile};
use memtrace_model::{ImageId, ProcessImage};

use super::selection::Selection;
use crate::targets::track::ProcessTracker;

/// Counts the files that were not read since the last call, and returns their number. A file that only processes out of scope
/// use is no loss.
pub(crate) fn count_unread_files(filter: &ProcessFilter, tracker: &mut ProcessTracker) -> u64 {
    let unread = unread_files::take();
    if unread.is_empty() {
        return 0;
    }
    let selection = Selection::of(filter);
    let mut sum = 0;
    for (file, count) in unread {
        if is_in_scope(&file, &selection, tracker) {
            tracker.add_unread(count);
            sum += count;
        } else {
            log::debug!("{count} reads of files were given up that no process in scope uses: {file:?}");
        }
    }
    sum
}

/// Returns true if a process in scope uses the file, or if it is not known which processes use it.
fn is_in_scope(file: &UnreadFile, selection: &Selection<'_>, tracker: &ProcessTracker) -> bool {
    let is_selected = |id: ImageId| tracker.is_traced(id.pid) && selection.can_contain(tracker, id);
    match file {
        UnreadFile::Process(pid) => is_selected(tracker.latest_id(*pid)),
        UnreadFile::Object(handle) => {
            let maps =
                |image: &ProcessImage| image.objects().any(|object| object.handle.as_deref() == Some(handle.as_path()));
            let mut users = tracker.images().iter().filter(|(_, image)| maps(image)).map(|(&id, _)| id).peekable();
            users.peek().is_none() || users.any(is_selected)
        }
        UnreadFile::Other => true,
    }
}
