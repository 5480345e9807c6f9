//! Code that the commands share, apart from `targets`: configuration, outputs, reports, marks, messages, clocks and
//! errors.

pub(crate) mod clock;
pub(crate) mod config;
pub(crate) mod descriptors;
pub(crate) mod detach;
pub(crate) mod error;
pub(crate) mod event_loop;
pub(crate) mod forced_end;
pub(crate) mod go_profile;
pub(crate) mod grouping;
pub(crate) mod mark_requests;
pub(crate) mod marks;
pub(crate) mod observer;
pub(crate) mod outcome;
pub(crate) mod outputs;
pub(crate) mod own_allocator;
pub(crate) mod page_tracker;
pub(crate) mod privileges;
pub(crate) mod probe_cost;
pub(crate) mod protection;
pub(crate) mod realtime;
pub(crate) mod recording_file;
pub(crate) mod reports;
pub(crate) mod service_manager;
pub(crate) mod start_progress;
#[cfg(test)]
pub(crate) mod stub_page;
pub(crate) mod table_rows;
pub(crate) mod text_layout;
