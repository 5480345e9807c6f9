//! Reports of the thread monitor: a table, CSV and JSON of intervals, and a picture of all intervals.

mod csv;
mod event;
mod history;
mod json;
mod series;
mod svg;
mod text;
mod timeline;
mod timeline_builder;

pub use csv::{write as write_csv, write_header as write_csv_header};
pub use history::ThreadHistory;
pub use json::write as write_json;
pub use svg::write as write_svg;
pub use text::{ThreadTableOptions, write as write_text};
pub use timeline::ThreadTimeline;
pub use timeline_builder::TimelineBuilder;

#[cfg(test)]
mod tests;
