//! Errors of estimates, from sampled pages and from sampled blocks.

mod margin;
mod pages;
mod samples;
mod uncertainty;

pub(crate) use self::margin::Margin;
pub(crate) use self::pages::{
    count_error, error, format_error, kind_error, limited, other_error, released_error, size_of_pages,
};
pub(crate) use self::samples::{
    SampledPart, SampledProcesses, Samples, has_samples, interval_of, most_without_samples,
};
pub(crate) use self::uncertainty::Uncertainty;
